"""Prepare a plan before the branch's lock is taken: stage files and look up rows."""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from omnigraph.engine.commit.effects import look_up_rows, stage_step, steps_of
from omnigraph.engine.commit.gates import is_first_touch
from omnigraph.engine.commit.plan import CommitPlan
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.storage.concurrency import run_per_table
from omnigraph.storage.staging import Staged
from omnigraph.storage.upsert import UpsertPlan

PreparedStep: TypeAlias = Staged | UpsertPlan
"""The first change of a table: staged, or with the rows it replaces looked up."""


def prepare(graph: OpenGraph, plan: CommitPlan) -> dict[str, PreparedStep]:
    """Stage the first change of all tables the branch owns, in parallel; forks have to wait for the lock.

    For a table to be forked, the rows are looked up in the table it inherits.
    """
    steps = {key: all_steps[0] for key, effect in plan.effects.items() if (all_steps := steps_of(effect))}

    def one(key: str) -> PreparedStep | None:
        entry = plan.base.entries[key]
        place = graph.root.layout.table(entry.path)
        table = partial(graph.root.tables.open, place, entry.version, branch=entry.owner)
        if is_first_touch(plan, entry):
            return look_up_rows(table, steps[key])
        return stage_step(graph.root.objects, table(), steps[key], allow_two_versions=True)

    found = run_per_table(one, list(steps))
    return {key: ready for key, ready in zip(steps, found, strict=True) if ready is not None}
