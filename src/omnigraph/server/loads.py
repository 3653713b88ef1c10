"""Handlers of loads: NDJSON in a member of JSON, NDJSON as it is, and Arrow; load_files.py has files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
from starlette.responses import Response

from omnigraph.engine.load.request import LoadResult
from omnigraph.engine.load.sources.item import Format
from omnigraph.engine.load.sources.pipes import Stream
from omnigraph.engine.load.sources.plan import file_of
from omnigraph.engine.load.spool import PassedRows, find_type
from omnigraph.errors import BadRequest, BranchNotFound, LoadRejected
from omnigraph.policy.actions import Action
from omnigraph.server.permissive_lines import drop_unknown_members
from omnigraph.server.requests import Call, branch_or_main, require_media
from omnigraph.server.wire.loads import (
    DEFAULT_MODE,
    IngestRequest,
    LoadTarget,
    ingest_output,
    load_output,
)
from omnigraph.storage.scratch import TemporaryFolder, wrap_temporary_errors

BATCH_BYTES = "graph_batch_request_bytes"
ARROW_BYTES = "arrow_load_request_bytes"
BODY = "request body"
"""What errors call the lines of a request."""

_MODES = ("overwrite", "append", "merge")


async def load(call: Call) -> Response:
    """Load the lines in a JSON body; members that the schema does not have are ignored."""
    asked = call.body(IngestRequest)
    target = await _authorize(call, asked.branch, asked.from_, asked.mode, asked.message)
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

    def work() -> bytes:
        return call.encode(load_output(_load_lines(call, target, data), target, call.actor, []))

    with call.admit(len(data)):
        return call.reply(await call.write(work))


async def load_arrow(call: Call) -> Response:
    """Load a stream of Arrow batches of one type; it waits on disk until all of it is there."""
    require_media(call.request, call.route.request_media)
    type_name = call.query("type")
    if not type_name:
        raise BadRequest("the request does not say which type the rows have", remedy="add ?type=NAME")
    target = await authorize_parameters(call)
    with TemporaryFolder("arrow") as folder:
        file = folder / "rows.arrow"
        size = await receive(call, file)

        def work() -> bytes:
            done = _load_rows(call, target, file, type_name)
            return call.encode(load_output(done, target, call.actor, []))

        with call.admit(size):
            return call.reply(await call.write(work))


async def authorize_parameters(call: Call) -> LoadTarget:
    """Return where the parameters of a request send a load, if the actor may."""
    mode = call.query("mode") or DEFAULT_MODE
    if mode not in _MODES:
        raise BadRequest(f"'{mode}' is not a mode of loading", remedy=f"choose one of: {', '.join(_MODES)}")
    return await _authorize(call, call.query("branch"), call.query("from"), mode, call.query("message"))


async def _authorize(
    call: Call, branch: str | None, from_: str | None, mode: Any, message: str | None
) -> LoadTarget:
    """Return where a load goes, if the actor may: a load that creates its branch needs both rights."""
    target = LoadTarget(
        branch=branch_or_main(branch),
        from_=None if from_ is None else branch_or_main(from_),
        mode=mode,
        message=message,
    )
    branches = call.graph.branches
    exists = await call.look_up(lambda: target.branch in branches)
    if not exists and target.from_ is not None:
        call.authorize(Action.BRANCH_CREATE, branch=target.from_, target=target.branch)
    call.authorize(Action.CHANGE, branch=target.branch)
    if not exists and target.from_ is None:
        raise BranchNotFound(target.branch, hint="; pass `from` to create it")
    return target


async def receive(call: Call, file: Path) -> int:
    """Write the body to a file as it arrives, and return its size."""
    size = 0
    with wrap_temporary_errors(), file.open("wb") as sink:
        async for chunk in call.chunks(call.service.limits.arrow_bytes, ARROW_BYTES):
            size += sink.write(chunk)
    return size


def _load_lines(call: Call, target: LoadTarget, data: bytes) -> LoadResult:
    return run_load(call, target, Stream(BODY, Format.NDJSON, io.BytesIO(data)))


def _load_rows(call: Call, target: LoadTarget, file: Path, type_name: str) -> LoadResult:
    key = find_type(call.graph.schema, type_name)
    _require_arrow(file)
    named = file.parent / file_of(key)
    with wrap_temporary_errors():
        named.parent.mkdir()
        file.rename(named)
    return run_load(call, target, PassedRows(str(named), key.partition(":")[2]))


def _require_arrow(file: Path) -> None:
    """Raise `BadRequest` unless a file is a stream of batches; the load would report it by its name."""
    try:
        with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as batches:
            for _ in batches:
                pass
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise BadRequest(f"the body is not a stream of Arrow batches: {reason}") from error


def run_load(call: Call, target: LoadTarget, data: Any) -> LoadResult:
    """Run a load in the thread of the caller."""
    done = call.graph.load(
        data,
        mode=target.mode,
        branch=target.branch,
        from_=target.from_,
        actor=call.actor,
        message=target.message,
        engine="local",
    )
    call.facts.update(commit=done.commit.id if done.commit else None, rows=done.total)
    return done
