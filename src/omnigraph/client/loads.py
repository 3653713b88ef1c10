"""Rows and files as bodies of loads: rows of one type as Arrow, few lines as NDJSON, other files as files."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TypedDict

import pyarrow as pa

from omnigraph.client import decode
from omnigraph.client.archives import TAR, pack_files
from omnigraph.client.calls import ARROW, NDJSON, Call, decode_json, query_of
from omnigraph.client.served_options import refuse_actor, refuse_engine, refuse_given, require_known
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.load.request import LoadResult
from omnigraph.engine.load.sources.input_files import InputFile, find_inputs
from omnigraph.engine.load.sources.item import Format
from omnigraph.engine.load.sources.pipes import ReceivedPipe, receive_pipes
from omnigraph.engine.load.spool import as_arrow, is_frame, is_table, require_paths
from omnigraph.engine.rows.violations import Violation
from omnigraph.engine.tasks.runner import EngineName
from omnigraph.errors import BadRequest, KeyConflict, LoadRejected, ResourceLimitExceeded
from omnigraph.storage.input_files import open_input

LINE_BYTES = 32 * 2**20
"""The most bytes of NDJSON that a server takes as they are; more travel as files."""
WHOLE_BYTES = 4 * 2**20
"""Rows up to this size are sent as one message, larger ones batch by batch."""
BATCH_ROWS = 65_536
BODY = "request body"
"""What a server calls the lines that it was sent."""


class RemoteLoadOptions(TypedDict, total=False):
    """The options of a load besides its mode: those of `Graph.load`."""

    type: str | None
    branch: str
    from_: str | None
    actor: str | None
    mapping: str | os.PathLike[str] | Mapping[str, Any] | None
    engine: EngineName
    skip_bad: bool
    rejects: str | os.PathLike[str] | None
    dry_run: bool
    message: str | None


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """Where the rows of a load go."""

    mode: str
    branch: str
    from_: str | None
    message: str | None = None

    @property
    def query(self) -> list[tuple[str, str]]:
        """The parameters of a request."""
        from_ = None if self.from_ is None else parse_branch_name(self.from_)
        branch = parse_branch_name(self.branch)
        return query_of(mode=self.mode, branch=branch, from_=from_, message=self.message)


@dataclass(frozen=True, slots=True)
class LineRange:
    """The lines of one file among all that were sent."""

    file: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class PreparedLoad:
    """A load that can be sent, and the files its lines are from."""

    call: Call[LoadResult]
    ranges: tuple[LineRange, ...] = ()

    def locate(self, refused: LoadRejected | KeyConflict) -> LoadRejected | KeyConflict:
        """Return an error that names files and their lines, as a local load does."""
        located = [self._locate(one) for one in refused.violations]
        if isinstance(refused, LoadRejected):
            return LoadRejected(located, total=refused.total, counts=refused.counts, remedy=refused.remedy)
        refused.violations = tuple(located)
        return refused

    def _locate(self, found: Violation) -> Violation:
        for one in self.ranges:
            if found.file == BODY and found.line is not None and 0 <= found.line - one.first < one.count:
                return replace(found.moved(1 - one.first), file=one.file)
        return found


def prepare_load(data: Any, mode: str, options: RemoteLoadOptions) -> PreparedLoad:
    """Return the load of rows or files; they are read here, and sent when the call is."""
    require_known(RemoteLoadOptions, options)
    refuse_actor(options.get("actor"))
    refuse_engine(options.get("engine", "auto"))
    refuse_given(
        mapping=options.get("mapping"),
        skip_bad=options.get("skip_bad"),
        rejects=options.get("rejects"),
        dry_run=options.get("dry_run"),
    )
    type_name = options.get("type")
    target = LoadTarget(mode, options.get("branch", MAIN), options.get("from_"), options.get("message"))
    if is_frame(data):
        raise BadRequest(
            "a DataFrame of Spark cannot be sent to a server",
            remedy="open the storage of the graph to load it",
        )
    if is_table(data):
        return PreparedLoad(_arrow_call(data, type_name, target))
    if type_name is not None and isinstance(data, list | tuple) and not data:
        return PreparedLoad(_lines_call(b"", target))
    return _files_call(data, type_name, target)


def _arrow_call(data: Any, type_name: str | None, target: LoadTarget) -> Call[LoadResult]:
    if type_name is None:
        raise BadRequest(
            "rows in memory do not tell which type they have", remedy='name it, as in `type="Person"`'
        )
    query = [*query_of(type=type_name), *target.query]
    rows = as_arrow(data)
    is_small = isinstance(rows, pa.Table) and rows.nbytes <= WHOLE_BYTES
    batches = _encode_batches(rows)
    # One message with a length can be sent again when there was no connection.
    body = b"".join(batches) if is_small else batches
    return Call(
        "POST",
        "load/arrow",
        decode_json(decode.load),
        query,
        {"Content-Type": ARROW},
        body,
        is_safe=False,
    )


def _encode_batches(rows: pa.Table | pa.RecordBatchReader) -> Iterator[bytes]:
    """Yield the stream format of Arrow, a batch at a time."""
    sink = io.BytesIO()
    batches = rows.to_batches(max_chunksize=BATCH_ROWS) if isinstance(rows, pa.Table) else rows
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield _drain(sink)
    yield _drain(sink)


def _drain(sink: io.BytesIO) -> bytes:
    written = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return written


def _files_call(data: Any, type_name: str | None, target: LoadTarget) -> PreparedLoad:
    paths = require_paths(data, type_name)
    if type_name is not None:
        raise BadRequest(
            "a server takes rows of a type, and files that tell their types themselves",
            remedy="read the file as a frame and load that, or leave `type` out",
        )
    with receive_pipes(paths) as inputs:
        files = find_inputs(inputs)
        if not _are_few_lines(files):
            _require_sendable(inputs, files)
            return PreparedLoad(_archive_call(files, target))
        texts = _read_all(files)
    ranges, first = [], 1
    for file, text in zip(files, texts, strict=True):
        ranges.append(LineRange(file.file, first, text.count(b"\n")))
        first += text.count(b"\n")
    return PreparedLoad(_lines_call(b"".join(texts), target), tuple(ranges))


def _are_few_lines(files: Sequence[InputFile]) -> bool:
    """Whether files are lines that a server takes as they are."""
    plain = all(file.format.is_records and file.format.packing is None for file in files)
    return plain and sum(file.size for file in files) <= LINE_BYTES


def _require_sendable(inputs: Sequence[str | os.PathLike[str]], files: Sequence[InputFile]) -> None:
    for one in inputs:
        if isinstance(one, ReceivedPipe):
            raise BadRequest(
                f"'{one.name}' is a pipe, and its size must be known before it is sent",
                remedy="write it to a file first",
            )
    for file in files:
        if file.format is Format.LANCE:
            raise BadRequest(
                f"'{file.file}' is a table of Lance, which cannot be sent to a server",
                remedy='read it as an Arrow table, and load that with its type, as in `type="Person"`',
            )


def _archive_call(files: Sequence[InputFile], target: LoadTarget) -> Call[LoadResult]:
    return Call(
        "POST",
        "load/files",
        decode_json(decode.load),
        target.query,
        {"Content-Type": TAR},
        pack_files(files),
        is_safe=False,
    )


def _read_all(files: list[InputFile]) -> list[bytes]:
    """Return the lines of each file; a last line that does not end gets an end."""
    texts: list[bytes] = []
    room = LINE_BYTES
    for file in files:
        text = _read(file, room)
        room -= len(text)
        texts.append(text if text.endswith(b"\n") or not text else text + b"\n")
    return texts


def _read(file: InputFile, room: int) -> bytes:
    with closing(open_input(file.at)) as source:
        text: bytes = pa.input_stream(source, compression=None).read(room + 1)
    if len(text) > room:
        raise ResourceLimitExceeded(
            "graph_batch_request_bytes",
            limit=LINE_BYTES,
            actual=LINE_BYTES - room + len(text),
            remedy="load it again: it became larger while it was read",
        )
    return text


def _lines_call(body: bytes, target: LoadTarget) -> Call[LoadResult]:
    headers = {"Content-Type": NDJSON}
    return Call(
        "POST",
        "load/ndjson",
        decode_json(decode.load),
        target.query,
        headers,
        body,
        is_safe=False,
    )
