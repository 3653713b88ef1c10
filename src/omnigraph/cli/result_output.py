"""Writes a query result in the chosen format, to a file or standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from io import BytesIO
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import typer

from omnigraph.cli.config_file import current_config
from omnigraph.display.grid import Layout
from omnigraph.display.text import NULL, escape_invisible, format_value
from omnigraph.engine.files.output_paths import require_output
from omnigraph.errors import BadRequest, StorageFailure
from omnigraph.lang.types import INTEGERS, Scalar, ValueType
from omnigraph.lang.values import Json, column_to_json
from omnigraph.query.result import Result, Row, describe_result, table_lines

TEXT_ROWS, ARROW_ROWS = 8192, 65_536
PLAIN = INTEGERS | {Scalar.STRING, Scalar.BOOL}
"""Single values whose text in Arrow is their text in JSON."""
NEEDS_QUOTES = f'[",\\r\\n]|^({NULL})?$'
"""Also a text that would read as null or make an empty line."""


class Format(StrEnum):
    """What a result is printed as."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    JSONL = "jsonl"
    CSV = "csv"
    KV = "kv"
    ARROW = "arrow"


# --- for people ----------------------------------------------------------------------------------


def table(result: Result, layout: Layout = Layout()) -> Iterator[str]:  # noqa: B008 - it is frozen
    """Columns side by side, as wide as the operator likes."""
    return (f"{line}\n" for line in table_lines(result, layout))


def kv(result: Result) -> Iterator[str]:
    """A block for each row, a line for each of its values."""
    yield f"{describe_result(result)}\n"
    names = [escape_invisible(name) for name in result.columns]
    number = count(1)
    for batch in result.batches():
        for row in zip(*map(column_to_json, batch.columns, result.types), strict=True):
            at = next(number)
            lines = [f"{name}: {format_value(value)}\n" for name, value in zip(names, row, strict=True)]
            yield "".join(["\n" if at > 1 else "", f"row {at}\n", *lines])


# --- for programs --------------------------------------------------------------------------------


def json(result: Result) -> Iterator[bytes]:
    """The envelope of the result, indented: what `Result.envelope()` gives, without building all of it."""
    columns = {"columns": result.columns} if result.columns else {}
    yield _indent_json({**result.about(), **columns}).removesuffix(b"\n}") + b',\n  "rows": ['
    for at, rows in enumerate(_batch_rows(result)):
        inner = _indent_json(rows).removeprefix(b"[").removesuffix(b"\n]")
        yield (b"," if at else b"") + inner.replace(b"\n", b"\n  ")
    yield b"\n  ]" if len(result) else b"]"
    if result.graph_commit_id is not None:
        yield b',\n  "graph_commit_id": ' + msgspec.json.encode(result.graph_commit_id)
    yield b"\n}\n"


def ndjson(result: Result) -> Iterator[bytes]:
    """A line about the result, then one for each row."""
    encoder = msgspec.json.Encoder()
    yield encoder.encode_lines([{"kind": "metadata", **result.about()}])
    for rows in _batch_rows(result):
        yield encoder.encode_lines(rows)


def csv(result: Result) -> Iterator[bytes]:
    """A line of names and one for each row; null is `null`, a list is JSON, and quotes stand where needed."""
    if not result.columns:
        return
    yield _csv_lines([_quote_texts(pa.array([name])) for name in result.columns])
    for batch in result.batches(TEXT_ROWS):
        yield _csv_lines([*map(_csv_cells, batch.columns, result.types)])


def arrow(result: Result) -> Iterator[bytes]:
    """A stream in Arrow's own form for exchange between processes."""
    sink = BytesIO()
    with pa.ipc.new_stream(sink, result.to_arrow().schema) as writer:
        for batch in result.batches(ARROW_ROWS):
            writer.write_batch(batch)
            yield _drain(sink)
    yield _drain(sink)


FORMATS: dict[Format, Callable[[Result], Iterator[str] | Iterator[bytes]]] = {
    Format.TABLE: table,
    Format.JSON: json,
    Format.NDJSON: ndjson,
    Format.JSONL: ndjson,
    Format.CSV: csv,
    Format.KV: kv,
    Format.ARROW: arrow,
}


def _batch_rows(result: Result) -> Iterator[list[Row]]:
    rows = iter(result)
    while taken := list(islice(rows, TEXT_ROWS)):
        yield taken


def _indent_json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2)


def _csv_cells(column: pa.Array, type_: ValueType) -> pa.Array:
    if type_.scalar in PLAIN and not type_.is_list:
        texts = column.cast(pa.string())
    else:
        texts = pa.array(
            [None if value is None else _csv_text(value) for value in column_to_json(column, type_)],
            pa.string(),
        )
    return (_quote_texts(texts)).fill_null(NULL)


def _csv_text(value: Json) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _quote_texts(texts: pa.Array) -> pa.Array:
    """The texts, with quotes around those that would read as something else without."""
    within = pc.replace_substring(texts, '"', '""')
    return pc.if_else(
        pc.match_substring_regex(texts, NEEDS_QUOTES),
        pc.binary_join_element_wise('"', within, '"', ""),
        texts,
    )


def _csv_lines(columns: list[pa.Array]) -> bytes:
    lines = pc.binary_join_element_wise(*columns, ",")
    return ("\n".join(lines.to_pylist()) + "\n").encode()


def _drain(sink: BytesIO) -> bytes:
    """What was written since the last time."""
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data


Form = Annotated[
    Format | None,
    typer.Option("--format", help="How to print what was found: as a table, if nothing else is configured."),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write it to this file.", metavar="FILE")]


def choose_format(
    form: Format | None, output: Path | None, *, as_json: bool, preferred: str | None = None
) -> Format:
    """Return the format of the options, else that of the alias, else that of the config file."""
    if output is not None:
        require_output(output)  # before the query runs
    chosen = Format.JSON if as_json else form or Format(preferred or current_config().defaults.output)
    if chosen is Format.ARROW and output is None and sys.stdout.isatty():
        raise BadRequest("the arrow format is not for a terminal", remedy="name a file with --output")
    return chosen


def write_result(found: Result, form: Format, file: Path | None = None) -> None:
    """Write a result piece by piece, to a file or to standard output."""
    if file is not None:
        require_output(file)
    try:
        with _open_output(file) as stream:
            for piece in _render_pieces(found, form):
                stream.write(_encode_piece(piece, file))
            stream.flush()
    except BrokenPipeError:
        raise
    except OSError as failure:
        goal = "the output" if file is None else f"'{file}'"
        raise StorageFailure(f"cannot write {goal}: {failure.strerror}", kind="output") from failure


def _render_pieces(found: Result, form: Format) -> Iterable[str] | Iterable[bytes]:
    if form is not Format.TABLE:
        return FORMATS[form](found)
    defaults = current_config().defaults
    return table(found, Layout(defaults.table_max_column_width, defaults.table_cell_layout == "wrap"))


def _open_output(file: Path | None) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdout.buffer) if file is None else file.open("wb")


def _encode_piece(piece: str | bytes, file: Path | None) -> bytes:
    """Text for a terminal is in the terminal's encoding, with escapes for what that does not have."""
    if isinstance(piece, bytes):
        return piece
    return piece.encode("utf-8" if file is not None else sys.stdout.encoding, "backslashreplace")
