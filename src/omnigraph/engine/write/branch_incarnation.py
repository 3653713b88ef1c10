"""A branch that is deleted or recreated while a write to it is prepared without its lock.

Such a write meets tables that are not there any more, or those of another branch of the same name. What it
then runs into says nothing about the branch, so the branch itself is asked.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext

from omnigraph.engine.commit.gates import BaseMoved
from omnigraph.engine.commit.plan import PlanBase
from omnigraph.engine.graph.coordinator import lance_branch
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.table_forks import ForkPlace, has_fork_files, reclaim_fork
from omnigraph.errors import BranchNotFound, OmnigraphError, ReadSetChanged, StorageFailure
from omnigraph.storage.locks import HeldLocks

_log = logging.getLogger(__name__)


def require_incarnation(
    graph: OpenGraph,
    branch: str,
    base: PlanBase,
    held: HeldLocks | None = None,
    failure: OmnigraphError | None = None,
) -> None:
    """Raise `BranchNotFound` when the branch of a base is gone, `BaseMoved` when there is another one now.

    `failure` is what the write ran into: where the branch cannot be asked either, that is what counts.
    """
    if lance_branch(branch) is None:
        return
    try:
        incarnation = graph.root.forks.identity(graph.root.layout.manifest, branch)
    except StorageFailure:
        if failure is None:
            raise
        return
    if incarnation is None:
        graph.forget(branch)
        _remove_staged_files(graph, branch, base, held)
        raise BranchNotFound(branch) from failure
    if incarnation != base.identity:
        changed = ReadSetChanged(f"branch:{branch}", expected="the one that was read", actual="made anew")
        raise BaseMoved(changed) from failure


def _remove_staged_files(graph: OpenGraph, branch: str, base: PlanBase, held: HeldLocks | None) -> None:
    """Remove the files that were staged beside tables of a branch after these had gone."""
    root = graph.root
    places = [
        ForkPlace(entry.key, root.layout.table(entry.path), branch)
        for entry in base.entries.values()
        if entry.owner == branch
    ]
    try:
        left = [place for place in places if has_fork_files(root, place.table, branch)]
        if not left:
            return
        holding: AbstractContextManager[HeldLocks] = (
            root.locks.hold([branch]) if held is None else nullcontext(held)
        )
        with holding as own:
            for place in left:
                reclaim_fork(root, own, place, live=graph.branch_names())
    except OmnigraphError as error:
        _log.warning("files of branch '%s', which is gone, are left to cleanup: %s", branch, error)
