"""An item of a load from its bytes to checked rows; what a task does, in this process or in another.

Small files of records are read together, because parsing one costs more than its few lines do: their lines
are parsed as one text. Rows and violations are then located in their own files, and generated ids follow from
the place in the own file, so that the result does not depend on what was read together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import END_NAMES, ID, TableType
from omnigraph.engine.load.sources.arrow_columns import convert_column, plain, plain_type
from omnigraph.engine.load.sources.casts import cast_column
from omnigraph.engine.load.sources.coercion import nan_to_null, whole_floats
from omnigraph.engine.load.sources.columnar import arrow_blocks, lance_blocks, parquet_blocks
from omnigraph.engine.load.sources.csv_records import csv_blocks
from omnigraph.engine.load.sources.csv_sniff import parse_moments
from omnigraph.engine.load.sources.item import Block, Columns, Format, Item
from omnigraph.engine.load.sources.line_ranges import BLOCK, line_blocks
from omnigraph.engine.load.sources.text_columns import NOT_UTF8, parse_texts, valid_texts
from omnigraph.engine.rows.blobs import read_blobs
from omnigraph.engine.rows.ids import IdSource
from omnigraph.engine.rows.json_columns import ParsedColumn, parse_column
from omnigraph.engine.rows.lines import Limits, Split
from omnigraph.engine.rows.patch_rows import patch_columns
from omnigraph.engine.rows.row_builder import (
    FIELDS,
    OWN_ID,
    CheckedRows,
    Fault,
    LoadReader,
    Origin,
    SplitRows,
    build_rows_from_columns,
)
from omnigraph.engine.rows.violations import Flags, Numbers, Violation
from omnigraph.errors import InternalError
from omnigraph.lang.schema.catalog import Property
from omnigraph.lang.types import Scalar
from omnigraph.lang.values import FORMS, format_number
from omnigraph.storage.input_files import is_in_bucket


def build_block_rows(block: Block, item: Item, reader: LoadReader) -> SplitRows:
    """The rows of a block that are fine by themselves, and what is wrong with the others."""
    assert item.mapping is not None
    shaping = _BlockBuilder(block, item.mapping, item.format.is_csv, reader, reader.targets[item.mapping.key])
    cells = {declared.name: shaping.cells(declared) for declared in shaping.target.owner.properties.values()}
    faults: list[Fault] = []
    ends = {end: shaping.end(end, faults) for end in END_NAMES if shaping.target.kind == "edge"}
    present = shaping.present() if reader.patches else None
    given = shaping.given_ids(faults)
    origin = Origin(item.file, item.file_number, block.lines, block.positions)
    shaped = build_rows_from_columns(cells, ends, given, origin, shaping.target, reader.ids, faults, present)
    shaped = replace(shaped, nulls=shaping.count_nulls(shaped.rows))
    violations = sorted([*block.violations, *shaped.violations], key=lambda wrong: wrong.line or 0)
    return SplitRows((shaped,), item.placed(violations), block.read)


@dataclass(frozen=True, slots=True)
class _BlockBuilder:
    block: Block
    columns: Columns
    is_csv: bool
    reader: LoadReader
    target: TableType

    @property
    def count(self) -> int:
        return len(self.block.lines)

    def column(self, becomes: str) -> pa.Array | None:
        """The column that becomes a property, an end or the id."""
        name = dict(self.columns.taken).get(becomes)
        return None if name is None else self.block.columns.column(name)

    def present(self) -> Flags:
        """Which columns of a patch the file gives: the same for all rows."""
        given = {becomes for becomes, _ in (*self.columns.taken, *self.columns.constants)}
        row = [name in given for name in patch_columns(self.target)]
        return np.broadcast_to(np.array(row, np.bool_), (self.count, len(row)))

    def count_nulls(self, rows: pa.RecordBatch) -> dict[str, int]:
        """How many values are missing in each column that becomes a property."""
        properties = self.target.owner.properties
        counts = {name: rows.column(name).null_count for name, _ in self.columns.taken if name in properties}
        return {name: count for name, count in counts.items() if count}

    def cells(self, declared: Property) -> ParsedColumn:
        constants = dict(self.columns.constants)
        if declared.name in constants:
            return self._repeat_constant(declared, constants[declared.name])
        column = self.column(declared.name)
        if column is None:
            return self._converted(pa.nulls(self.count), declared)
        cast = dict(self.columns.casts).get(dict(self.columns.taken)[declared.name])
        if cast is not None:
            done = cast_column(column, declared.name, cast)
            cells = self._converted(done.array, declared)
            return ParsedColumn(cells.array, {**cells.faults, **done.faults})
        return self._from_texts(column, declared) if self.is_csv else self._converted(column, declared)

    def _converted(self, column: pa.Array, declared: Property) -> ParsedColumn:
        field = self.target.schema.field(declared.name)
        return convert_column(column, declared.name, declared.type, field, self.reader.external)

    def _repeat_constant(self, declared: Property, value: object) -> ParsedColumn:
        if declared.type.scalar is Scalar.BLOB:
            field = self.target.schema.field(declared.name)
            one = read_blobs([value], declared.name, field, self.reader.external)
        else:
            one = parse_column([value], declared.name, declared.type)
        array = one.array.take(pa.array(np.zeros(self.count, np.int64)))
        return ParsedColumn(
            array, {row: reason for reason in one.faults.values() for row in range(self.count)}
        )

    def _from_texts(self, column: pa.Array, declared: Property) -> ParsedColumn:
        name, type_ = declared.name, declared.type
        texts, wrong = valid_texts(column)
        date_format = self.columns.dialect.date_format
        if type_.scalar is Scalar.BLOB:
            cells = read_blobs(texts.to_pylist(), name, self.target.schema.field(name), self.reader.external)
        elif date_format is not None and type_.scalar in (Scalar.DATE, Scalar.DATETIME) and not type_.is_list:
            cells = self._formatted_dates(texts, declared, date_format)
        else:
            cells = parse_texts(texts, name, type_)
        if wrong is None:
            return cells
        reason = f"strict property '{name}' expects {FORMS[type_.scalar].name}, got {NOT_UTF8}"
        return ParsedColumn(
            cells.array, {**cells.faults, **dict.fromkeys(np.flatnonzero(wrong).tolist(), reason)}
        )

    def _formatted_dates(self, texts: pa.Array, declared: Property, date_format: str) -> ParsedColumn:
        """Dates in the format of their file; ISO 8601 is read as well."""
        moments = parse_moments(texts, date_format)
        others = pc.if_else(moments.is_valid(), pa.scalar(None, pa.string()), texts)
        usual = parse_texts(others, declared.name, declared.type)
        cells = self._converted(moments, declared)
        return ParsedColumn(pc.coalesce(cells.array, usual.array), {**cells.faults, **usual.faults})

    def end(self, end: str, faults: list[Fault]) -> pa.Array:
        """The ids of the nodes at one end of edges."""
        constants = dict(self.columns.constants)
        if end in constants:
            return pa.repeat(pa.scalar(constants[end], pa.string()), self.count)
        column = self.column(end)
        if column is None and self.reader.patches:
            return pa.nulls(self.count, pa.string())
        assert column is not None, "a file of edges without ends was planned"
        texts = self._read_ids(
            column, f"graph batch field '{END_NAMES[end]}' must be a string", FIELDS, faults
        )
        if texts.null_count:
            known = {row for row, _, _ in faults}
            missing = np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False)).tolist()
            reason = f"graph batch field '{END_NAMES[end]}' must be a string, got null"
            faults += ((row, FIELDS, reason) for row in missing if row not in known)
        return texts

    def given_ids(self, faults: list[Fault]) -> pa.Array | None:
        """The ids that rows bring along; None when none does."""
        column = self.column(ID)
        if column is None:
            return None
        rule = f"input entity of type '{self.target.name}' field 'id' must be a string"
        texts = self._read_ids(column, rule, OWN_ID, faults)
        return None if texts.null_count == len(texts) else texts

    def _read_ids(self, column: pa.Array, rule: str, place: int, faults: list[Fault]) -> pa.Array:
        values = plain(column)
        if plain_type(values.type) in (pa.string(), pa.large_binary()):
            texts, wrong = valid_texts(values)
            if wrong is not None:
                faults += ((row, place, f"{rule}, got {NOT_UTF8}") for row in np.flatnonzero(wrong).tolist())
            return texts
        if kinds.is_floating(values.type):
            return self._number_ids(values, rule, place, faults)
        return values.cast(pa.string())

    def _number_ids(self, values: pa.Array, rule: str, place: int, faults: list[Fault]) -> pa.Array:
        """Ids in floats, which frames have where an integer is missing."""
        values = nan_to_null(values)
        whole = whole_floats(values, "id", Scalar.I64)
        faults += ((row, place, f"{rule}, got {format_number(values[row].as_py())}") for row in whole.faults)
        return whole.array.cast(pa.string())


def read_item(item: Item, reader: LoadReader) -> Iterator[SplitRows]:
    """The rows of an item, block by block; lines count from 1 at its beginning."""
    if item.format.is_records:
        yield from _read_records(item, reader)
        return
    block: Block | None = None
    for block in column_blocks(item, reader.limits):
        yield build_block_rows(block, item, reader)
    if block is None:
        # A file that names its type makes it a part of the load, also without rows.
        yield build_block_rows(_empty_block(item), item, reader)


def _read_records(item: Item, reader: LoadReader) -> Iterator[SplitRows]:
    line = 1
    for block in line_blocks(item, reader.limits):
        table = None if item.mapping is None else item.mapping.key
        split = Split(item.file, block.data, item.file_number, line, block.offset, table)
        found = reader.read(split)
        line += found.lines
        yield found


def _empty_block(item: Item) -> Block:
    assert item.mapping is not None
    kind, none = pa.binary() if item.format.is_csv else pa.null(), np.zeros(0, np.int64)
    names = list(item.mapping.needed)
    return Block(pa.RecordBatch.from_arrays([pa.array([], kind)] * len(names), names=names), none, none, 0)


def column_blocks(item: Item, limits: Limits | None = None) -> Iterator[Block]:
    """The rows of an item as they are in its file."""
    if item.format.is_csv:
        return csv_blocks(item, limits or Limits())
    if item.begin == item.end and item.format is not Format.ARROW:
        return iter(())
    match item.format:
        case Format.PARQUET:
            return parquet_blocks(item)
        case Format.ARROW:
            return arrow_blocks(item)
        case Format.LANCE:
            return lance_blocks(item)
    raise InternalError(f"nothing reads '{item.format}'")


SMALL = 64 * 2**10
"""Files up to this size are read together. No line of one can exceed a limit, whose message names a place."""
_AT_ONCE = 16
"""So many files of a bucket are fetched at the same time, because each takes a while to answer."""


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows of one item, or of several small files that were read together."""

    items: tuple[Item, ...]
    rows: SplitRows
    lines: tuple[int, ...]
    """How many lines were read of each item."""


