"""Rows as CSV and Parquet, one type in each file."""

from __future__ import annotations

from collections.abc import Iterator
from io import RawIOBase

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.export.export_part import ExportPart
from omnigraph.engine.export.ndjson_writer import blob_texts
from omnigraph.engine.rows.splits import Limits
from omnigraph.errors import ResourceLimitExceeded
from omnigraph.lang.types import INTEGERS, Scalar, ValueType
from omnigraph.lang.values import Json, column_to_json

_NULL = ""
_PLAIN = INTEGERS | {Scalar.STRING, Scalar.BOOL}
"""Single values whose text in Arrow is their text in JSON."""
_NEEDS_QUOTES = '[",\\r\\n]|^$'
"""Also the empty text, which would read as null."""


# --- CSV -----------------------------------------------------------------------------------------


def write_csv(part: ExportPart, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """A line of names and one for each row; null is nothing at all, a list is JSON, quotes where needed."""
    yield _lines([_quoted(pa.array([name])) for name in part.schema.names])
    for batch in batches:
        lines = _lines([*map(_cells, batch.columns, part.types)])
        _require_loadable(lines, batch, part)
        yield lines


def _require_loadable(lines: bytes, batch: pa.RecordBatch, part: ExportPart) -> None:
    """Refuse a record that no load would take, as NDJSON does; the ends of records are not all line ends."""
    limit = Limits().line_bytes
    if len(lines) <= limit:
        return
    for row in range(batch.num_rows):
        size = len(_lines([*map(_cells, batch.slice(row, 1).columns, part.types)]))
        if size > limit:
            raise ResourceLimitExceeded(
                f"csv_record_bytes of '{part.name}'",
                limit=limit,
                actual=size,
                remedy="export it as parquet, or leave the type out",
            )


def _cells(column: pa.Array, type_: ValueType) -> pa.Array:
    if type_.scalar is Scalar.BLOB:
        texts = pa.array(blob_texts(column), pa.string())
    elif type_.scalar in _PLAIN and not type_.is_list:
        texts = column.cast(pa.string())
    else:
        values = column_to_json(column, type_)
        texts = pa.array([None if value is None else _text(value) for value in values], pa.string())
    return _quoted(texts).fill_null(_NULL)


def _text(value: Json) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _quoted(texts: pa.Array) -> pa.Array:
    """The texts, with quotes around those that would read as something else without."""
    within = pc.replace_substring(texts, '"', '""')
    return pc.if_else(
        pc.match_substring_regex(texts, _NEEDS_QUOTES),
        pc.binary_join_element_wise('"', within, '"', ""),
        texts,
    )


def _lines(columns: list[pa.Array]) -> bytes:
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
