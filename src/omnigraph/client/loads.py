"""Rows and files as bodies of loads: rows of one type as Arrow, few lines as NDJSON, other files as files."""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pyarrow as pa

from omnigraph.client import decode
from omnigraph.client.archives import CHUNK, ROWS, TAR, Member, pack_members
from omnigraph.client.calls import ARROW, NDJSON, Call, decode_json, query_of
from omnigraph.client.failures import rebuild_error
from omnigraph.client.served_options import refuse_actor, refuse_engine, require_known
from omnigraph.client.transport import Transport
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.duplicates import Mode, parse_mode
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.load.request import LoadResult, require_retry
from omnigraph.engine.load.sources.input_files import InputFile, find_inputs
from omnigraph.engine.load.sources.item import Format, format_of
from omnigraph.engine.load.sources.mapping import (
    MappingText,
    build_mapping,
    parse_mapping,
    read_mapping_text,
)
from omnigraph.engine.load.sources.pipes import ReceivedPipe, receive_pipes
from omnigraph.engine.load.spool import (
    as_arrow,
    group_by_members,
    is_frame,
    is_nothing,
    is_rows,
    is_table,
    require_paths,
)
from omnigraph.engine.rows.violations import RejectsFile, Violation, open_rejects_file
from omnigraph.engine.tasks.runner import EngineName
from omnigraph.errors import BadRequest, KeyConflict, LoadRejected, ResourceLimitExceeded
from omnigraph.storage.input_files import open_input
from omnigraph.storage.scratch import TemporaryFolder, write_rows

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
    retry: int
    message: str | None


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """Where the rows of a load go, and what becomes of wrong ones."""

    mode: str
    branch: str
    from_: str | None
    message: str | None = None
    skip_bad: bool = False
    has_rejects: bool = False
    retry: int = 0
    dry_run: bool = False

    @property
    def query(self) -> list[tuple[str, str]]:
        """The parameters of a request."""
        return query_of(
            mode=self.mode,
            branch=parse_branch_name(self.branch),
            from_=None if self.from_ is None else parse_branch_name(self.from_),
            message=self.message,
            skip_bad="true" if self.skip_bad else None,
            retry=str(self.retry) if self.retry else None,
            dry_run="true" if self.dry_run else None,
        )

    def call(
        self, path: str, media: str, body: bytes | Iterable[bytes], *more: tuple[str, str]
    ) -> Call[LoadResult]:
        """Return a request; one with rejects is answered with lines."""
        headers = {"Content-Type": media, **({"Accept": NDJSON} if self.has_rejects else {})}
        return Call(
            "POST", path, decode_json(decode.load), [*more, *self.query], headers, body, is_safe=False
        )


@dataclass(frozen=True, slots=True)
class LineRange:
    """The lines of one file among all that were sent."""

    file: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class PreparedLoad:
    """A load that can be sent, the files its lines are from, and the file for what is wrong with them."""

    call: Call[LoadResult]
    ranges: tuple[LineRange, ...] = ()
    rejects: RejectsFile | None = None

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


def prepare_load(data: Any, mode: str, options: RemoteLoadOptions, kept: ExitStack) -> PreparedLoad:
    """Return the load of rows or files; they are read here, and sent when the call is.

    `kept` holds what must be there until then: temporary files, and the file for rejects.
    """
    require_known(RemoteLoadOptions, options)
    refuse_actor(options.get("actor"))
    refuse_engine(options.get("engine", "auto"))
    type_name, mapping = options.get("type"), _read_mapping(options.get("mapping"))
    target = LoadTarget(
        mode,
        options.get("branch", MAIN),
        options.get("from_"),
        options.get("message"),
        options.get("skip_bad", False),
        options.get("rejects") is not None,
        options.get("retry", 0),
        options.get("dry_run", False),
    )
    require_retry(parse_mode(mode), target.retry)
    by_type = _inputs_by_type(data, type_name)
    rows = {name: given for name, given in by_type.items() if _has_rows(given)}
    if mode == Mode.PATCH:
        _require_same_members(rows)
    if not by_type:
        prepared = _prepare_files(data, target, mapping, kept)
    elif mapping is None and len(rows) == len(by_type) == 1:
        prepared = PreparedLoad(_arrow_call(*rows.popitem(), target))
    else:
        prepared = PreparedLoad(_archive_call(_typed_members(by_type, mapping, kept), target, mapping))
    return replace(prepared, rejects=_open_rejects(data, options.get("rejects"), kept))


