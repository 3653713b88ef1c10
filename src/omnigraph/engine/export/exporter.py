"""Exports: the types of a graph at one moment, written to a stream, a file or a folder."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

import pyarrow as pa

from omnigraph.engine.export.csv_parquet import write_csv, write_parquet
from omnigraph.engine.export.export_part import ExportPart, list_parts
from omnigraph.engine.export.ndjson_writer import write_ndjson
from omnigraph.engine.files.atomic_output import FOLDERS, new_file, new_folder
from omnigraph.engine.files.output_paths import require_output
from omnigraph.engine.graph.layout import EntityKind
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.tasks.engines import Engine
from omnigraph.errors import BadRequest, StorageFailure
from omnigraph.progress import Stage, stage

FILE_ENDINGS = (".ndjson", ".jsonl", ".gz")
"""NDJSON whose name ends so is one file."""

_TEXT_BYTES, _GROUP_BYTES = 4 * 2**20, 32 * 2**20


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

    encode: Callable[[ExportPart, Iterator[pa.RecordBatch]], Iterator[bytes]]
    batch_bytes: int


_ANY_NDJSON = Encoding(partial(write_ndjson, loadable=False), _TEXT_BYTES)
ENCODINGS = {
    ExportFormat.NDJSON: Encoding(write_ndjson, _TEXT_BYTES),
    ExportFormat.CSV: Encoding(write_csv, _TEXT_BYTES),
    ExportFormat.PARQUET: Encoding(write_parquet, _GROUP_BYTES),
}


def export(graph: OpenGraph, snapshot: Snapshot, request: ExportRequest) -> ExportResult:
    """Write the types of a snapshot: a file or folder is complete under its name, or not there at all."""
    if request.engine is not None or request.format is ExportFormat.LANCE:
        from omnigraph.engine.export.export_job import export_in_parts

        return export_in_parts(graph, snapshot, request)
    place = resolve_output(request)
    parts = list_parts(graph, snapshot, request.types)
    with stage("export", tasks=len(parts), rows=sum(part.rows for part in parts)) as exporting:
        done = _write_parts(_Writer(request, exporting), place, parts, request)
    output = place if isinstance(place, Path) else None
    return ExportResult(snapshot.id, snapshot.branch, request.format, output, tuple(done))


def _write_parts(
    writer: _Writer, place: Path | BinaryStream, parts: Sequence[ExportPart], request: ExportRequest
) -> list[ExportedType]:
    if not isinstance(place, Path):
        with _report_stream_error("the output"):
            done = writer.into(place, parts, None)
            place.flush()
        return done
    if writes_one_file(request):
        with (
            new_file(place, overwrite=request.overwrite) as temporary,
            open_output(temporary, compressed=place.suffix == ".gz") as stream,
        ):
            return writer.into(stream, parts, place)
    with new_folder(place, overwrite=request.overwrite) as temporary:
        return writer.into_folder(temporary, parts, place)


class _Writer:
    """Writes types one after the other and keeps count."""

    def __init__(self, request: ExportRequest, exporting: Stage) -> None:
        self._format = request.format
        self._encoding = ENCODINGS[request.format] if request.loadable else _ANY_NDJSON
        self._exporting = exporting
        self._rows = self._bytes = 0

    def into(
        self, stream: BinaryStream, parts: Iterable[ExportPart], file: Path | None
    ) -> list[ExportedType]:
        return [self._write(stream, part, file) for part in parts]

    def into_folder(self, folder: Path, parts: Iterable[ExportPart], named: Path) -> list[ExportedType]:
        done = []
        for part in parts:
            inner = Path(FOLDERS[part.kind], f"{part.name}.{self._format}")
            (folder / inner).parent.mkdir(exist_ok=True)
            with open_output(folder / inner, compressed=False) as stream:
                done.append(self._write(stream, part, named / inner))
        return done

    def _write(self, stream: BinaryStream, part: ExportPart, file: Path | None) -> ExportedType:
        rows, size, reported = self._rows, self._bytes, self._rows
        for piece in self._encoding.encode(part, self._counted(part.batches(self._encoding.batch_bytes))):
            stream.write(piece)
            self._bytes += len(piece)
            self._exporting.advance(rows=self._rows - reported, size=len(piece))
            reported = self._rows
        self._exporting.advance(tasks=1)
        return ExportedType(part.kind, part.name, self._rows - rows, self._bytes - size, file)

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._rows += batch.num_rows
            yield batch


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


@contextmanager
def _report_stream_error(goal: str) -> Iterator[None]:
    """A stream that fails; a reader who left is the caller's own matter."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as failure:
        raise StorageFailure(
            f"cannot write {goal}: {failure.strerror or failure}", kind="output"
        ) from failure
