"""Handlers of commits."""

from __future__ import annotations

from starlette.responses import Response

from omnigraph.engine.changes import DEFAULT_ENTRIES
from omnigraph.errors import BadRequest
from omnigraph.policy.actions import Action
from omnigraph.server.moments import find_owner
from omnigraph.server.requests import Call, branch_or_main
from omnigraph.server.wire.changes import EntityHistoryOutput
from omnigraph.server.wire.commits import CommitListOutput, CommitOutput, LogEntryOutput, LogOutput


async def list_commits(call: Call) -> Response:
    """Return the history of a branch, newest first."""
    branch = branch_or_main(call.query("branch"))
    call.authorize(Action.READ, branch=branch)
    commits = call.graph.commits

    def work() -> bytes:
        return call.encode(CommitListOutput(commits=[CommitOutput.of(one) for one in commits.list(branch)]))

    return call.reply(await call.read(work))


async def read_log(call: Call) -> Response:
    """Return the newest commits of a branch, or of all, with how much each changed."""
    branch, everything = branch_or_main(call.query("branch")), _flag(call, "all_branches", default=False)
    graph, limit, stat = call.graph, _limit(call), _flag(call, "stat", default=True)
    if everything:
        for name in await call.look_up(graph.branches.list):
            call.authorize(Action.READ, branch=name)
    else:
        call.authorize(Action.READ, branch=await find_owner(call, branch))
    actor = call.query("actor")

    def work() -> bytes:
        found = graph.log(branch, all_branches=everything, actor=actor, limit=limit, stat=stat)
        return call.encode(LogOutput(commits=[LogEntryOutput.of(one) for one in found]))

    return call.reply(await call.read(work))


async def read_history(call: Call) -> Response:
    """Return the commits that changed one entity."""
    branch, limit, graph = branch_or_main(call.query("branch")), _limit(call), call.graph
    call.authorize(Action.READ, branch=branch)
    type_name, entity_id = (_require(call, name) for name in ("type", "id"))

    def work() -> bytes:
        found = graph.history(type_name, entity_id, branch=branch, limit=limit)
        return call.encode(EntityHistoryOutput.of(found))

    return call.reply(await call.read(work))


def _require(call: Call, name: str) -> str:
    found = call.query(name)
    if not found:
        raise BadRequest(f"`{name}` is required", remedy="name the type and the id of an entity")
    return found


def _limit(call: Call) -> int | None:
    """Return how many commits are wanted; None for all."""
    text = call.query("limit")
    if text is None:
        return DEFAULT_ENTRIES
    if text != "all" and not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadRequest(f"'{text}' is not a number of commits", remedy="pass a number, or all")
    return None if text == "all" else int(text)


def _flag(call: Call, name: str, *, default: bool) -> bool:
    text = call.query(name)
    if text not in (None, "true", "false"):
        raise BadRequest(f"`{name}` is true or false, not '{text}'")
    return default if text is None else text == "true"


async def get_commit(call: Call) -> Response:
    """Return one commit."""
    call.authorize(Action.READ)
    commits, commit_id = call.graph.commits, call.path["commit_id"]
    return call.reply(await call.read(lambda: CommitOutput.of(commits.get(commit_id))))
