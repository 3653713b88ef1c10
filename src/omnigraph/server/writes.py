"""Handlers of mutations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from omnigraph.errors import BadRequest
from omnigraph.policy.actions import Action
from omnigraph.server.requests import Call, branch_or_main
from omnigraph.server.wire.base import encode
from omnigraph.server.wire.writes import ChangeRequest, change_output

IF_COMMIT = "Omnigraph-If-Graph-Commit"
_CONDITIONAL = "/mutate/if-graph-commit"


async def mutate(call: Call) -> Response:
    """Run a mutation without a condition; one that carries a condition would be ignored, so it is refused."""
    refuse_condition(call, _CONDITIONAL)
    return await _mutate(call, None)


async def mutate_if_commit(call: Call) -> Response:
    """Run a mutation while a commit is the newest of the branch."""
    return await _mutate(call, required_commit(call))


async def _mutate(call: Call, if_commit: str | None) -> Response:
    asked = call.body(ChangeRequest)
    source, name, branch = asked.source, asked.selected, branch_or_main(asked.branch)
    call.authorize(Action.CHANGE, branch=branch)
    return await run_mutation(call, branch, source, asked.params, name, if_commit, asked.retry, asked.message)


async def run_mutation(
    call: Call,
    branch: str,
    source: str,
    params: Mapping[str, Any] | None,
    name: str | None,
    if_commit: str | None,
    retry: int = 0,
    message: str | None = None,
) -> Response:
    """Run a mutation that was authorized: admission, the work, the answer."""

    def work() -> bytes:
        done = call.graph.mutate(
            source,
            params,
            branch=branch,
            actor=call.actor,
            name=name,
            if_commit=if_commit,
            retry=retry,
            message=message,
        )
        call.facts.update(
            commit=done.commit.id if done.commit else None, rows=done.affected_nodes + done.affected_edges
        )
        return call.encode(change_output(done, branch, call.actor))

    with call.admit(len(source.encode()) + len(encode(params))):
        return call.reply(await call.write(work))


def refuse_condition(call: Call, instead: str) -> None:
    """Raise when a request carries a condition to a route that has none."""
    if call.header(IF_COMMIT):
        raise BadRequest(f"{IF_COMMIT} has no effect here", remedy=f"use POST {instead}")


def optional_commit(call: Call) -> str | None:
    """Return the id in the header of a write that may have a condition."""
    return required_commit(call) if call.header(IF_COMMIT) else None


def required_commit(call: Call) -> str:
    """Return the id in the one header that a conditional write has."""
    found = call.header(IF_COMMIT)
    if len(found) != 1:
        raise BadRequest(f"send {IF_COMMIT} exactly once, not {len(found)} times")
    commit = found[0].strip()
    if not commit or commit == "*" or commit.startswith("W/") or any(sign in commit for sign in ",\"' "):
        raise BadRequest(f"{IF_COMMIT} takes one plain commit id")
    return commit
