"""The bytes behind a column of texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.errors import InternalError


def text_buffers(keys: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """The bytes an array uses, which may be a slice of a larger one, and where its values begin in them."""
    kind = keys.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        width: np.dtype[Any] = np.dtype("<i4")
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        width = np.dtype("<i8")
    else:
        raise InternalError(f"an array of type {kind} holds no texts")
    if len(keys) == 0:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    _, places, values = keys.buffers()
    offsets = np.frombuffer(places, width, len(keys) + 1, keys.offset * width.itemsize).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(values, np.uint8, last - first, first) if last > first else np.empty(0, np.uint8)
    return data, offsets - first
