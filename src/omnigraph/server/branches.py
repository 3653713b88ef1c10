"""Handlers of branches and merges."""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response

from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.merge.result import MergeResult
from omnigraph.errors import BranchExists, InvalidName, PolicyDenied
from omnigraph.policy.actions import Action
from omnigraph.server.admission import BRANCH_BYTES
from omnigraph.server.errors import Restated
from omnigraph.server.moments import find_owner
from omnigraph.server.requests import Call, branch_or_main
from omnigraph.server.wire.branches import (
    BranchCreateOutput,
    BranchCreateRequest,
    BranchDeleteOutput,
    BranchListOutput,
    BranchMergeRequest,
    ReplayRequest,
    ResetRequest,
    merge_output,
)


async def list_branches(call: Call) -> Response:
    """Return the names of all branches."""
    call.authorize(Action.READ)
    branches = call.graph.branches
    return call.reply(await call.read(lambda: BranchListOutput(branches=sorted(branches.list()))))


async def create_branch(call: Call) -> Response:
    """Create a branch."""
    asked = call.body(BranchCreateRequest)
    name, start = branch_or_main(asked.name), (asked.from_ or "").strip() or MAIN
    call.authorize(Action.BRANCH_CREATE, branch=await find_owner(call, start), target=name)
    graph = call.graph
    if name == MAIN:
        raise BranchExists(name)
    with call.admit(BRANCH_BYTES):
        try:
            await call.write(lambda: graph.branches.create(name, from_=start, actor=call.actor))
        except InvalidName as error:
            # The name itself was checked: a branch above or below it is in the way.
            raise Restated(error, 409) from error
    return call.reply(BranchCreateOutput(uri=graph.uri, from_=start, name=name, actor_id=call.actor))


async def delete_branch(call: Call) -> Response:
    """Delete a branch."""
    name = branch_or_main(call.path["branch"])
    call.authorize(Action.BRANCH_DELETE, target=name)
    graph = call.graph
    call.service.slots.require_no_export(call.target.graph_id)
    with call.admit(BRANCH_BYTES):
        await call.write(lambda: graph.branches.delete(name, actor=call.actor))
    return call.reply(BranchDeleteOutput(uri=graph.uri, name=name, actor_id=call.actor))


async def merge_branches(call: Call) -> Response:
    """Merge; the source is deleted afterwards if that is wanted, and a failure of that fails nothing."""
    asked = call.body(BranchMergeRequest)
    source, target = branch_or_main(asked.source), branch_or_main(asked.target)
    call.authorize(Action.BRANCH_MERGE, branch=source, target=target)
    refusal = _deletion_refusal(call, source) if asked.delete_branch else None

    def work() -> bytes:
        done = call.graph.merge(
            source,
            target,
            actor=call.actor,
            strategy=asked.strategy,
            resolutions=asked.resolutions,
            granularity=asked.granularity,
            delete_branch=asked.delete_branch and refusal is None,
            message=asked.message,
            engine="local",
        )
        call.facts.update(commit=done.commit.id if done.commit else None)
        deleted = False if refusal is not None else done.branch_deleted
        problem = refusal if refusal is not None else done.branch_delete_error
        return call.encode(merge_output(done, call.actor, deleted=deleted, problem=problem))

    with call.admit(BRANCH_BYTES):
        return call.reply(await call.write(work))


async def revert(call: Call) -> Response:
    """Take back what a commit changed."""
    return await _replay(call, call.graph.revert)


async def cherry_pick(call: Call) -> Response:
    """Take in what a commit changed."""
    return await _replay(call, call.graph.cherry_pick)


async def _replay(call: Call, run: Callable[..., MergeResult]) -> Response:
    asked = call.body(ReplayRequest)
    branch = branch_or_main(asked.branch)
    commit = await _authorize_commit(call, asked.commit, branch)

    def work() -> bytes:
        done = run(
            commit,
            branch,
            actor=call.actor,
            strategy=asked.strategy,
            granularity=asked.granularity,
            message=asked.message,
            engine="local",
        )
        return _encode_replay(call, done)

    with call.admit(BRANCH_BYTES):
        return call.reply(await call.write(work))


async def reset(call: Call) -> Response:
    """Give a branch the content of a commit."""
    asked = call.body(ResetRequest)
    branch, graph = branch_or_main(asked.branch), call.graph
    commit = await _authorize_commit(call, asked.to, branch)

    def work() -> bytes:
        done = graph.reset(commit, branch, actor=call.actor, message=asked.message, engine="local")
        return _encode_replay(call, done)

    with call.admit(BRANCH_BYTES):
        return call.reply(await call.write(work))


async def _authorize_commit(call: Call, commit_id: str, branch: str) -> Commit:
    """Return a commit whose content the actor may write to a branch, and may read where it is."""
    call.authorize(Action.CHANGE, branch=branch)
    graph = call.graph
    found = await call.look_up(lambda: graph.commits.get(commit_id))
    call.authorize(Action.READ, branch=found.branch)
    return found


def _encode_replay(call: Call, done: MergeResult) -> bytes:
    call.facts.update(commit=done.commit.id if done.commit else None)
    return call.encode(merge_output(done, call.actor))


def _deletion_refusal(call: Call, source: str) -> str | None:
    """Return why the source may not be deleted; a merge that may happen happens anyway."""
    try:
        call.authorize(Action.BRANCH_DELETE, target=source)
    except PolicyDenied as denied:
        return denied.message
    return None
