"""A compaction in parts that travel as JSON, for other processes to carry out before one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lance.optimize import CompactionTask, RewriteResult

from omnigraph.storage.tables import Table
from omnigraph.storage.truncation import require_complete_files
from omnigraph.storage.upkeep import CompactionPlan, RewrittenFragments

# Declared in the documentation of Lance only.
_task: Callable[[str], Any] = CompactionTask.from_json  # type: ignore[attr-defined]
_result: Callable[[str], Any] = RewriteResult.from_json  # type: ignore[attr-defined]


def pack_tasks(plan: CompactionPlan) -> list[str]:
    """Return the tasks of a plan as JSON, each for a process that has the same version of the table open."""
    return [task.json() for task in plan.tasks]


def rewrite_part(table: Table, packed: str) -> str:
    """Write the new files of one part; the table does not move."""
    with table.access.call("rewrite", table.uri):
        result = _task(packed).execute(table.native)
        require_complete_files("rewrite", table.location, table.uri, result)
    return str(result.json())


def unpack_results(plan: CompactionPlan, packed: Iterable[str]) -> RewrittenFragments:
    """What all parts wrote, to be put in place at once."""
    return RewrittenFragments(plan.table, tuple(_result(one) for one in packed))
