"""An export in parts: each task writes the rows of a span of ids, so that any number of them can be at work.

The parts of a type, in order, hold its rows in the order of their ids, whichever task wrote them. Where one
file is asked for, the parts are put together at the end.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.export.export_part import ExportPart, Span, list_parts
from omnigraph.engine.export.export_request import (
    ExportedType,
    ExportFormat,
    ExportRequest,
    ExportResult,
    open_output,
    resolve_output,
    writes_one_file,
)
from omnigraph.engine.export.row_writers import ENCODINGS
from omnigraph.engine.files.atomic_output import FOLDERS, LANCE, PART, new_file, new_folder
from omnigraph.engine.graph.export_marks import mark_export
from omnigraph.engine.graph.open_graph import AtVersion, OpenGraph
from omnigraph.engine.graph.root import shared_root
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.tasks.runner import LocalRunner, Runner
from omnigraph.errors import BadRequest
from omnigraph.progress import stage
from omnigraph.storage.location import Location
from omnigraph.storage.pieces import Piece, Pieces, gather_pieces, write_pieces

ROWS_PER_PART = 500_000
_PIECE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class ExportJob:
    """What the tasks of one export have in common; it travels to other processes."""

    uri: str
    branch: str
    version: int
    format: ExportFormat
    folder: str
    """Where the parts are written."""

    def part(self, key: str) -> ExportPart:
        """A type at the moment that is exported."""
        graph = _graph_at(self.uri, self.folder)
        return list_parts(graph, graph.snapshot(AtVersion(self.branch, self.version)), [key])[0]

    def table(self, part: ExportPart) -> Location:
        """Where a type is written as a table of Lance."""
        return Location(f"{self.folder}/{FOLDERS[part.kind]}/{part.name}{LANCE}")

    def folder_of(self, part: ExportPart) -> Path:
        """Where the parts of a type are written."""
        return Path(self.folder, FOLDERS[part.kind], part.name)


@dataclass(frozen=True, slots=True)
class Slice:
    """What one task writes."""

    key: str
    number: int
    span: Span


@dataclass(frozen=True, slots=True)
class WrittenSlice:
    """What a task wrote."""

    slice: Slice
    rows: int
    bytes: int
    file: str = ""
    """Its name, which no other run of the task has."""
    pieces: tuple[Piece, ...] = ()


def export_in_parts(graph: OpenGraph, snapshot: Snapshot, request: ExportRequest) -> ExportResult:
    """Write the types of a snapshot by tasks; complete under its name, or not there at all."""
    place = resolve_output(request)
    if not isinstance(place, Path):
        raise BadRequest("an export in parts cannot be one stream", remedy="name a file or a folder")
    parts = list_parts(graph, snapshot, request.types)
    export = _Export(graph, snapshot, request, parts)
    if writes_one_file(request):
        with mark_export(graph), new_file(place, overwrite=request.overwrite) as temporary:
            types = export.into_file(temporary, place)
    else:
        with mark_export(graph), new_folder(place, overwrite=request.overwrite) as temporary:
            types = export.into_folder(temporary, place)
    return ExportResult(snapshot.id, snapshot.branch, request.format, place, types)


class _Export:
    """One export on its way."""

    def __init__(
        self, graph: OpenGraph, snapshot: Snapshot, request: ExportRequest, parts: Sequence[ExportPart]
    ) -> None:
        self._graph = graph
        self._snapshot = snapshot
        self._request = request
        self._parts = parts

    def into_file(self, temporary: Path, named: Path) -> tuple[ExportedType, ...]:
        """All types in one file."""
        with (
            # Beside the file, because the runner of the tasks must reach it, too.
            tempfile.TemporaryDirectory(prefix=f".{named.name}-", dir=named.parent) as folder,
            open_output(temporary, compressed=named.suffix == ".gz") as stream,
        ):
            job = self._build_job(Path(folder))
            done = self._write_slices(job)
            for part in self._parts:
                for one in done[part.key]:
                    with (job.folder_of(part) / one.file).open("rb") as file:
                        shutil.copyfileobj(file, stream)
        return tuple(_summarize_type(part, done[part.key], named) for part in self._parts)

    def into_folder(self, temporary: Path, named: Path) -> tuple[ExportedType, ...]:
        """Each type as a folder of parts, or as a table of Lance."""
        job = self._build_job(temporary)
        done = self._write_slices(job)
        is_lance = self._request.format is ExportFormat.LANCE
        for part in self._parts:
            if is_lance:
                pieces = tuple(piece for one in done[part.key] for piece in one.pieces)
                gather_pieces(self._graph.root.tables.access, Pieces(job.table(part), part.schema, pieces))
            else:
                _number_files(job.folder_of(part), job.format, done[part.key])
        ending = LANCE if is_lance else ""
        return tuple(
            _summarize_type(part, done[part.key], named / FOLDERS[part.kind] / f"{part.name}{ending}")
            for part in self._parts
        )

    def _build_job(self, folder: Path) -> ExportJob:
        for kind in {part.kind for part in self._parts}:
            (folder / FOLDERS[kind]).mkdir()
        snapshot = self._snapshot
        return ExportJob(
            self._graph.root.uri,
            snapshot.branch,
            snapshot.version,
            self._request.format,
            str(folder.absolute()),
        )

    def _write_slices(self, job: ExportJob) -> dict[str, list[WrittenSlice]]:
        """What the tasks wrote of each type, in the order of the ids."""
        slices = [
            Slice(part.key, number, span)
            for part in self._parts
            for number, span in enumerate(part.spans(ROWS_PER_PART))
        ]
        total = sum(part.rows for part in self._parts)
        found: dict[str, list[WrittenSlice]] = defaultdict(list)
        engine = self._request.engine() if self._request.engine is not None else None
        runner: Runner = LocalRunner() if engine is None else engine.runner
        with stage("export", rows=total) as exporting:
            for done in runner.each("export", slices, partial(write_slice, job)):
                found[done.slice.key].append(done)
                exporting.advance(rows=done.rows, size=done.bytes)
        return {key: sorted(parts, key=lambda one: one.slice.number) for key, parts in found.items()}


def _number_files(folder: Path, form: ExportFormat, done: Sequence[WrittenSlice]) -> None:
    """Name the files of a type by their order, and remove what tasks left that ran more than once."""
    names = {one.file: f"{PART}{one.slice.number:05}.{form}" for one in done}
    for file in list(folder.iterdir()):
        if file.name in names:
            file.rename(folder / names[file.name])
        else:
            file.unlink()


def _summarize_type(part: ExportPart, done: Sequence[WrittenSlice], file: Path) -> ExportedType:
    rows, size = sum(one.rows for one in done), sum(one.bytes for one in done)
    return ExportedType(part.kind, part.name, rows, size, file)


# --- the tasks -----------------------------------------------------------------------------------


def write_slice(job: ExportJob, chosen: Slice) -> WrittenSlice:
    """Write the rows of one span of ids."""
    part = job.part(chosen.key)
    return _as_pieces(job, chosen, part) if job.format is ExportFormat.LANCE else _as_file(job, chosen, part)


def _as_file(job: ExportJob, chosen: Slice, part: ExportPart) -> WrittenSlice:
    encoding = ENCODINGS[job.format]
    counted = _CountingBatches(part.batches(encoding.batch_bytes, chosen.span))
    folder, name = job.folder_of(part), uuid.uuid4().hex
    folder.mkdir(exist_ok=True)
    with (folder / name).open("xb") as stream:
        size = sum(stream.write(piece) for piece in encoding.encode(part, counted))
    return WrittenSlice(chosen, counted.rows, size, name)


def _as_pieces(job: ExportJob, chosen: Slice, part: ExportPart) -> WrittenSlice:
    access, place = _graph_at(job.uri, job.folder).root.tables.access, job.table(part)
    written: list[Piece] = []
    for batch in part.batches(_PIECE_BYTES, chosen.span):
        written += write_pieces(access, place, pa.Table.from_batches([batch]))
    return WrittenSlice(
        chosen, sum(one.rows for one in written), sum(one.bytes for one in written), pieces=tuple(written)
    )


class _CountingBatches(Iterator[pa.RecordBatch]):
    """Batches, and how many rows they had so far."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.rows = 0

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        self.rows += batch.num_rows
        return batch


@lru_cache(maxsize=4)
def _graph_at(uri: str, folder: str) -> OpenGraph:
    return OpenGraph.open(shared_root(uri, folder), read_only=True)
