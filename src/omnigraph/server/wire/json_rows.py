"""Rows of a result as JSON, made column by column: nothing is built for a single row or cell where Arrow can.

The bytes are those that msgspec makes of `Result.rows()`; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.lang.values import column_to_json
from omnigraph.query.result import Result

FEWEST = 256
"""Fewer rows are encoded one by one."""
BATCH = 65_536
_FIRST_PRINTED = 0x20
_WRITTEN_OTHERWISE = (0x22, 0x5C, 0x7F)
"""Bytes of texts that JSON writes in another way, or may, beside those before the first printed."""
_JSON = msgspec.json.Encoder()


def encode_rows(result: Result) -> Iterator[bytes | memoryview]:
    """Yield an array of objects, one for each row, in pieces; what they are made of is not copied again."""
    names = result.columns
    if len(result) < FEWEST or len(set(names)) < len(names):
        yield _JSON.encode(result.rows())
        return
    heads = [_JSON.encode(name).decode() for name in names]
    opening = b"["
    for batch in result.batches():
        for start in range(0, batch.num_rows, BATCH):
            yield opening
            yield _objects(batch.slice(start, BATCH), heads, result.types)
            opening = b","
    yield b"]"


@dataclass(frozen=True, slots=True)
class _Cells:
    """A column as JSON: what stands between two texts that are the same in every row."""

    values: pa.Array
    quote: str = ""


def _objects(batch: pa.RecordBatch, heads: list[str], types: tuple[ValueType, ...]) -> memoryview:
    """Return the objects of some rows, with commas between them."""
    parts: list[pa.Array | pa.Scalar] = []
    between = "{"
    for head, column, type_ in zip(heads, batch.columns, types, strict=True):
        cells = _cells(column, type_)
        parts += [_text(f"{between}{head}:{cells.quote}"), cells.values]
        between = f"{cells.quote},"
    rows = pc.binary_join_element_wise(*parts, _text(f"{between.removesuffix(',')}}},"), _text(""))
    # The texts of an array are one after another in memory; the last one has a comma too many.
    _, places, data = rows.buffers()
    ends = np.frombuffer(places, np.int64)
    return memoryview(data)[ends[rows.offset] : ends[rows.offset + len(rows)] - 1]


def _cells(column: pa.Array, type_: ValueType) -> _Cells:
    """Return each value of a column as JSON."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if (pa.types.is_string(kind) or pa.types.is_large_string(kind)) and _are_texts(column, type_):
        return _quoted(column.cast(pa.large_string()))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        cells = column.cast(pa.large_string())
        return _Cells(cells.fill_null("null") if cells.null_count else cells)
    values = column_to_json(column, type_)
    if type_.is_list or type_.is_text or type_.scalar is Scalar.VECTOR:
        return _Cells(_texts(_JSON.encode(value).decode() for value in values))
    # No comma stands within a number, a date or null.
    return _Cells(_texts(_JSON.encode(values)[1:-1].decode().split(",")))


def _quoted(texts: pa.Array) -> _Cells:
    if not texts.null_count:
        return _Cells(texts, '"')  # the quotes are parts of what stands between the columns
    quote = _text('"')
    return _Cells(pc.binary_join_element_wise(quote, texts, quote, _text("")).fill_null("null"))


def _are_texts(column: pa.Array, type_: ValueType) -> bool:
    """Whether texts stand in JSON as they are."""
    if not type_.is_text:
        return False
    _, places, data = column.buffers()
    if data is None or not len(column):
        return True
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    offsets = np.frombuffer(places, width)[column.offset :]
    found = np.frombuffer(data, np.uint8)[offsets[0] : offsets[len(column)]]
    return not len(found) or not (
        found.min() < _FIRST_PRINTED or any((found == byte).any() for byte in _WRITTEN_OTHERWISE)
    )


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())


def _texts(values: Iterable[str]) -> pa.Array:
    return pa.array(values, pa.large_string())
