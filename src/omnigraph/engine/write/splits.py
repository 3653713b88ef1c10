"""A stream of lines, cut into splits that can be read one by one or elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from omnigraph.errors import ResourceLimitExceeded

DEFAULT_SIZE = 2**20
"""Small enough that what is made of a piece stays close to the processor."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a line may be."""

    line_bytes: int = 32 * 2**20
    structural_slots: int = 131_072
    """Braces, brackets, commas and colons outside of texts."""


@dataclass(frozen=True, slots=True)
class Split:
    """Whole lines of one file."""

    file: str
    """The file as the user named it."""
    data: bytes
    file_number: int = 0
    """Its place among the files of the load."""
    first_line: int = 1
    offset: int = 0
    """Where the data begins in the file, decompressed."""


def too_large(file: str, begin: int) -> str:
    """What to do about a line, told by its byte: a part of a file does not know how many come before."""
    return f"make the record smaller whose line begins at byte {begin} of '{file}'"


class Readable(Protocol):
    """Anything that gives bytes."""

    def read(self, size: int, /) -> bytes: ...


def splits(
    stream: Readable,
    file: str,
    file_number: int = 0,
    *,
    size: int = DEFAULT_SIZE,
    limits: Limits | None = None,
) -> Iterator[Split]:
    """The lines of a stream in pieces of about `size` bytes; no more than a piece and a line is in memory."""
    longest = (limits or Limits()).line_bytes
    line, offset, rest = 1, 0, b""
    while block := stream.read(size):
        cut = block.rfind(b"\n") + 1
        if not cut:
            rest += block
            if len(rest) > longest:
                raise ResourceLimitExceeded(
                    "graph_batch_line_bytes", limit=longest, actual=len(rest), remedy=too_large(file, offset)
                )
            continue
        data = rest + block[:cut]
        yield Split(file, data, file_number, line, offset)
        line, offset, rest = line + data.count(b"\n"), offset + len(data), block[cut:]
    if rest:
        yield Split(file, rest, file_number, line, offset)
