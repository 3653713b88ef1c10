"""What a plan can do before the branch's lock is taken: write files that nobody sees, and look things up."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache, partial
from typing import TypeAlias, TypeVar

from omnigraph.engine.effects import looked_up, stage, steps_of
from omnigraph.engine.gates import is_first_touch
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.plan import CommitPlan
from omnigraph.storage.staging import Staged
from omnigraph.storage.upserting import Found

_PARALLEL_TABLES = 8

_Answer = TypeVar("_Answer")

Ready: TypeAlias = Staged | Found
"""What is known of the first change of a table: all of it, or what it meets."""


def prepare(graph: OpenGraph, plan: CommitPlan) -> dict[str, Ready]:
    """Stage the first change of all tables the branch owns, side by side; forks have to wait for the lock.

    What a change of a fork meets is looked up where the table is before, which was mostly read already.
    """
    steps = {key: all_steps[0] for key, effect in plan.effects.items() if (all_steps := steps_of(effect))}

    def one(key: str) -> Ready | None:
        entry = plan.base.entries[key]
        place = graph.root.layout.table(entry.path)
        table = partial(graph.root.tables.open, place, entry.version, branch=entry.owner)
        if is_first_touch(plan, entry):
            return looked_up(table, steps[key])
        return stage(graph.root.objects, table(), steps[key], in_two=True)

    found = side_by_side(one, list(steps))
    return {key: ready for key, ready in zip(steps, found, strict=True) if ready is not None}


def side_by_side(one: Callable[[str], _Answer], keys: Sequence[str]) -> list[_Answer]:
    """What is found for each table: the first here, others in threads; a failure waits for all of them."""
    waiting = [_threads().submit(one, key) for key in keys[1:]]
    try:
        return [*(one(key) for key in keys[:1]), *(other.result() for other in waiting)]
    finally:
        wait(waiting)


@cache
def _threads() -> ThreadPoolExecutor:
    """Those of all writes of this process: starting a thread takes longer than staging a few rows."""
    return ThreadPoolExecutor(_PARALLEL_TABLES, thread_name_prefix="omnigraph-tables")


# The threads stay with the parent.
os.register_at_fork(after_in_child=_threads.cache_clear)
