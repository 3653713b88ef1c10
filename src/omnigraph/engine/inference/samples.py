"""Frames and files as Arrow tables, one per type."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import msgspec
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.load.sources.columnar import open_arrow, open_parquet
from omnigraph.engine.load.sources.csv_records import BYTE_ORDER_MARK, csv_blocks, read_header
from omnigraph.engine.load.sources.csv_sniff import sniff_delimiter
from omnigraph.engine.load.sources.input_files import InputFile, find_inputs
from omnigraph.engine.load.sources.item import Columns, Dialect, Format, Item, strip_extension
from omnigraph.engine.load.sources.line_ranges import open_text
from omnigraph.engine.load.sources.text_columns import valid_texts
from omnigraph.engine.load.spool import as_arrow, is_table
from omnigraph.engine.rows.lines import Limits
from omnigraph.errors import BadRequest
from omnigraph.lang.values import shorten_legibly
from omnigraph.storage.input_tables import describe_table, read_batches

SAMPLE_ROWS = 100_000
"""So many rows of each file are read; all rows of frames, which are in memory already."""
_SAMPLE_BYTES = 16 * 2**20
"""So many bytes of JSON lines are read."""
_SNIFFED_BYTES = 2**16
_IRREGULAR = {"people": "person", "children": "child", "men": "man", "women": "woman"}
_WORD = re.compile(r"[A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows of one type."""

    type: str
    origin: str
    """Where they come from, in words."""
    table: pa.Table
    is_text: bool = False
    """Whether values are texts that stand for values, as in CSV."""
    is_edge: bool | None = None
    """Whether they are edges; None when their columns decide."""
    ends: tuple[str, str] | None = None
    """The types that the edges join, if the caller named them."""


def sample_data(type_name: str, data: Any) -> Sample:
    """The rows of a frame, or of a file by its path."""
    if isinstance(data, str | os.PathLike):
        samples = list(sample_file(os.fspath(data), type_name))
        if len(samples) != 1:
            raise BadRequest(
                f"'{shorten_legibly(os.fspath(data))}' has rows of {len(samples)} types",
                remedy="name a file with rows of one type",
            )
        return samples[0]
    if not is_table(data):
        raise BadRequest(
            f"'{type(data).__name__}' for '{shorten_legibly(type_name)}' is neither rows nor a path",
            remedy="give a DataFrame, an Arrow table, a list of dictionaries, or a path",
        )
    rows = as_arrow(data)
    table = rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows
    return Sample(type_name, f"{_count(table.num_rows)}", table)


def sample_file(path: str, type_name: str | None = None) -> Iterator[Sample]:
    """The first rows of a file; of one with records that name their types, one sample for each type."""
    for file in find_inputs([path]):
        whole = Item(file.file, file.at, 0, 0, file.format, 0, file.size, file.size)
        if file.format.is_records:
            yield from _sample_lines(file, whole, type_name)
            continue
        table = _read_csv(whole) if file.format.is_csv else _read_columns(whole)
        yield Sample(type_name or name_type(file.name), _origin(file, table), table, file.format.is_csv)


def name_type(file_name: str) -> str:
    """The name of a type by that of its file: `people.csv` has rows of `People`."""
    words = _WORD.findall(strip_extension(PurePath(file_name).name))
    name = "".join(word[:1].upper() + word[1:] for word in words)
    return name if name[:1].isalpha() else f"T{name}"


def singular(name: str) -> str:
    """The name of one of several things: `People` -> `Person`, `Cities` -> `City`."""
    lower = name.lower()
    if lower in _IRREGULAR:
        return _IRREGULAR[lower].capitalize()
    if lower.endswith("ies") and len(name) > 4:
        return f"{name[:-3]}y"
    if lower.endswith(("sses", "ches", "shes", "xes")):
        return name[:-2]
    return name[:-1] if lower.endswith("s") and not lower.endswith(("ss", "us", "is")) else name


def sample_files(inputs: Iterable[str]) -> Iterator[Sample]:
    """The first rows of files; `Person=staff.csv` names the type, else the file does, nodes in singular."""
    for each in inputs:
        named, equals, path = each.partition("=")
        if equals and named.isidentifier():
            yield sample_data(named, path)
            continue
        for sample in sample_file(each):
            is_node = sample.is_edge is None and find_end_columns(sample.table.column_names) is None
            yield replace(sample, type=singular(sample.type)) if is_node else sample