def _inputs_by_type(data: Any, type_name: str | None) -> dict[str, Any]:
    """Return rows or paths by the types that the caller named; nothing where files tell theirs."""
    if type_name is not None:
        found = {type_name: data}
    elif _is_by_type(data):
        found = dict(data)
    elif is_table(data) or is_frame(data):
        raise BadRequest(
            "rows in memory do not tell which type they have", remedy='name it, as in `type="Person"`'
        )
    else:
        return {}
    if any(map(is_frame, found.values())):
        raise BadRequest(
            "a DataFrame of Spark cannot be sent to a server",
            remedy="open the storage of the graph to load it",
        )
    return found


def _require_same_members(rows: Mapping[str, Any]) -> None:
    """Refuse records of a patch that differ in their members, which one table of Arrow cannot say."""
    for name, given in rows.items():
        if is_rows(given) and len(group_by_members(given)) > 1:
            raise BadRequest(
                f"the rows of '{name}' have different properties, and a patch sets all that it is sent",
                remedy="load rows with equal properties together, or send them as lines of JSON in a file",
            )


def _is_by_type(data: object) -> bool:
    """Whether an input is rows or files of several types, by their names; a single row is none."""
    if not isinstance(data, Mapping) or not data:
        return False
    return all(
        isinstance(name, str) and (_has_rows(given) or _may_be_paths(given)) for name, given in data.items()
    )


def _has_rows(given: object) -> bool:
    return is_table(given) or is_frame(given) or is_nothing(given)


def _may_be_paths(given: object) -> bool:
    """Whether a value names files; a text is a value of a row, unless there is something to read."""
    if isinstance(given, list | tuple):
        return all(map(_may_be_paths, given))
    if not isinstance(given, str):
        return isinstance(given, os.PathLike)
    return given.startswith("s3://") or glob.has_magic(given) or os.path.lexists(given)


def _typed_members(by_type: Mapping[str, Any], mapping: MappingText | None, kept: ExitStack) -> list[Member]:
    """Return rows and files of types that the caller named as files of an archive."""
    folder = kept.enter_context(TemporaryFolder("rows"))
    members: list[Member] = []
    for name, given in by_type.items():
        if _has_rows(given):
            members.append(_spool(name, given, folder))
            continue
        files, pipes = _find_files(require_paths(given, name), mapping, kept)
        members += _file_members(files, pipes, name)
    return members


def _as_arrow(rows: Any) -> pa.Table | pa.RecordBatchReader:
    """Return rows as Arrow; a list of none has no columns, and the server knows those of its type."""
    return pa.table({}) if is_nothing(rows) else as_arrow(rows)


def _arrow_call(type_name: str, data: Any, target: LoadTarget) -> Call[LoadResult]:
    rows = _as_arrow(data)
    is_small = isinstance(rows, pa.Table) and rows.nbytes <= WHOLE_BYTES
    batches = _encode_batches(rows)
    # One message with a length can be sent again when there was no connection.
    return target.call("load/arrow", ARROW, b"".join(batches) if is_small else batches, ("type", type_name))


def _spool(type_name: str, data: Any, folder: Path) -> Member:
    """Return rows as a file of an archive, which needs their size."""
    rows, file = _as_arrow(data), folder / str(len(list(folder.iterdir())))
    write_rows(file, rows.schema, rows.to_batches() if isinstance(rows, pa.Table) else rows)
    return Member(f"{type_name}.{Format.ARROW}", str(file), file.stat().st_size, {ROWS: type_name})


def _read_mapping(given: str | os.PathLike[str] | Mapping[str, Any] | None) -> MappingText | None:
    """Return the text of a mapping; what is wrong without a look at the schema fails here."""
    if given is None or not isinstance(given, Mapping):
        return None if given is None else read_mapping_text(given)
    name = build_mapping(given).name
    return MappingText(name, msgspec.json.encode(dict(given), enc_hook=str).decode())


def _open_rejects(data: Any, rejects: str | os.PathLike[str] | None, kept: ExitStack) -> RejectsFile | None:
    if rejects is None:
        return None
    given = [data] if isinstance(data, str | os.PathLike) else data if isinstance(data, list | tuple) else ()
    paths = [Path(one) for one in given if isinstance(one, str | os.PathLike)]
    return kept.enter_context(open_rejects_file(Path(rejects), paths))


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


