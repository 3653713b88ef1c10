"""Handlers of queries and snapshots."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from starlette.responses import Response

from omnigraph.engine.graph.manifest import MAIN
from omnigraph.errors import BadRequest, WrongQueryKind
from omnigraph.query.result import Result
from omnigraph.server.arrow_results import contains_mutations, stream_arrow
from omnigraph.server.moments import Moment, authorize_moment, parse_moment, parse_version, pin
from omnigraph.server.requests import Call, accepts_only
from omnigraph.server.route import ARROW, JSON
from omnigraph.server.streams import PiecesReply
from omnigraph.server.wire.reads import QueryRequest, ReadRequest, read_output, snapshot_output


async def query(call: Call) -> Response:
    """Run a read query."""
    asked = call.body(QueryRequest)
    moment = parse_moment(asked.branch, asked.snapshot, asked.commit, asked.version, asked.time)
    await authorize_moment(call, moment)
    seconds = query_seconds(call, asked.timeout)
    if accepts_only(call, ARROW):
        return await stream_arrow(call, moment, asked, seconds)

    def work() -> Result:
        try:
            return run_query(call, moment, asked.query, asked.params, asked.name, asked.max_rows, seconds)
        except WrongQueryKind as error:
            raise contains_mutations(error.query) from error

    return await reply_rows(call, work)


async def read(call: Call) -> Response:
    """Run a read query under its former names; the body is byte for byte what it was."""
    asked = call.body(ReadRequest)
    # A bridge that cannot leave the branch out always sends its default.
    branch = None if asked.snapshot is not None and asked.branch == MAIN else asked.branch
    moment = parse_moment(branch, asked.snapshot)
    await authorize_moment(call, moment)
    seconds = query_seconds(call, None)

    def work() -> Result:
        return run_query(call, moment, asked.query_source, asked.params, asked.query_name, None, seconds)

    return await reply_rows(call, work, with_commit=False)


async def snapshot(call: Call) -> Response:
    """Return the version and size of every type."""
    moment = parse_moment(
        call.query("branch"), None, call.query("commit"), parse_version(call), call.query("time")
    )
    await authorize_moment(call, moment)
    graph = call.graph

    def work() -> bytes:
        found = pin(graph, moment)
        return call.encode(snapshot_output(found, graph.format_version))

    return call.reply(await call.read(work))


async def reply_rows(call: Call, find: Callable[[], Result], *, with_commit: bool = True) -> Response:
    """Run a read in a thread, encode its rows there, and return the answer."""

    def work() -> list[bytes | memoryview]:
        found = find()
        with call.encoding():
            return read_output(found, with_commit=with_commit)

    return PiecesReply(await call.read(work), JSON)


def run_query(
    call: Call,
    moment: Moment,
    source: str,
    params: Mapping[str, Any] | None,
    name: str | None,
    max_rows: int | None,
    seconds: float,
) -> Result:
    """Run a read query in the thread of the caller, until it is done, out of time or cancelled."""
    found = call.graph.query(
        source,
        params,
        name=name,
        **moment.arguments(),
        max_rows=max_rows,
        timeout=seconds,
        cancel=call.cancel,
    )
    call.facts.update(rows=len(found), commit_read=found.graph_commit_id)
    return found


def query_seconds(call: Call, wanted: float | None) -> float:
    """Return how long a query may take: what the caller wants, and never more than the server allows."""
    most = call.service.limits.query_seconds
    if wanted is None:
        return most
    if not wanted > 0:
        raise BadRequest(f"timeout must be a number of seconds above 0, got {wanted:g}")
    return min(wanted, most)