END_COLUMNS = (("from", "to"), ("src", "dst"), ("source", "target"))
"""Pairs of columns that make a table one of edges."""


def find_end_columns(names: Iterable[str]) -> tuple[str, str] | None:
    """The columns with the ends of edges, if there are such."""
    known = set(names)
    return next((pair for pair in END_COLUMNS if set(pair) <= known), None)


def _origin(file: InputFile, table: pa.Table) -> str:
    return f"{file.name}, {'the first ' if table.num_rows >= SAMPLE_ROWS else ''}{_count(table.num_rows)}"


def _count(rows: int) -> str:
    return f"{rows} row{'' if rows == 1 else 's'}"


# --- columns -------------------------------------------------------------------------------------


def _read_columns(item: Item) -> pa.Table:
    if item.format is Format.PARQUET:
        with open_parquet(item) as file:
            return _head(file.schema_arrow, file.iter_batches(SAMPLE_ROWS))
    if item.format is Format.LANCE:
        table = describe_table(item.at)
        fragments = tuple(piece.number for piece in table.pieces)
        names = table.schema.names
        return _head(table.schema, read_batches(item.at, table.version, fragments, names, SAMPLE_ROWS))
    with open_arrow(item) as (schema, batches):
        return _head(schema, batches)


def _head(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch.slice(0, SAMPLE_ROWS - rows))
        rows += held[-1].num_rows
        if rows >= SAMPLE_ROWS:
            break
    return pa.Table.from_batches(held, schema)


# --- texts ---------------------------------------------------------------------------------------


def _read_csv(item: Item) -> pa.Table:
    """The first records, each column as texts; a record that is not well-formed is skipped."""
    with open_text(item) as stream:
        start = stream.read(_SNIFFED_BYTES)
    dialect = Dialect(sniff_delimiter(start.removeprefix(BYTE_ORDER_MARK)))
    with open_text(item) as stream:
        names = read_header(stream, dialect, item.file, Limits())
    taken = tuple((name, name) for name in dict.fromkeys(names))
    whole = replace(item, mapping=Columns("", names, taken, dialect=dialect))
    schema = pa.schema([(name, pa.binary()) for name, _ in taken])
    found = _head(schema, (block.columns for block in csv_blocks(whole, Limits())))
    return pa.table({name: _texts(found.column(name)) for name, _ in taken})


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([valid_texts(chunk)[0] for chunk in column.chunks], pa.string())


def _read_sample(stream: Any) -> bytes:
    """Read the first bytes of a text, up to the end of their last line."""
    data = b""
    while len(data) < _SAMPLE_BYTES and (piece := stream.read(_SAMPLE_BYTES - len(data))):
        data += piece
    if len(data) < _SAMPLE_BYTES:
        return data
    return data[: data.rfind(b"\n") + 1]


def _sample_lines(file: InputFile, item: Item, type_name: str | None) -> Iterator[Sample]:
    with open_text(item) as stream:
        lines = _read_sample(stream).splitlines()[:SAMPLE_ROWS]
    rows = [_decode(line, number, file.name) for number, line in enumerate(lines, 1) if line.strip()]
    if not rows or not _is_record(rows[0]):
        if rows:
            table = as_arrow(rows)
            yield Sample(type_name or name_type(file.name), _origin(file, table), table)
        return
    by_type: defaultdict[tuple[bool, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        ends = {name: row[name] for name in ("from", "to") if name in row}
        by_type["edge" in row, str(row.get("edge", row.get("type")))].append(
            {**ends, **(row.get("data") or {})}
        )
    for (is_edge, name), members in by_type.items():
        table = as_arrow(members)
        yield Sample(name, _origin(file, table), table, is_edge=is_edge)


def _decode(line: bytes, number: int, file: str) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.MsgspecError as wrong:
        raise BadRequest(
            f"'{shorten_legibly(file)}' has no JSON object on line {number}: {wrong}", remedy="fix the line"
        ) from None
    return found


def _is_record(row: Mapping[str, Any]) -> bool:
    """Whether a line is a record that names its type, as an export has them."""
    return (row.keys() <= {"type", "data"} and "type" in row) or row.keys() <= {"edge", "from", "to", "data"}
