"""Exports of a graph behind a server: its lines, written to a file or a stream as they arrive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from omnigraph.client import changes, reads
from omnigraph.client.changes import FilterOptions
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


def write_export(
    transport: Transport,
    pinned: Pinned,
    output: ExportOutput,
    *,
    format: str,
    types: Sequence[str] | None,
    overwrite: bool,
) -> ExportResult:
    """Write the entities of a snapshot: a file is complete under its name, or not there at all."""
    request = ExportRequest(
        output, _require_lines(format), None if types is None else tuple(types), overwrite
    )
    place = resolve_output(request)
    if isinstance(place, Path) and not writes_one_file(request):
        raise BadRequest(
            f"'{output}' is a folder, and a server exports to one file or stream",
            remedy="name a file that ends with .ndjson, .jsonl or .gz",
        )
    snapshot_id, branch, version = pinned
    tally = LineTally()
    chunks = _receive(transport, types, branch, version)
    if isinstance(place, Path):
        with (
            new_file(place, overwrite=overwrite) as temporary,
            open_output(temporary, compressed=place.suffix == ".gz") as stream,
        ):
            _copy(chunks, stream, tally)
    else:
        _copy_to_stream(chunks, place, tally)
    file = place if isinstance(place, Path) else None
    return ExportResult(snapshot_id, branch, ExportFormat.NDJSON, file, tally.types(file))


@dataclass(frozen=True, slots=True)
class Baseline:
    """The entities of a branch that were written, and where its changes go on."""

    snapshot_id: str
    cursor: str
    rows: int
    bytes: int


def write_baseline(
    transport: Transport, branch: str, wanted: FilterOptions, stream: BinaryStream
) -> Baseline:
    """Write the entities of a branch to a stream; without the last line, which has the cursor."""
    last, rows, size = b"", 0, 0
    with transport.stream(changes.capture_baseline(branch, wanted)) as response:
        for chunk in response.iter_bytes(CHUNK):
            text = last + chunk
            end = text.rfind(b"\n", 0, -1) + 1
            stream.write(text[:end])
            rows, size, last = rows + text.count(b"\n", 0, end), size + end, text[end:]
    position = _decode_position(last)
    return Baseline(position["snapshot_commit_id"], position["resume_cursor"], rows, size)


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


def _receive(transport: Transport, types: Sequence[str] | None, branch: str, version: int) -> Iterator[bytes]:
    with transport.stream(reads.export_lines(types, {"branch": branch, "version": version})) as response:
        yield from response.iter_bytes(CHUNK)


def _copy(chunks: Iterator[bytes], stream: BinaryStream, tally: LineTally) -> None:
    for chunk in chunks:
        stream.write(chunk)
        tally.add(chunk)


def _copy_to_stream(chunks: Iterator[bytes], stream: BinaryStream, tally: LineTally) -> None:
    try:
        _copy(chunks, stream, tally)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as failure:
        raise StorageFailure(
            f"cannot write the output: {failure.strerror or failure}", kind="output"
        ) from failure


def _require_lines(format: str) -> ExportFormat:
    if format != ExportFormat.NDJSON:
        raise BadRequest(
            f"a server exports NDJSON, and not {format}", remedy="open the storage of the graph to write it"
        )
    return ExportFormat.NDJSON