def _find_files(
    paths: Sequence[str | os.PathLike[str]], mapping: MappingText | None, kept: ExitStack
) -> tuple[list[InputFile], set[str]]:
    """Return the files behind paths, and where those are that came out of pipes."""
    inputs = kept.enter_context(receive_pipes(paths))
    formats = format_of if mapping is None else parse_mapping(mapping.text, mapping.name).format_of
    return find_inputs(inputs, formats), {one.at for one in inputs if isinstance(one, ReceivedPipe)}


def _file_members(files: Sequence[InputFile], pipes: set[str], type_name: str | None = None) -> list[Member]:
    _refuse_lance(files)
    return [Member.of_file(file, is_pipe=file.at in pipes, type_name=type_name) for file in files]


def _prepare_files(
    data: Any, target: LoadTarget, mapping: MappingText | None, kept: ExitStack
) -> PreparedLoad:
    """Return the load of files that tell their types."""
    files, pipes = _find_files(require_paths(data, None), mapping, kept)
    if mapping is not None or target.skip_bad or target.has_rejects or not _are_few_lines(files):
        return PreparedLoad(_archive_call(_file_members(files, pipes), target, mapping))
    texts = _read_all(files)
    ranges, first = [], 1
    for file, text in zip(files, texts, strict=True):
        ranges.append(LineRange(file.file, first, text.count(b"\n")))
        first += text.count(b"\n")
    return PreparedLoad(target.call("load/ndjson", NDJSON, b"".join(texts)), tuple(ranges))


def _are_few_lines(files: Sequence[InputFile]) -> bool:
    """Whether files are lines that a server takes as they are."""
    plain = all(file.format.is_records and file.format.packing is None for file in files)
    return plain and sum(file.size for file in files) <= LINE_BYTES


def _refuse_lance(files: Sequence[InputFile]) -> None:
    for file in files:
        if file.format is Format.LANCE:
            raise BadRequest(
                f"'{file.file}' is a table of Lance, which cannot be sent to a server",
                remedy='read it as an Arrow table, and load that with its type, as in `type="Person"`',
            )


def _archive_call(
    members: Sequence[Member], target: LoadTarget, mapping: MappingText | None
) -> Call[LoadResult]:
    if mapping is None:
        return target.call("load/files", TAR, pack_members(members))
    # The name is repeated in errors, and may be any bytes.
    name = mapping.name.encode("utf-8", "backslashreplace").decode()
    text = mapping.text.encode()
    sent = [Member(name, text, len(text)), *members]
    return target.call("load/files", TAR, pack_members(sent), ("mapping", name))


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


class LoadAnswer:
    """The answer to a load with rejects, as it arrives: a line with the result, and the lines of rejects."""

    def __init__(self, prepared: PreparedLoad) -> None:
        self._prepared = prepared
        self._first: list[bytes] = []
        self._has_first = False

    def write(self, chunk: bytes) -> None:
        """Take the next chunk; what is below the first line goes to the file."""
        if not self._has_first:
            line, end, chunk = chunk.partition(b"\n")
            self._first.append(line)
            self._has_first = bool(end)
        if chunk and self._prepared.rejects is not None:
            self._prepared.rejects.append(chunk)

    def finish(self, status: int, headers: Mapping[str, str]) -> LoadResult:
        """Return what the load did, or raise why it was refused; the file gets its name in both cases."""
        body, rejects, call = b"".join(self._first), self._prepared.rejects, self._prepared.call
        # A failure that is not about records comes without them, as the body of any other.
        if rejects is not None and headers.get("content-type", "").startswith(NDJSON):
            rejects.keep() if status < 400 else rejects.keep("the load was refused, and")
        if status >= 400:
            raise rebuild_error(status, body)
        return call.decode(_FirstLine(status, headers, body))


@dataclass(frozen=True, slots=True)
class _FirstLine:
    """The first line of an answer, as a decoder sees it."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


def send_load(transport: Transport, prepared: PreparedLoad) -> LoadResult:
    """Send a load; raises what a local one raises, with the files and lines that the caller knows."""
    try:
        if prepared.rejects is None:
            return transport.send(prepared.call)
        answer = LoadAnswer(prepared)
        with transport.stream(prepared.call, failures=True) as response:
            for chunk in response.iter_bytes(CHUNK):
                answer.write(chunk)
        return answer.finish(response.status_code, response.headers)
    except (LoadRejected, KeyConflict) as refused:
        raise prepared.locate(refused) from None
