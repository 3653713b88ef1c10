"""Handlers of loads: NDJSON in a member of JSON, NDJSON as it is, and Arrow; load_files.py has files."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from starlette.responses import Response

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.load.request import LoadResult
from omnigraph.engine.load.sources.item import Format
from omnigraph.engine.load.sources.mapping import MappingText
from omnigraph.engine.load.sources.pipes import Stream
from omnigraph.engine.load.sources.plan import file_of
from omnigraph.engine.load.spool import PassedRows, empty_rows, find_type
from omnigraph.errors import BadRequest, BranchNotFound, KeyConflict, LoadRejected
from omnigraph.lang.values import shorten_legibly
from omnigraph.policy.actions import Action
from omnigraph.server.errors import error_body, status_of
from omnigraph.server.permissive_lines import drop_unknown_members
from omnigraph.server.requests import Call, accepts_only, branch_or_main, require_media
from omnigraph.server.route import NDJSON
from omnigraph.server.streams import Pieces, start_stream
from omnigraph.server.wire.loads import (
    DEFAULT_MODE,
    IngestRequest,
    LoadTarget,
    ingest_output,
    load_output,
)
from omnigraph.storage.scratch import TemporaryFolder, wrap_temporary_errors, write_rows

BATCH_BYTES = "graph_batch_request_bytes"
ARROW_BYTES = "arrow_load_request_bytes"
BODY = "request body"
"""What errors call the lines of a request."""

LINES = NDJSON.partition(";")[0]
PIECE_BYTES = 1 << 20

_DIGITS = 4
_MODES = ("overwrite", "append", "merge", "patch")


@dataclass(frozen=True, slots=True)
class LoadInputs:
    """What a load reads."""

    data: Any
    mapping: MappingText | None = None


async def load(call: Call) -> Response:
    """Load the lines in a JSON body; members that the schema does not have are ignored."""
    asked = call.body(IngestRequest)
    target = await _authorize(
        call, asked.branch, asked.from_, asked.mode, asked.message, dry_run=asked.dry_run
    )
    data = asked.data.encode()

    def work() -> bytes:
        ignored: list[str] = []
        try:
            done = _load_lines(call, target, data)
        except LoadRejected:
            # Nothing was written. What only names unknown members is loaded without them.
            kept, ignored = drop_unknown_members(data, call.graph.schema)
            if not ignored:
                raise
            done = _load_lines(call, target, kept)
        return call.encode(ingest_output(load_output(done, target, call.actor, ignored), call.graph.uri))

    with call.admit(len(data)):
        return call.reply(await call.write(work))


async def load_ndjson(call: Call) -> Response:
    """Load the lines of the body, strictly; policy is asked before a byte of it is read."""
    require_media(call.request, call.route.request_media)
    target = await authorize_parameters(call)
    data = b"".join([chunk async for chunk in call.chunks(call.route.limit, BATCH_BYTES)])
    with ExitStack() as kept:
        return await answer_load(call, target, lambda: LoadInputs(_lines(data)), kept)


async def load_arrow(call: Call) -> Response:
    """Load a stream of Arrow batches of one type; it waits on disk until all of it is there."""
    require_media(call.request, call.route.request_media)
    type_name = call.query("type")
    if not type_name:
        raise BadRequest("the request does not say which type the rows have", remedy="add ?type=NAME")
    target = await authorize_parameters(call)
    with ExitStack() as kept:
        folder = kept.enter_context(TemporaryFolder("arrow"))
        file = folder / "rows.arrow"
        await receive(call, file)
        return await answer_load(call, target, lambda: LoadInputs(name_rows(call, file, type_name)), kept)


async def answer_load(
    call: Call, target: LoadTarget, open_inputs: Callable[[], LoadInputs], kept: ExitStack
) -> Response:
    """Run a load whose body was read, and answer.

    A client that accepts nothing but lines gets the usual body as the first one, and below it all records
    that are wrong. `kept` holds what the load reads; a streamed answer takes it over.
    """
    rejects = None
    if accepts_only(call, LINES):
        rejects = kept.enter_context(TemporaryFolder("rejects")) / "rejects"

    def work() -> bytes:
        done = _run_load(call, target, open_inputs(), rejects)
        return call.encode(load_output(done, target, call.actor, []))

    with call.admit(call.body_size):
        try:
            status, body = 200, await call.write(work)
        except (LoadRejected, KeyConflict) as refused:
            if rejects is None:
                raise
            call.facts["error_code"] = refused.code
            status = status_of(refused)
            body = call.encode(error_body(refused, status))
    if rejects is None:
        return call.reply(body)
    pieces = partial(_body_and_lines, body, rejects)
    return await start_stream(call, pieces, NDJSON, release=kept.pop_all().close, status=status)


def _body_and_lines(body: bytes, lines: Path) -> Pieces:
    yield body + b"\n"
    with wrap_temporary_errors(), lines.open("rb") as source:
        while chunk := source.read(PIECE_BYTES):
            yield chunk


async def authorize_parameters(call: Call) -> LoadTarget:
    """Return where the parameters of a request send a load, if the actor may."""
    mode = call.query("mode") or DEFAULT_MODE
    if mode not in _MODES:
        raise BadRequest(f"'{mode}' is not a mode of loading", remedy=f"choose one of: {', '.join(_MODES)}")
    return await _authorize(
        call,
        call.query("branch"),
        call.query("from"),
        mode,
        call.query("message"),
        skip_bad=_parse_flag(call, "skip_bad"),
        dry_run=_parse_flag(call, "dry_run"),
        retry=_parse_number(call, "retry"),
    )


def _parse_flag(call: Call, name: str) -> bool:
    text = call.query(name) or "false"
    if text not in ("true", "false"):
        raise BadRequest(f"`{name}` is true or false, and not '{shorten_legibly(text)}'")
    return text == "true"


def _parse_number(call: Call, name: str) -> int:
    text = call.query(name) or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise BadRequest(f"`{name}` is a number from 0 on, and not '{shorten_legibly(text)}'")
    return int(text)


async def _authorize(
    call: Call,
    branch: str | None,
    from_: str | None,
    mode: Any,
    message: str | None,
    *,
    skip_bad: bool = False,
    retry: int = 0,
    dry_run: bool = False,
) -> LoadTarget:
    """Return where a load goes, if the actor may: a load that creates its branch needs both rights."""
    target = LoadTarget(
        branch=branch_or_main(branch),
        from_=None if from_ is None else branch_or_main(from_),
        mode=mode,
        message=message,
        skip_bad=skip_bad,
        dry_run=dry_run,
        retry=retry,
    )
    branches = call.graph.branches
    exists = await call.look_up(lambda: target.branch in branches)
    if not exists and target.from_ is not None:
        call.authorize(Action.BRANCH_CREATE, branch=target.from_, target=target.branch)
    call.authorize(Action.CHANGE, branch=target.branch)
    if not exists and target.from_ is None:
        raise BranchNotFound(target.branch, hint="; pass `from` to create it")
    return target


async def receive(call: Call, file: Path) -> None:
    """Write the body to a file as it arrives."""
    with wrap_temporary_errors(), file.open("wb") as sink:
        async for chunk in call.chunks(call.service.limits.arrow_bytes, ARROW_BYTES):
            sink.write(chunk)


def name_rows(call: Call, file: Path, type_name: str) -> PassedRows:
    """Return a file of Arrow as rows of a type; a load knows them by the path, and reports them as rows."""
    key = find_type(call.graph.schema, type_name)
    has_columns = _check_arrow(file)
    named = file.parent / f"{file.name}-rows" / file_of(key)
    with wrap_temporary_errors():
        named.parent.mkdir(parents=True)
        file.rename(named)
    if not has_columns:
        rows = empty_rows(call.graph.schema, key)
        write_rows(named, rows.schema, rows.to_batches())
    return PassedRows(str(named), key.partition(":")[2])


def _check_arrow(file: Path) -> bool:
    """Return whether rows have columns; raises `BadRequest` unless a file is a stream of batches."""
    try:
        with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as batches:
            for _ in batches:
                pass
            return len(batches.schema) > 0
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise BadRequest(f"the body is not a stream of Arrow batches: {reason}") from error


def _lines(data: bytes) -> Stream:
    return Stream(BODY, Format.NDJSON, io.BytesIO(data))


def _load_lines(call: Call, target: LoadTarget, data: bytes) -> LoadResult:
    return _run_load(call, target, LoadInputs(_lines(data)), None)


def _run_load(call: Call, target: LoadTarget, inputs: LoadInputs, rejects: Path | None) -> LoadResult:
    """Run a load in the thread of the caller."""
    done = call.graph.load(
        inputs.data,
        mode=target.mode,
        branch=target.branch,
        from_=target.from_,
        actor=call.actor,
        message=target.message,
        mapping=inputs.mapping,
        skip_bad=target.skip_bad,
        retry=target.retry,
        rejects=rejects,
        dry_run=target.dry_run,
        engine="local",
    )
    call.facts.update(commit=done.commit.id if done.commit else None, rows=done.total)
    return done
