"""A compaction in parts that travel: each may be carried out by another process, before one commit."""

from __future__ import annotations

import pickle
from collections.abc import Iterable

from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import CompactionPlan, Rewritten
from omnigraph.storage.whole import require_whole


def packed_tasks(plan: CompactionPlan) -> list[bytes]:
    """The parts of a plan, each for whoever has the same version of the same table open."""
    return [pickle.dumps(task) for task in plan.tasks]


def rewrite_part(table: Table, packed: bytes) -> bytes:
    """Write the new files of one part; the table does not move."""
    with table.access.call("rewrite", table.uri):
        result = pickle.loads(packed).execute(table.native)
        require_whole("rewrite", table.location, table.uri, result)
    return pickle.dumps(result)


def rewritten_parts(plan: CompactionPlan, packed: Iterable[bytes]) -> Rewritten:
    """What all parts wrote, to be put in place at once."""
    return Rewritten(plan.table, tuple(pickle.loads(one) for one in packed))
