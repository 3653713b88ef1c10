"""What is asked of an export, where it is written to, and what it did."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

from omnigraph.deferred_dataclass import dataclass
from omnigraph.display.text import format_total
from omnigraph.engine.files.output_paths import require_output
from omnigraph.engine.graph.layout import EntityKind
from omnigraph.engine.tasks.runner import Engine
from omnigraph.errors import BadRequest

FILE_ENDINGS = (".ndjson", ".jsonl", ".gz")
"""NDJSON whose name ends so is one file."""


class ExportFormat(StrEnum):
    """What an export is written as."""

    NDJSON = "ndjson"
    PARQUET = "parquet"
    CSV = "csv"
    LANCE = "lance"


ExportFormatName = Literal["ndjson", "parquet", "csv", "lance"]

_OTHER_ENDINGS = tuple(f".{one}" for one in ExportFormat if one is not ExportFormat.NDJSON)


class BinaryStream(Protocol):
    """Anything that takes bytes."""

    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> object: ...


ExportOutput = str | os.PathLike[str] | BinaryStream


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to export, and where to."""

    output: ExportOutput
    format: ExportFormat = ExportFormat.NDJSON
    types: tuple[str, ...] | None = None
    """Names such as `Person` or `node:Person`; None for all."""
    overwrite: bool = False
    engine: Callable[[], Engine | None] | None = field(default=None, repr=False, compare=False)
    """Who writes it in parts, each type in several files; asked for only when all else is known to be right.
    None for this process, and each type in one file."""
    loadable: bool = True
    """Whether records that are larger than a load takes refuse the export."""


@dataclass(frozen=True, slots=True)
class ExportedType:
    """What was written of one type."""

    kind: EntityKind
    name: str
    rows: int
    bytes: int
    """Before gzip, if that was asked for."""
    file: Path | None
    """Where it is; None in a stream."""


@dataclass(frozen=True, slots=True, repr=False)
class ExportResult:
    """What an export wrote."""

    snapshot: str
    """The id of the snapshot it shows."""
    branch: str
    format: ExportFormat
    output: Path | None
    """The file or folder; None for a stream."""
    types: tuple[ExportedType, ...]
    """Nodes first, then edges, each by name."""

    def __repr__(self) -> str:
        where = "a stream" if self.output is None else f"'{self.output}'"
        rows, types = format_total(self.rows, "row"), format_total(len(self.types), "type")
        return f"<ExportResult {rows} of {types} to {where} as {self.format}>"

    @property
    def rows(self) -> int:
        """All nodes and edges."""
        return sum(one.rows for one in self.types)

    @property
    def bytes(self) -> int:
        """All bytes, before gzip if that was asked for."""
        return sum(one.bytes for one in self.types)


def resolve_output(request: ExportRequest) -> Path | BinaryStream:
    """The path or stream that is meant; what cannot be meant is refused before anything is read."""
    output = request.output
    if not isinstance(output, str | os.PathLike):
        if request.format is not ExportFormat.NDJSON:
            raise BadRequest(
                f"{request.format} is a file for each type and cannot be one stream", remedy="name a folder"
            )
        return output
    place = Path(output)
    if not place.name:
        raise BadRequest(f"'{output}' is not a name for an export", remedy="name a file or a folder")
    require_output(output)
    if request.format is not ExportFormat.NDJSON and place.suffix in (f".{request.format}", *FILE_ENDINGS):
        raise BadRequest(
            f"{request.format} is written as a folder with a file for each type, and '{output}' names a file",
            remedy="name a folder",
        )
    if request.format is ExportFormat.NDJSON and place.suffix in _OTHER_ENDINGS:
        meant = place.suffix[1:]
        raise BadRequest(
            f"'{output}' is a name for {meant}, and the export is to be {request.format}",
            remedy=f"choose --format {meant} (`format`), which writes a folder, or another name",
        )
    return place


def writes_one_file(request: ExportRequest) -> bool:
    """Whether all types go to one file."""
    named = os.fspath(request.output) if isinstance(request.output, str | os.PathLike) else ""
    return request.format is ExportFormat.NDJSON and named.endswith(FILE_ENDINGS)


@contextmanager
def open_output(path: Path, *, compressed: bool) -> Iterator[BinaryStream]:
    """A file to write to from its start."""
    with path.open("wb") as file:
        if not compressed:
            yield file
            return
        # Neither name nor time of day in it: the same graph gives the same bytes.
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            yield packed
