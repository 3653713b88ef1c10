"""Exports: the types of a graph at one moment, written to a stream, a file or a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from omnigraph.engine.export.export_job import export_in_parts
from omnigraph.engine.export.export_part import ExportPart, list_parts
from omnigraph.engine.export.export_request import (
    BinaryStream,
    ExportedType,
    ExportFormat,
    ExportRequest,
    ExportResult,
    open_output,
    resolve_output,
    writes_one_file,
)
from omnigraph.engine.export.row_writers import ANY_NDJSON, ENCODINGS
from omnigraph.engine.files.atomic_output import FOLDERS, new_file, new_folder
from omnigraph.engine.graph.export_marks import mark_export
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.errors import StorageFailure
from omnigraph.progress import Stage, stage


def export(graph: OpenGraph, snapshot: Snapshot, request: ExportRequest) -> ExportResult:
    """Write the types of a snapshot: a file or folder is complete under its name, or not there at all."""
    if request.engine is not None or request.format is ExportFormat.LANCE:
        return export_in_parts(graph, snapshot, request)
    place = resolve_output(request)
    parts = list_parts(graph, snapshot, request.types)
    rows = sum(part.rows for part in parts)
    with mark_export(graph), stage("export", tasks=len(parts), rows=rows) as exporting:
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
        self._encoding = ENCODINGS[request.format] if request.loadable else ANY_NDJSON
        self._exporting = exporting
        self._rows = self._bytes = 0

    def into(
        self, stream: BinaryStream, parts: Iterable[ExportPart], file: Path | None
    ) -> list[ExportedType]:
        return [self._write_part(stream, part, file) for part in parts]

    def into_folder(self, folder: Path, parts: Iterable[ExportPart], named: Path) -> list[ExportedType]:
        done = []
        for part in parts:
            inner = Path(FOLDERS[part.kind], f"{part.name}.{self._format}")
            (folder / inner).parent.mkdir(exist_ok=True)
            with open_output(folder / inner, compressed=False) as stream:
                done.append(self._write_part(stream, part, named / inner))
        return done

    def _write_part(self, stream: BinaryStream, part: ExportPart, file: Path | None) -> ExportedType:
        rows, size, reported = self._rows, self._bytes, self._rows
        for piece in self._encoding.encode(part, self._count_rows(part.batches(self._encoding.batch_bytes))):
            stream.write(piece)
            self._bytes += len(piece)
            self._exporting.advance(rows=self._rows - reported, size=len(piece))
            reported = self._rows
        self._exporting.advance(tasks=1)
        return ExportedType(part.kind, part.name, self._rows - rows, self._bytes - size, file)

    def _count_rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._rows += batch.num_rows
            yield batch


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
