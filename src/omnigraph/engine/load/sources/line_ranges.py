"""The lines of a file that begin in a range of its bytes, in blocks of whole lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.load.sources.item import Item
from omnigraph.engine.rows.lines import Limits, Readable, oversized_line_remedy
from omnigraph.errors import BadRequest, ResourceLimitExceeded
from omnigraph.storage.input_files import open_input

BLOCK = 4 * 2**20
"""So much text is read at once: little enough that what is made of it is still close to the processor."""

UNPACKED_RATIO, UNPACKED_FREELY = 2000, 2**30
"""A packed file may hold so many times its own size, and always so many bytes; gzip itself ends at 1032."""


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Whole lines."""

    offset: int
    """Where they begin in the file, decompressed."""
    data: bytes


@contextmanager
def open_item(item: Item) -> Iterator[BinaryIO]:
    """The file of an item; read errors name the file."""
    try:
        with open_input(item.at) as stream:
            yield stream
    except (OSError, pa.ArrowException) as failure:
        reason = getattr(failure, "strerror", None) or str(failure).partition("\n")[0]
        raise BadRequest(f"cannot read '{item.file}': {reason}", remedy="check the file") from failure


@contextmanager
def open_text(item: Item) -> Iterator[Readable]:
    """The text of a file that is read as a whole, unpacked."""
    with open_item(item) as stream:
        packing = item.format.packing
        if packing is None:
            yield stream
            return
        with pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), packing) as unpacked:
            yield _Unpacked(unpacked, item)


class _Unpacked:
    """Unpacked text that may not be out of all proportion to its file."""

    def __init__(self, stream: Readable, item: Item) -> None:
        self._stream = stream
        self._item = item
        self._bytes = 0

    def read(self, size: int, /) -> bytes:
        piece = self._stream.read(size)
        self._bytes += len(piece)
        ratio = self._bytes // max(1, self._item.size)
        if self._bytes > UNPACKED_FREELY and ratio > UNPACKED_RATIO:
            raise ResourceLimitExceeded(
                "load_unpacked_ratio",
                limit=UNPACKED_RATIO,
                actual=ratio,
                remedy=f"unpack '{self._item.file}' first if it really holds that much",
            )
        return piece


def line_blocks(item: Item, limits: Limits, *, size: int = BLOCK) -> Iterator[TextBlock]:
    """The lines that begin in the range of an item."""
    if item.format.packing is not None:
        with open_text(item) as stream:
            yield from _cut_blocks(stream, item.file, 0, None, limits, size)
        return
    with open_item(item) as stream:
        start = _first_line(stream, item, size)
        if start < item.end:
            stream.seek(start)
            yield from _cut_blocks(stream, item.file, start, item.end, limits, size)


def _first_line(stream: BinaryIO, item: Item, size: int) -> int:
    """Where the first line begins that begins in the range; the end of it when none does."""
    if not item.begin:
        return 0
    # The byte before shows whether a line begins just where the range does.
    at = item.begin - 1
    stream.seek(at)
    while at < item.end:
        # The rest of a line is short as a rule.
        piece = stream.read(min(size, 2**16))
        if not piece:
            break
        found = piece.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(piece)
    return item.end


def _cut_blocks(
    stream: Readable, file: str, offset: int, end: int | None, limits: Limits, size: int
) -> Iterator[TextBlock]:
    """Blocks that end with a line end, the last one perhaps with the file.

    Lines that begin at `end` or later are another's; so the last line may reach beyond it.
    """
    rest: list[bytes] = []
    held = 0
    while True:
        begun = offset + held
        if end is not None and begun >= end and not held:
            return
        piece = stream.read(_bytes_to_read(size, end, begun))
        if not piece:
            break
        cut = _last_end(piece, begun, end)
        if not cut:
            rest.append(piece)
            held += len(piece)
            if held > limits.line_bytes:
                raise ResourceLimitExceeded(
                    "graph_batch_line_bytes",
                    limit=limits.line_bytes,
                    actual=held,
                    remedy=oversized_line_remedy(file, offset),
                )
            continue
        data = b"".join([*rest, memoryview(piece)[:cut]])
        yield TextBlock(offset, data)
        offset += len(data)
        if end is not None and offset >= end:
            return
        rest, held = [piece[cut:]], len(piece) - cut
    if held:
        yield TextBlock(offset, b"".join(rest))


def _bytes_to_read(size: int, end: int | None, begun: int) -> int:
    """How much to read: up to the end of the range, and little more for the rest of a line."""
    return size if end is None else min(size, max(end - begun, 2**16))


def _last_end(piece: bytes, begun: int, end: int | None) -> int:
    """Where the last whole line of a piece that belongs to the range ends in it; 0 when none does."""
    if end is None or begun + len(piece) < end:
        return piece.rfind(b"\n") + 1
    # The line that holds the last byte of the range is the last one.
    after = piece.find(b"\n", max(end - 1 - begun, 0)) + 1
    return after or piece.rfind(b"\n", 0, max(end - begun, 0)) + 1
