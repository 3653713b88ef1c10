"""Rows of a result as JSON, made column by column: nothing is built for a single row or cell where Arrow can.

The bytes are those that msgspec makes of `Result.rows()`; a test compares them.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.types import ValueType
from omnigraph.lang.values import column_to_json
from omnigraph.query.result import Result

FEWEST = 256
"""Fewer rows are encoded one by one."""
BATCH = 65_536
_FIRST_PRINTED = 0x20
_WRITTEN_OTHERWISE = (0x22, 0x5C, 0x7F)
"""Bytes of texts that JSON writes in another way, or may, beside those before the first printed."""
_JSON = msgspec.json.Encoder()


def encode_rows(result: Result) -> msgspec.Raw:
    """Return an array of objects, one for each row."""
    names = result.columns
    if len(result) < FEWEST or len(set(names)) < len(names):
        return msgspec.Raw(_JSON.encode(result.rows()))
    heads = [_JSON.encode(name).decode() for name in names]
    found = [
        _objects(batch.slice(start, BATCH), heads, result.types)
        for batch in result.batches()
        for start in range(0, batch.num_rows, BATCH)
    ]
    return msgspec.Raw(b"[" + b",".join(found) + b"]")


def _objects(batch: pa.RecordBatch, heads: list[str], types: tuple[ValueType, ...]) -> bytes:
    """Return the objects of some rows, with commas between them."""
    parts: list[pa.Array | pa.Scalar] = []
    for place, (head, column, type_) in enumerate(zip(heads, batch.columns, types, strict=True)):
        parts += [_text(f"{',' if place else '{'}{head}:"), _cells(column, type_)]
    rows = pc.binary_join_element_wise(*parts, _text("}"), _text(""))
    whole = pa.LargeListArray.from_arrays(pa.array([0, len(rows)], pa.int64()), rows)
    joined: bytes = pc.binary_join(whole, _text(","))[0].as_buffer().to_pybytes()
    return joined


def _cells(column: pa.Array, type_: ValueType) -> pa.Array:
    """Return each value of a column as JSON."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if (pa.types.is_string(kind) or pa.types.is_large_string(kind)) and _are_texts(column, type_):
        quote = _text('"')
        cells = pc.binary_join_element_wise(quote, column.cast(pa.large_string()), quote, _text(""))
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        cells = column.cast(pa.large_string())
    else:
        values = column_to_json(column, type_)
        return pa.array([_JSON.encode(value).decode() for value in values], pa.large_string())
    return cells.fill_null("null") if cells.null_count else cells


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
