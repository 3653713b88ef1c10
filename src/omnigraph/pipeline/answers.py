"""Encodes the answers of tasks for the driver: pickles that can contain nothing but values.

An executor or a Connect server is another machine, and Spark keeps some answers in files. So an answer is
read by an unpickler that knows Python's own containers, frozen dataclasses and enumerations of this package,
numbers of NumPy and Arrow data as IPC; any other name, and so any call, is refused before it is looked up.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import InternalError

_OURS = "omnigraph."


def pack_answer(answer: object) -> bytes:
    """Return an answer as bytes that `unpack_answer` takes."""
    sink = io.BytesIO()
    _Packer(sink, protocol=pickle.HIGHEST_PROTOCOL).dump(answer)
    return sink.getvalue()


def unpack_answer(packed: Any) -> Any:
    """Return the answer of a task; whatever the bytes are, no code runs that they choose."""
    try:
        return _Unpacker(io.BytesIO(packed)).load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError) as wrong:
        raise InternalError(f"the answer of a task cannot be read: {wrong}") from wrong


class _Packer(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, np.ndarray | np.generic):
            return _unpack_numbers, (value.dtype.str, value.shape, value.tobytes(), value.ndim == 0)
        if isinstance(value, pa.Schema):
            return _unpack_schema, (value.serialize().to_pybytes(),)
        if isinstance(value, pa.Table):
            return _unpack_table, (_serialize_table(value),)
        if isinstance(value, pa.RecordBatch):
            return _unpack_batch, (_serialize_table(pa.Table.from_batches([value])),)
        if isinstance(value, pa.ChunkedArray):
            return _unpack_chunks, (_serialize_table(pa.table({"values": value})),)
        if isinstance(value, pa.Array):
            return _unpack_array, (_serialize_table(pa.table({"values": value})),)
        return NotImplemented


class _Unpacker(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if found := _NAMES.get(f"{module}.{name}"):
            return found
        # Only what is imported already: a name never makes a module run.
        found = getattr(sys.modules.get(module), name, None) if module.startswith(_OURS) else None
        if isinstance(found, type) and (_is_frozen(found) or issubclass(found, Enum)):
            return found
        raise pickle.UnpicklingError(f"it names '{module}.{name}'")


def _is_frozen(kind: type[Any]) -> bool:
    return is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]


def _serialize_table(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _unpack_numbers(kind: str, shape: tuple[int, ...], data: bytes, is_scalar: bool) -> Any:
    found = np.frombuffer(data, np.dtype(kind)).reshape(shape)
    return found[()] if is_scalar else found.copy()


def _unpack_schema(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))


def _unpack_table(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()


def _unpack_batch(data: bytes) -> pa.RecordBatch:
    table = _unpack_table(data)
    return table.combine_chunks().to_batches()[0] if table.num_rows else _empty_batch(table.schema)


def _empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


def _unpack_chunks(data: bytes) -> pa.ChunkedArray:
    return _unpack_table(data).column(0)


def _unpack_array(data: bytes) -> pa.Array:
    found = _unpack_chunks(data).combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    _unpack_numbers,
    _unpack_schema,
    _unpack_table,
    _unpack_batch,
    _unpack_chunks,
    _unpack_array,
)
_NAMES: Mapping[str, Any] = {
    "collections.Counter": Counter,
    **{f"{__name__}.{function.__name__}": function for function in _FUNCTIONS},
}
