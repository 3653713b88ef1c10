"""Rows as strict NDJSON: what a load reads back to the very same rows."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import RawIOBase

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.export.export_part import ExportPart
from omnigraph.engine.export.export_request import ExportFormat
from omnigraph.engine.rows.blobs import MANAGED
from omnigraph.engine.rows.lines import Limits
from omnigraph.errors import InvalidValue, ResourceLimitExceeded
from omnigraph.lang.types import FLOATS, INTEGERS, Scalar, ValueType
from omnigraph.lang.values import Json, column_to_json

_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_STRUCTURE = (b"{", b"}", b"[", b"]", b":", b",")
_REMEDY = "export it as parquet, or leave the type out"


def write_ndjson(
    part: ExportPart, batches: Iterator[pa.RecordBatch], *, loadable: bool = True
) -> Iterator[bytes]:
    """A line for each row, with its id and all of its properties, null ones too.

    A line that no load would take is refused, unless the lines are not meant for one.
    """
    encoder = msgspec.json.Encoder()
    names = [name for place, name in enumerate(part.schema.names) if not _is_end(part, place)]
    for batch in batches:
        columns = [_json_column(part, batch, place) for place in range(batch.num_columns)]
        data = zip(*(column for place, column in enumerate(columns) if not _is_end(part, place)), strict=True)
        records: list[dict[str, object]]
        if part.kind == "node":
            records = [{"type": part.name, "data": dict(zip(names, row, strict=True))} for row in data]
        else:
            records = [
                {"edge": part.name, "from": source, "to": target, "data": dict(zip(names, row, strict=True))}
                for source, target, row in zip(columns[1], columns[2], data, strict=True)
            ]
        lines = encoder.encode_lines(records)
        if loadable:
            _require_loadable_lines(lines, part)
        yield lines


def _is_end(part: ExportPart, place: int) -> bool:
    """Whether a column is an end of an edge, which stands outside of `data`."""
    return part.kind == "edge" and place in (1, 2)


def _json_column(part: ExportPart, batch: pa.RecordBatch, place: int) -> Sequence[Json]:
    column, type_ = batch.column(place), part.types[place]
    _require_finite(column, type_, f"{part.name}.{part.schema.field(place).name}")
    return blob_texts(column) if type_.scalar is Scalar.BLOB else column_to_json(column, type_)


def blob_texts(column: pa.Array) -> list[str | None]:
    """Blobs as a load reads them."""
    return [None if data is None else MANAGED + b64encode(data).decode() for data in column.to_pylist()]


def _require_finite(column: pa.Array, type_: ValueType, name: str) -> None:
    """Refuse numbers that JSON has no form for; nothing written here makes any, but others may have."""
    if type_.scalar not in FLOATS and type_.scalar is not Scalar.VECTOR:
        return
    numbers = column.flatten() if type_.is_list or type_.scalar is Scalar.VECTOR else column
    if pc.all(pc.is_finite(numbers)).as_py() is False:
        raise InvalidValue(
            f"'{name}' has a number that is not finite, which JSON cannot hold", remedy=_REMEDY
        )


def _require_loadable_lines(lines: bytes, part: ExportPart) -> None:
    """Refuse a line that no load would take: an export that cannot be read back must not look like one."""
    limits = Limits()
    for line in lines.split(b"\n"):
        if len(line) <= limits.structural_slots:
            continue
        if len(line) > limits.line_bytes:
            raise ResourceLimitExceeded(
                f"graph_batch_line_bytes of '{part.name}'",
                limit=limits.line_bytes,
                actual=len(line),
                remedy=_REMEDY,
            )
        bare = _TEXTS.sub(b"", line)
        slots = sum(map(bare.count, _STRUCTURE))
        if slots > limits.structural_slots:
            raise ResourceLimitExceeded(
                f"graph_batch_json_structural_slots of '{part.name}'",
                limit=limits.structural_slots,
                actual=slots,
                remedy=_REMEDY,
            )


_NULL = ""
_PLAIN = INTEGERS | {Scalar.STRING, Scalar.BOOL}
"""Single values whose text in Arrow is their text in JSON."""
_NEEDS_QUOTES = '[",\\r\\n]|^$'
"""Also the empty text, which would read as null."""


# --- CSV -----------------------------------------------------------------------------------------


def write_csv(part: ExportPart, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """A line of names and one for each row; null is nothing at all, a list is JSON, quotes where needed."""
    yield _join_lines([_quote_texts(pa.array([name])) for name in part.schema.names])
    for batch in batches:
        lines = _join_lines([*map(_text_column, batch.columns, part.types)])
        _require_loadable_records(lines, batch, part)
        yield lines


def _require_loadable_records(lines: bytes, batch: pa.RecordBatch, part: ExportPart) -> None:
    """Refuse a record that no load would take, as NDJSON does; the ends of records are not all line ends."""
    limit = Limits().line_bytes
    if len(lines) <= limit:
        return
    for row in range(batch.num_rows):
        size = len(_join_lines([*map(_text_column, batch.slice(row, 1).columns, part.types)]))
        if size > limit:
            raise ResourceLimitExceeded(
                f"csv_record_bytes of '{part.name}'",
                limit=limit,
                actual=size,
                remedy="export it as parquet, or leave the type out",
            )


def _text_column(column: pa.Array, type_: ValueType) -> pa.Array:
    if type_.scalar is Scalar.BLOB:
        texts = pa.array(blob_texts(column), pa.string())
    elif type_.scalar in _PLAIN and not type_.is_list:
        texts = column.cast(pa.string())
    else:
        values = column_to_json(column, type_)
        texts = pa.array([None if value is None else _cell_text(value) for value in values], pa.string())
    return _quote_texts(texts).fill_null(_NULL)


def _cell_text(value: Json) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _quote_texts(texts: pa.Array) -> pa.Array:
    """The texts, with quotes around those that would read as something else without."""
    within = pc.replace_substring(texts, '"', '""')
    return pc.if_else(
        pc.match_substring_regex(texts, _NEEDS_QUOTES),
        pc.binary_join_element_wise('"', within, '"', ""),
        texts,
    )


def _join_lines(columns: list[pa.Array]) -> bytes:
    joined = pc.binary_join_element_wise(*columns, ",")
    return ("\n".join(joined.to_pylist()) + "\n").encode()


# --- Parquet -------------------------------------------------------------------------------------


def write_parquet(part: ExportPart, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """A Parquet file with a row group for each batch; Arrow's types are kept beside Parquet's."""
    from pyarrow import parquet as pq

    sink = _Sink()
    with pq.ParquetWriter(sink, part.schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_table(pa.Table.from_batches([batch]))
            yield sink.drained()
    yield sink.drained()


class _Sink(RawIOBase):
    """Keeps what is written until it is fetched; Parquet notes positions, so those count on."""

    def __init__(self) -> None:
        super().__init__()
        self._pending: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: object, /) -> int:
        piece = bytes(memoryview(data))  # type: ignore[arg-type]  # whatever gives bytes, says the base class
        self._pending.append(piece)
        self._position += len(piece)
        return len(piece)

    def drained(self) -> bytes:
        pending, self._pending = self._pending, []
        return b"".join(pending)


_TEXT_BYTES, _GROUP_BYTES = 4 * 2**20, 32 * 2**20


@dataclass(frozen=True, slots=True)
class Encoding:
    """How rows become bytes, and how many bytes of them at a time."""

    encode: Callable[[ExportPart, Iterator[pa.RecordBatch]], Iterator[bytes]]
    batch_bytes: int


ANY_NDJSON = Encoding(partial(write_ndjson, loadable=False), _TEXT_BYTES)
ENCODINGS = {
    ExportFormat.NDJSON: Encoding(write_ndjson, _TEXT_BYTES),
    ExportFormat.CSV: Encoding(write_csv, _TEXT_BYTES),
    ExportFormat.PARQUET: Encoding(write_parquet, _GROUP_BYTES),
}
