"""Exports: the types of a graph at one moment, written to a stream, a file or a folder."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

import pyarrow as pa

from omnigraph.engine.export.lines import ndjson
from omnigraph.engine.export.part import Part, parts_of
from omnigraph.engine.export.place import FOLDERS, new_file, new_folder
from omnigraph.engine.export.sheets import csv, parquet, require_distinct
from omnigraph.engine.layout import EntityKind
from omnigraph.engine.load.run import Engine
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import BadRequest, StorageFailure
from omnigraph.progress import Stage, stage
from omnigraph.storage.location import Location

FILE_ENDINGS = (".ndjson", ".jsonl", ".gz")
"""NDJSON whose name ends so is one file."""

_TEXT_BYTES, _GROUP_BYTES = 4 * 2**20, 32 * 2**20


class ExportFormat(StrEnum):
    """What an export is written as."""

    NDJSON = "ndjson"
    PARQUET = "parquet"
    CSV = "csv"
    LANCE = "lance"


FormatName = Literal["ndjson", "parquet", "csv", "lance"]

_OTHER_ENDINGS = tuple(f".{one}" for one in ExportFormat if one is not ExportFormat.NDJSON)


class Stream(Protocol):
    """Anything that takes bytes."""

    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> object: ...


Output = str | os.PathLike[str] | Stream


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to export, and where to."""

    output: Output
    format: ExportFormat = ExportFormat.NDJSON
    types: tuple[str, ...] | None = None
    """Names such as `Person` or `node:Person`; None for all."""
    overwrite: bool = False
    engine: Callable[[], Engine | None] | None = field(default=None, repr=False, compare=False)
    """Who writes it in parts, each type in several files; asked for only when all else is known to be right.
    None for this process, and each type in one file."""


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
        return f"<ExportResult {self.rows} rows of {len(self.types)} types to {where} as {self.format}>"

    @property
    def rows(self) -> int:
        """All nodes and edges."""
        return sum(one.rows for one in self.types)

    @property
    def bytes(self) -> int:
        """All bytes, before gzip if that was asked for."""
        return sum(one.bytes for one in self.types)


@dataclass(frozen=True, slots=True)
class Encoding:
    """How rows become bytes, and how many bytes of them at a time."""

    encode: Callable[[Part, Iterator[pa.RecordBatch]], Iterator[bytes]]
    batch_bytes: int


ENCODINGS = {
    ExportFormat.NDJSON: Encoding(ndjson, _TEXT_BYTES),
    ExportFormat.CSV: Encoding(csv, _TEXT_BYTES),
    ExportFormat.PARQUET: Encoding(parquet, _GROUP_BYTES),
}


def export(graph: OpenGraph, snapshot: Snapshot, request: ExportRequest) -> ExportResult:
    """Write the types of a snapshot: a file or folder is complete under its name, or not there at all."""
    if request.engine is not None or request.format is ExportFormat.LANCE:
        from omnigraph.engine.export.job import export_in_parts

        return export_in_parts(graph, snapshot, request)
    place = place_of(graph, request)
    parts = parts_of(graph, snapshot, request.types)
    with stage("export", tasks=len(parts), rows=sum(part.rows for part in parts)) as exporting:
        done = _written(_Writer(request.format, exporting), place, parts, request)
    output = place if isinstance(place, Path) else None
    return ExportResult(snapshot.id, snapshot.branch, request.format, output, tuple(done))


def _written(
    writer: _Writer, place: Path | Stream, parts: Sequence[Part], request: ExportRequest
) -> list[ExportedType]:
    if not isinstance(place, Path):
        with _told("the output"):
            done = writer.into(place, parts, None)
            place.flush()
        return done
    if is_file(request):
        with (
            new_file(place, overwrite=request.overwrite) as temporary,
            opened_file(temporary, compressed=place.suffix == ".gz") as stream,
        ):
            return writer.into(stream, parts, place)
    with new_folder(place, overwrite=request.overwrite) as temporary:
        return writer.into_folder(temporary, parts, place)


class _Writer:
    """Writes types one after the other and keeps count."""

    def __init__(self, form: ExportFormat, exporting: Stage) -> None:
        self._format = form
        self._encoding = ENCODINGS[form]
        self._exporting = exporting
        self._rows = self._bytes = 0

    def into(self, stream: Stream, parts: Iterable[Part], file: Path | None) -> list[ExportedType]:
        return [self._write(stream, part, file) for part in parts]

    def into_folder(self, folder: Path, parts: Iterable[Part], named: Path) -> list[ExportedType]:
        done = []
        for part in parts:
            if self._format is not ExportFormat.NDJSON:
                require_distinct(part)
            inner = Path(FOLDERS[part.kind], f"{part.name}.{self._format}")
            (folder / inner).parent.mkdir(exist_ok=True)
            with opened_file(folder / inner, compressed=False) as stream:
                done.append(self._write(stream, part, named / inner))
        return done

    def _write(self, stream: Stream, part: Part, file: Path | None) -> ExportedType:
        rows, size, told = self._rows, self._bytes, self._rows
        for piece in self._encoding.encode(part, self._counted(part.batches(self._encoding.batch_bytes))):
            stream.write(piece)
            self._bytes += len(piece)
            self._exporting.advance(rows=self._rows - told, size=len(piece))
            told = self._rows
        self._exporting.advance(tasks=1)
        return ExportedType(part.kind, part.name, self._rows - rows, self._bytes - size, file)

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._rows += batch.num_rows
            yield batch


def place_of(graph: OpenGraph, request: ExportRequest) -> Path | Stream:
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
    if _is_inside(place, graph.root.layout.root):
        raise BadRequest(f"'{output}' is inside the graph", remedy="choose a place outside of it")
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


def _is_inside(place: Path, root: Location) -> bool:
    if not root.is_local:
        return False
    real = Path(os.path.realpath(place))
    return root.path.resolve() in (real, *real.parents)


def is_file(request: ExportRequest) -> bool:
    """Whether all types go to one file."""
    named = os.fspath(request.output) if isinstance(request.output, str | os.PathLike) else ""
    return request.format is ExportFormat.NDJSON and named.endswith(FILE_ENDINGS)


@contextmanager
def opened_file(path: Path, *, compressed: bool) -> Iterator[Stream]:
    """A file to write to from its start."""
    with path.open("wb") as file:
        if not compressed:
            yield file
            return
        # Neither name nor time of day in it: the same graph gives the same bytes.
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            yield packed


@contextmanager
def _told(goal: str) -> Iterator[None]:
    """A stream that fails; a reader who left is the caller's own matter."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as failure:
        raise StorageFailure(
            f"cannot write {goal}: {failure.strerror or failure}", kind="output"
        ) from failure
