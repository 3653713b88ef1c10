"""Handlers of stored queries."""

from __future__ import annotations

from starlette.responses import Response

from omnigraph.engine.graph.manifest import MAIN
from omnigraph.errors import BadRequest, NotFound, PolicyDenied
from omnigraph.policy.actions import Action
from omnigraph.query.result import Result
from omnigraph.server.moments import authorize_moment, parse_moment
from omnigraph.server.reads import query_seconds, reply_rows, run_query
from omnigraph.server.requests import Call, branch_or_main, decode_json
from omnigraph.server.stored_queries import StoredQuery
from omnigraph.server.wire.stored_queries import InvokeQueryRequest, StoredQueryListOutput
from omnigraph.server.writes import refuse_condition, required_commit, run_mutation

UNKNOWN = "stored query not found"
"""What callers learn of a query that is not there, or that they may not invoke."""

_DEFAULTS = InvokeQueryRequest()


async def list_queries(call: Call) -> Response:
    """Return all stored queries; which of them an actor may invoke is decided when one is invoked."""
    call.authorize(Action.READ, branch=MAIN)
    queries = call.target.queries
    return call.reply(StoredQueryListOutput(queries=[queries[name].describe() for name in sorted(queries)]))


async def invoke_query(call: Call) -> Response:
    """Run a stored query: a read or a mutation."""
    asked, found = _find(call)
    if not found.is_mutation:
        return await _read(call, found, asked)
    refuse_condition(call, f"/queries/{found.name}/if-graph-commit")
    return await _mutate(call, found, asked, None)


async def invoke_query_if_commit(call: Call) -> Response:
    """Run a stored mutation while a commit is the newest of the branch."""
    asked, found = _find(call)
    if not found.is_mutation:
        raise BadRequest(f"'{found.name}' only reads, and a read has no condition")
    return await _mutate(call, found, asked, required_commit(call))


def _find(call: Call) -> tuple[InvokeQueryRequest, StoredQuery]:
    """Return the request and its query; an actor that may not invoke any learns nothing of their names."""
    sent = call.raw.strip()
    asked = decode_json(sent, InvokeQueryRequest) if sent not in (b"", b"null") else _DEFAULTS
    name = call.path["name"]
    try:
        call.authorize(Action.INVOKE_QUERY)
    except PolicyDenied:
        raise NotFound(UNKNOWN) from None
    found = call.target.queries.get(name)
    if found is None:
        raise NotFound(UNKNOWN)
    call.facts.update(query=name, query_kind="mutation" if found.is_mutation else "read")
    if asked.expect_mutation is not None and asked.expect_mutation is not found.is_mutation:
        kind, command = ("a mutation", "mutate") if found.is_mutation else ("a read", "query")
        raise BadRequest(f"'{name}' is {kind} - use omnigraph {command} {name}")
    return asked, found


async def _read(call: Call, found: StoredQuery, asked: InvokeQueryRequest) -> Response:
    moment = parse_moment(asked.branch, asked.snapshot)
    await authorize_moment(call, moment)
    seconds = query_seconds(call, None)

    def work() -> Result:
        return run_query(call, moment, found.text, asked.params, found.name, None, seconds)

    return await reply_rows(call, work)


async def _mutate(
    call: Call, found: StoredQuery, asked: InvokeQueryRequest, if_commit: str | None
) -> Response:
    if asked.snapshot is not None:
        raise BadRequest(f"'{found.name}' is a mutation, and a snapshot does not change")
    branch = branch_or_main(asked.branch)
    call.authorize(Action.CHANGE, branch=branch)
    return await run_mutation(
        call, branch, found.text, asked.params, found.name, if_commit, message=asked.message
    )
