"""Arrow streams that arrive in chunks: batches come out when all their bytes are there.

The reader of Arrow pulls bytes from a file and would wait in the middle of a batch. So whole messages are cut
off first, by the lengths in front of them, and the reader gets only those.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator

import pyarrow as pa

from omnigraph.errors import InternalError

_PREFIX = struct.Struct("<Ii")
"""The mark of a message, and how many bytes its metadata has."""
_MARK = 0xFFFFFFFF
_KIND, _BODY_BYTES = 1, 3
"""The fields of the metadata of a message: see `Message.fbs` of Arrow."""
_SCHEMA, _BATCH = 1, 3
"""Kinds of messages."""


class BatchFrames:
    """Batches of a stream of Arrow, from chunks that end anywhere; at most one batch is held."""

    def __init__(self) -> None:
        self._arrived = bytearray()
        self._whole = _Queue()
        self._reader: pa.RecordBatchStreamReader | None = None
        self._is_ended = False

    @property
    def schema(self) -> pa.Schema | None:
        """The schema, when it has arrived."""
        return None if self._reader is None else self._reader.schema

    def add(self, chunk: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the batches that a chunk completes."""
        self._arrived += chunk
        try:
            while (size := _message_size(self._arrived)) is not None and len(self._arrived) >= size:
                kind = _message_kind(self._arrived)
                self._whole.put(_copy(self._arrived, size))
                del self._arrived[:size]
                if kind == _SCHEMA:
                    self._reader = pa.ipc.open_stream(pa.PythonFile(self._whole, mode="r"))
                elif kind == _BATCH and self._reader is not None:
                    yield self._reader.read_next_batch()
                self._is_ended = self._is_ended or kind is None
        except (pa.ArrowException, struct.error, IndexError) as error:
            raise InternalError(
                f"the server's answer is not a result in Arrow: {error!r}",
                remedy="check that the address is that of an omnigraph server of this version",
            ) from error

    def finish(self) -> None:
        """Fail when the stream ended in the middle: its end is marked."""
        if not self._is_ended or self._arrived:
            raise InternalError("the result ended before its last batch", remedy="run the query again")


class _Queue(io.RawIOBase):
    """Messages as a file; what was read is gone."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = memoryview(b"")

    def put(self, message: bytes) -> None:
        self._bytes = memoryview(bytes(self._bytes) + message if self._bytes else message)

    def readable(self) -> bool:
        return True

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        size = min(len(target), len(self._bytes))
        target[:size] = self._bytes[:size]
        self._bytes = self._bytes[size:]
        return size


def _message_size(arrived: bytearray) -> int | None:
    """Return how many bytes the first message has; None while too little is there to know."""
    if len(arrived) < _PREFIX.size:
        return None
    mark, metadata = _PREFIX.unpack_from(arrived)
    if mark != _MARK or metadata < 0:
        raise pa.ArrowInvalid("a message does not begin with its mark")
    if len(arrived) < _PREFIX.size + metadata:
        return None
    at = _field_at(arrived, _BODY_BYTES) if metadata else None
    body = 0 if at is None else struct.unpack_from("<q", arrived, at)[0]
    if body < 0:
        raise pa.ArrowInvalid("a message has a negative size")
    return int(_PREFIX.size + metadata + body)


def _copy(arrived: bytearray, size: int) -> bytes:
    """Return the first bytes, copied once."""
    with memoryview(arrived) as view, view[:size] as first:
        return bytes(first)


def _message_kind(arrived: bytearray) -> int | None:
    """Return the kind of the first message; None for the mark of the end."""
    _, metadata = _PREFIX.unpack_from(arrived)
    at = _field_at(arrived, _KIND) if metadata else None
    return None if at is None else arrived[at]


def _field_at(arrived: bytearray, field: int) -> int | None:
    """Return where a field of the metadata, a table of FlatBuffers, is; None when it has its default."""
    start = _PREFIX.size
    table = start + struct.unpack_from("<I", arrived, start)[0]
    layout = table - struct.unpack_from("<i", arrived, table)[0]
    place = 4 + 2 * field
    if place >= struct.unpack_from("<H", arrived, layout)[0]:
        return None
    offset = struct.unpack_from("<H", arrived, layout + place)[0]
    return table + int(offset) if offset else None
