"""Handlers of commits."""

from __future__ import annotations

from starlette.responses import Response

from omnigraph.policy.actions import Action
from omnigraph.server.requests import Call, branch_or_main
from omnigraph.server.wire.commits import CommitListOutput, CommitOutput


async def list_commits(call: Call) -> Response:
    """Return the history of a branch, newest first."""
    branch = branch_or_main(call.query("branch"))
    call.authorize(Action.READ, branch=branch)
    commits = call.graph.commits

    def work() -> bytes:
        return call.encode(CommitListOutput(commits=[CommitOutput.of(one) for one in commits.list(branch)]))

    return call.reply(await call.read(work))


async def get_commit(call: Call) -> Response:
    """Return one commit."""
    call.authorize(Action.READ)
    commits, commit_id = call.graph.commits, call.path["commit_id"]
    return call.reply(await call.read(lambda: CommitOutput.of(commits.get(commit_id))))