def read_files(items: Sequence[Item], reader: LoadReader) -> Iterator[FileRows]:
    """The rows of items in their order; lines count from 1 at the beginning of each item."""
    for run in _join_small_files(items):
        if len(run) == 1:
            yield from (FileRows(run, rows, (rows.lines,)) for rows in read_item(run[0], reader))
        else:
            yield _read_together(run, reader)


def _join_small_files(items: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    """Small files that follow each other, up to the size of a block; other items one by one."""
    held: list[Item] = []
    size = 0
    for item in items:
        if held and not (_is_small(item) and size + item.size <= BLOCK and _is_next(held[-1], item)):
            yield tuple(held)
            held, size = [], 0
        held.append(item)
        size += item.size
        if not _is_small(item):
            yield tuple(held)
            held, size = [], 0
    if held:
        yield tuple(held)


def _is_small(item: Item) -> bool:
    return item.format is Format.NDJSON and item.mapping is None and not item.begin and item.size <= SMALL


def _is_next(held: Item, item: Item) -> bool:
    """Whether an item begins another file: only the last part of a file ends where the file does."""
    return held.file_number != item.file_number


def _read_together(run: tuple[Item, ...], reader: LoadReader) -> FileRows:
    texts = _read_texts(run, reader.limits)
    lines = [text.count(b"\n") for text in texts]
    places = _Places(
        run,
        np.array([item.file_number for item in run], np.int64),
        np.array([0, *accumulate(lines)][:-1], np.int64),
        np.array([0, *accumulate(map(len, texts))][:-1], np.int64),
    )
    located = replace(reader, ids=MergedIds(reader.ids, places.numbers, places.offsets))
    rows = located.read(Split(run[0].file, b"".join(texts)))
    return FileRows(run, places.locate(rows), tuple(lines))


def _read_texts(run: Sequence[Item], limits: Limits) -> list[bytes]:
    """The text of each file, up to the end of its last line."""

    def read(item: Item) -> bytes:
        text = b"".join(block.data for block in line_blocks(item, limits))
        return text if text.endswith(b"\n") or not text else text + b"\n"

    if not is_in_bucket(run[0].at):
        return [read(item) for item in run]
    with ThreadPoolExecutor(min(_AT_ONCE, len(run))) as threads:
        return list(threads.map(read, run))


@dataclass(frozen=True, slots=True)
class MergedIds:
    """Generates the ids that rows of merged files have in their own files."""

    ids_of: IdSource
    numbers: Numbers
    """The numbers of the files."""
    offsets: Numbers
    """Where each of them begins in the merged text."""

    def ids(self, file_number: int | Numbers, positions: Numbers) -> pa.Array:
        """The ids of records by where they stand in the merged text."""
        place = np.searchsorted(self.offsets, positions, side="right") - 1
        return self.ids_of.ids(self.numbers[place], positions - self.offsets[place])


@dataclass(frozen=True, slots=True)
class _Places:
    """Where files stand in their merged text."""

    items: tuple[Item, ...]
    numbers: Numbers
    lines: Numbers
    """How many lines come before each file."""
    offsets: Numbers

    def locate(self, rows: SplitRows) -> SplitRows:
        """The same rows by file and line."""
        return SplitRows(
            tuple(map(self._locate_rows, rows.shaped)),
            tuple(map(self._locate_violation, rows.violations)),
            rows.lines,
        )

    def _locate_rows(self, shaped: CheckedRows) -> CheckedRows:
        place = self._file_numbers(shaped.lines)
        return replace(
            shaped, lines=shaped.lines - self.lines[place], file_number=self.numbers[place], violations=()
        )

    def _locate_violation(self, one: Violation) -> Violation:
        assert one.line is not None, "a line of a merged text has a number"
        place = int(self._file_numbers(np.array([one.line]))[0])
        return replace(one, file=self.items[place].file).moved(-int(self.lines[place]))

    def _file_numbers(self, lines: Numbers) -> Numbers:
        found: Numbers = np.searchsorted(self.lines, lines, side="left") - 1
        return found
