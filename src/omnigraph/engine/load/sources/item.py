"""What one task of a load reads, and the rows it finds there: plain values that travel to other processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from enum import StrEnum
from pathlib import PurePath
from typing import Any, Literal

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.rows.violations import Numbers, Violation
from omnigraph.lang.types import Scalar

Packing = Literal["gzip", "zstd"]


class Format(StrEnum):
    """What is in a file; the text is also how its name ends."""

    NDJSON = "ndjson"
    NDJSON_GZ = "ndjson.gz"
    NDJSON_ZST = "ndjson.zst"
    CSV = "csv"
    CSV_GZ = "csv.gz"
    CSV_ZST = "csv.zst"
    PARQUET = "parquet"
    ARROW = "arrow"
    LANCE = "lance"

    @property
    def packing(self) -> Packing | None:
        """How the file is packed."""
        return _PACKINGS.get(self.value.rpartition(".")[2])

    @property
    def is_records(self) -> bool:
        """Whether each record says its own type."""
        return self.value.startswith("ndjson")

    @property
    def is_csv(self) -> bool:
        """Whether it is a text of fields."""
        return self.value.startswith("csv")


_PACKINGS: dict[str, Packing] = {"gz": "gzip", "zst": "zstd"}
_OTHER_ENDINGS = {
    "jsonl": Format.NDJSON,
    "jsonl.gz": Format.NDJSON_GZ,
    "jsonl.zst": Format.NDJSON_ZST,
    "feather": Format.ARROW,
}
ENDINGS: dict[str, Format] = {
    **{f".{one}": one for one in Format},
    **{f".{k}": v for k, v in _OTHER_ENDINGS.items()},
}
"""By ending; upper and lower case do not matter."""


def format_of(name: str) -> Format | None:
    """The format of a file or folder of that name; None when the extension is unknown."""
    lower = name.lower()
    return next((found for ending, found in ENDINGS.items() if lower.endswith(ending)), None)


def lines_format(name: str) -> Format:
    """The format of a file with lines of records, whose name only shows its compression."""
    return format_of(f"x.ndjson{PurePath(name).suffix}") or Format.NDJSON


def strip_extension(name: str) -> str:
    """Return the name without its format extension."""
    lower = name.lower()
    ending = max((each for each in ENDINGS if lower.endswith(each)), key=len, default="")
    return name[: len(name) - len(ending)]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a CSV file is written."""

    delimiter: str = ","
    nulls: tuple[str, ...] = ()
    """Texts that mean null where they stand without quotes; an empty field always does."""
    multiline: bool = True
    """Whether a field in quotes may hold line ends; only a file without such can be cut into items."""
    has_names: bool = True
    """Whether the first record holds the names of the columns."""
    date_format: str | None = None
    """How dates and moments are written, as in `%d.%m.%Y`; None for ISO 8601."""
    guessed: tuple[str, ...] = ()
    """What of this was guessed, in words."""


@dataclass(frozen=True, slots=True)
class Columns:
    """How the columns of one file become rows of one type."""

    key: str
    """The table of the type."""
    header: tuple[str, ...]
    """All columns of the file, in their order."""
    taken: tuple[tuple[str, str], ...]
    """Pairs: what a column becomes (a property, or `id`, `src`, `dst`), and the column."""
    constants: tuple[tuple[str, Any], ...] = ()
    """Pairs: property, `src` or `dst`, and the JSON value that all rows have."""
    dialect: Dialect = field(default_factory=Dialect)
    casts: tuple[tuple[str, Scalar], ...] = ()
    """Pairs: column, and the type that its values are cast to first."""

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that are read, each once."""
        return tuple(dict.fromkeys(column for _, column in self.taken))


@dataclass(frozen=True, slots=True)
class Item:
    """A part of one file, or several small files."""

    file: str
    """As the user named it: a path or an `s3://` URI."""
    at: str
    """The same place, absolute."""
    file_number: int
    """Its place among the files of the load."""
    number: int
    """The place of the item among all items of the load."""
    format: Format
    begin: int
    """First byte, row group or fragment; lines count where they begin."""
    end: int
    """One past the last."""
    size: int
    """About how many bytes it has, for progress and balance."""
    mapping: Columns | None = None
    """How columns become properties; None where each record says what it is. Of lines that are rows of one
    type it names only that type."""
    first_row: int = 0
    """How many rows of the file come before the item, where that is known without reading."""
    rows: tuple[int, ...] = ()
    """How many rows each row group or fragment of the item has."""
    fragments: tuple[int, ...] = ()
    """The numbers of the fragments of a Lance table."""
    version: int | None = None
    """The version of a Lance table."""
    following: tuple[Item, ...] = ()
    """Small files that the same task reads after this one."""

    @property
    def files(self) -> tuple[Item, ...]:
        """The parts of the item, each of one file."""
        if not self.following:
            return (self,)
        own = self.size - sum(item.size for item in self.following)
        return (replace(self, size=own, following=()), *self.following)

    def place(self, line: int, before: int = 0) -> tuple[int | None, int]:
        """Row group and row in it, or None and the line, of a line counted from the beginning of the item.

        `before` is how many lines of the file come before the item. All are counted from 1.
        """
        if self.format is not Format.PARQUET:
            return None, before + line
        row = line
        for group, count in enumerate(self.rows):
            if row <= count:
                return self.begin + group + 1, row
            row -= count
        return self.end, row

    def placed(self, found: Sequence[Violation]) -> tuple[Violation, ...]:
        """Locate violations given by lines of the item, with the row group where the file has any."""
        if self.format is not Format.PARQUET:
            return tuple(found)
        return tuple(_locate_violation(self, one) for one in found)


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of an item as they were read."""

    columns: pa.RecordBatch
    lines: Numbers
    """Lines, or rows where there are no lines, counted from 1 at the beginning of the item."""
    positions: Numbers
    """What generated ids are made from."""
    read: int
    """How many lines were read for it."""
    violations: tuple[Violation, ...] = ()
    """What is wrong with lines that are no rows."""


def _locate_violation(item: Item, violation: Violation) -> Violation:
    if violation.line is None:
        return violation
    group, row = item.place(violation.line)
    return Violation(violation.file, row, violation.entity, violation.reason, group)
