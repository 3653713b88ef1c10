"""The formats a load reads, chosen by the file extension."""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePath
from typing import Literal

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
