"""Whole lines of a file that are read together, here or elsewhere, and how large a line may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


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


def oversized_line_remedy(file: str, begin: int) -> str:
    """Return the remedy for a line that is too large; by byte, as a split does not know its line number."""
    return f"make the record smaller whose line begins at byte {begin} of '{file}'"


class Readable(Protocol):
    """Anything that gives bytes."""

    def read(self, size: int, /) -> bytes: ...
