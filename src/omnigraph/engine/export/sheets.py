"""Rows as CSV and Parquet, one type in each file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from io import RawIOBase

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.export.lines import blob_texts
from omnigraph.engine.export.part import Part
from omnigraph.errors import BadRequest
from omnigraph.lang.types import INTEGERS, Scalar, Type
from omnigraph.lang.values import Json, json_column

_NULL = ""
_PLAIN = INTEGERS | {Scalar.STRING, Scalar.BOOL}
"""Single values whose text in Arrow is their text in JSON."""
_NEEDS_QUOTES = '[",\\r\\n]|^$'
"""Also the empty text, which would read as null."""


def require_distinct(part: Part) -> None:
    """An edge may have a property called `from` or `to`; two columns of one name help nobody."""
    name, times = Counter(part.schema.names).most_common(1)[0]
    if times > 1:
        raise BadRequest(
            f"edge type '{part.name}' has a property '{name}', which is also the name of an end",
            remedy="export it as ndjson",
        )


# --- CSV -----------------------------------------------------------------------------------------


def csv(part: Part, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """A line of names and one for each row; null is nothing at all, a list is JSON, quotes where needed."""
    yield _lines([_quoted(pa.array([name])) for name in part.schema.names])
    for batch in batches:
        yield _lines([*map(_cells, batch.columns, part.types)])


def _cells(column: pa.Array, type_: Type) -> pa.Array:
    if type_.scalar is Scalar.BLOB:
        texts = pa.array(blob_texts(column), pa.string())
    elif type_.scalar in _PLAIN and not type_.is_list:
        texts = column.cast(pa.string())
    else:
        values = json_column(column, type_)
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


def parquet(part: Part, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
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
