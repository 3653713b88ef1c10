"""Arrow data of others, checked before anything computes with it.

Arrow trusts the lengths, offsets and indices in a file. Kernels that meet wrong ones read other memory, or
end the process. So every batch of a file is validated in full before its first use.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types as kinds


def validate_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch; raises `ArrowInvalid` when its data contradicts itself.

    A text that is not UTF-8 is the one flaw that passes: rows that hold one are refused one by one.
    """
    batch.validate()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            _validate(column)
        except pa.ArrowInvalid as wrong:
            raise pa.ArrowInvalid(f"column '{name}' is damaged: {wrong}") from wrong
    return batch


def _validate(column: pa.Array) -> None:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as wrong:
        if "UTF8" not in str(wrong):
            raise
        # The rest of the column has not been looked at; as bytes it is.
        as_bytes(column).validate(full=True)


def as_bytes(column: pa.Array) -> pa.Array:
    """Return the same buffers with bytes in place of texts."""
    if isinstance(column, pa.ExtensionArray):
        return as_bytes(column.storage)
    if isinstance(column, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(column.indices, as_bytes(column.dictionary), safe=True)
    return column.view(_bytes_type(column.type))


def _bytes_type(kind: pa.DataType) -> pa.DataType:
    if kinds.is_string(kind):
        return pa.binary()
    if kinds.is_large_string(kind):
        return pa.large_binary()
    if kinds.is_string_view(kind):
        return pa.binary_view()
    if kinds.is_fixed_size_list(kind):
        return pa.list_(_bytes_type(kind.value_type), kind.list_size)
    if kinds.is_list(kind):
        return pa.list_(_bytes_type(kind.value_type))
    if kinds.is_large_list(kind):
        return pa.large_list(_bytes_type(kind.value_type))
    return kind
