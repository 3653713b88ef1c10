"""Exports of a graph behind a server: its lines, written to a file or a stream as they arrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from omnigraph.client import changes, reads
from omnigraph.client.calls import Call
from omnigraph.client.changes import ChangeFilterOptions
from omnigraph.client.transport import Transport
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.export.export_request import (
    BinaryStream,
    ExportedType,
    ExportFormat,
    ExportOutput,
    ExportRequest,
    ExportResult,
    open_output,
    resolve_output,
    writes_one_file,
)
from omnigraph.engine.files.atomic_output import new_file
from omnigraph.engine.graph.layout import EntityKind
from omnigraph.errors import BadRequest, InternalError, StorageFailure

CHUNK = 1 << 20
_KINDS = {b'{"type":': "node", b'{"edge":': "edge"}

Pinned = tuple[str, str, int]
"""The id of a snapshot, its branch and its version."""


@contextmanager
def open_export(
    pinned: Pinned, output: ExportOutput, *, format: str, types: Sequence[str] | None, overwrite: bool
) -> Iterator[ExportSink]:
    """Open what an export is written to: a file is complete under its name, or not there at all."""
    wanted = None if types is None else tuple(types)
    request = ExportRequest(output, _require_lines(format), wanted, overwrite)
    place = resolve_output(request)
    if not isinstance(place, Path):
        yield ExportSink(pinned, wanted, CallerStream(place), None)
        return
    if not writes_one_file(request):
        raise BadRequest(
            f"'{output}' is a folder, and a server exports to one file or stream",
            remedy="name a file that ends with .ndjson, .jsonl or .gz",
        )
    with (
        new_file(place, overwrite=overwrite) as temporary,
        open_output(temporary, compressed=place.suffix == ".gz") as stream,
    ):
        yield ExportSink(pinned, wanted, stream, place)


class ExportSink:
    """Where the chunks of an export go, and what was written."""

    def __init__(
        self, pinned: Pinned, types: tuple[str, ...] | None, stream: BinaryStream, file: Path | None
    ) -> None:
        self._pinned = pinned
        self._types = types
        self._stream = stream
        self._file = file
        self._tally = LineTally()

    @property
    def call(self) -> Call[None]:
        """The request whose chunks are written."""
        _, branch, version = self._pinned
        return reads.export_lines(self._types, {"branch": branch, "version": version})

    def write(self, chunk: bytes) -> None:
        """Write the next chunk."""
        self._stream.write(chunk)
        self._tally.add(chunk)

    def finish(self) -> ExportResult:
        """Return what was written; raises when the last line is incomplete."""
        self._stream.flush()
        snapshot_id, branch, _ = self._pinned
        types = self._tally.types(self._file)
        return ExportResult(snapshot_id, branch, ExportFormat.NDJSON, self._file, types)


@dataclass(frozen=True, slots=True)
class CallerStream:
    """A stream that the caller opened, with its failures as typed errors."""

    stream: BinaryStream

    def write(self, data: bytes, /) -> None:
        """Write bytes."""
        with _report_output_errors():
            self.stream.write(data)

    def flush(self) -> None:
        """Flush what was written."""
        with _report_output_errors():
            self.stream.flush()


@contextmanager
def _report_output_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as failure:
        raise StorageFailure(
            f"cannot write the output: {failure.strerror or failure}", kind="output"
        ) from failure


def write_export(
    transport: Transport,
    pinned: Pinned,
    output: ExportOutput,
    *,
    format: str,
    types: Sequence[str] | None,
    overwrite: bool,
) -> ExportResult:
    """Write the entities of a snapshot to a file or a stream."""
    with (
        open_export(pinned, output, format=format, types=types, overwrite=overwrite) as sink,
        transport.stream(sink.call) as response,
    ):
        for chunk in response.iter_bytes(CHUNK):
            sink.write(chunk)
        return sink.finish()


@dataclass(frozen=True, slots=True)
class Baseline:
    """The entities of a branch that were written, and where its changes go on."""

    snapshot_id: str
    cursor: str
    rows: int
    bytes: int


class BaselineLines:
    """Chunks of a baseline without its last line, which has the cursor and not an entity."""

    def __init__(self) -> None:
        self._last = b""
        self._rows = 0
        self._bytes = 0

    def add(self, chunk: bytes) -> bytes:
        """Return the lines that are known to be entities."""
        text = self._last + chunk
        end = text.rfind(b"\n", 0, -1) + 1
        self._rows += text.count(b"\n", 0, end)
        self._bytes += end
        self._last = text[end:]
        return text[:end]

    def finish(self) -> Baseline:
        """Return what was written, and the cursor."""
        position = _decode_position(self._last)
        return Baseline(position["snapshot_commit_id"], position["resume_cursor"], self._rows, self._bytes)


def write_baseline(
    transport: Transport, branch: str, wanted: ChangeFilterOptions, stream: BinaryStream
) -> Baseline:
    """Write the entities of a branch to a stream; without the last line, which has the cursor."""
    lines = BaselineLines()
    with transport.stream(changes.capture_baseline(branch, wanted)) as response:
        for chunk in response.iter_bytes(CHUNK):
            stream.write(lines.add(chunk))
    return lines.finish()


def _decode_position(line: bytes) -> dict[str, str]:
    """Return the position in the last line; one that is missing means that entities are missing, too."""
    try:
        found: dict[str, dict[str, str]] = msgspec.json.decode(line)
        return found["baseline"]
    except (msgspec.DecodeError, LookupError, TypeError) as error:
        raise InternalError("the baseline ended before its cursor", remedy="capture it again") from error


class LineTally:
    """Counts lines and bytes of each type as chunks go by."""

    def __init__(self) -> None:
        self._rest = b""
        self._rows: Counter[bytes] = Counter()
        self._bytes: Counter[bytes] = Counter()

    def add(self, chunk: bytes) -> None:
        """Count the lines that end in a chunk."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            head = line.partition(b",")[0]
            self._rows[head] += 1
            self._bytes[head] += len(line) + 1

    def types(self, file: Path | None) -> tuple[ExportedType, ...]:
        """Return what was counted; a line that has not ended means that something is missing."""
        if self._rest:
            raise InternalError("the export ended in the middle of a line", remedy="export again")
        return tuple(
            ExportedType(*_type_of(head), self._rows[head], self._bytes[head], file) for head in self._rows
        )


def _type_of(head: bytes) -> tuple[EntityKind, str]:
    kind = _KINDS[head[:8]]
    return ("node" if kind == "node" else "edge"), head[8:].strip(b'"').decode()


def _require_lines(format: str) -> ExportFormat:
    if format != ExportFormat.NDJSON:
        raise BadRequest(
            f"a server exports NDJSON, and not {format}", remedy="open the storage of the graph to write it"
        )
    return ExportFormat.NDJSON
