"""Tables that stand above what the manifest publishes although no write is on record for them.

Two kinds of that are known and harmless. A recovery that was paused and woke up late restores a table
once more: the rows are those of the pin it knew. An index build or compaction of a process that lost
its lock changes how rows are stored, never which. Anything else is for a person to judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omnigraph.engine.lineage import RECOVERY_ACTOR
from omnigraph.engine.manifest import Entry, TableVersion
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.publish import Changes, Lineage, publish
from omnigraph.engine.recovery.classify import OPERATION, RESTORED, is_restore_of
from omnigraph.errors import Conflict, CorruptGraph
from omnigraph.storage.locks import Held
from omnigraph.storage.staging import commit_staged, stage_restore
from omnigraph.storage.tables import Table
from omnigraph.storage.transactions import Authorship, history


def settle_drift(graph: OpenGraph, branch: str, held: Held, entries: Sequence[Entry]) -> bool:
    """Bring the manifest and these tables together where that is safe; True when something was published."""
    settled = []
    for entry in entries:
        tip = graph.root.tables.tip(graph.root.layout.table(entry.path), branch=entry.owner)
        if tip.version < entry.version:
            raise CorruptGraph(
                f"table '{entry.key}' is at version {tip.version}, behind the published {entry.version}",
                object_id=entry.key,
            )
        if tip.version > entry.version:
            settled.append(_settled(entry, tip, held))
    if not settled:
        return False
    held.require()
    publish(
        graph.coordinator(branch),
        Changes(versions=tuple(settled)),
        Lineage(graph.root.new_id(), actor=RECOVERY_ACTOR),
        expected={entry.key: entry.version for entry in entries},
    )
    return True


def _settled(entry: Entry, tip: Table, held: Held) -> TableVersion:
    pinned = TableVersion(entry.key, entry.version, entry.owner, entry.row_count)
    made = history(tip, entry.version, tip.version)
    if all(is_restore_of(one) for one in made):
        held.require()
        marks = {OPERATION: _operation(made), RESTORED: str(entry.version)}
        table = commit_staged(stage_restore(tip, entry.version).signed(marks))
        return replace(pinned, version=table.version)
    if all(one.is_maintenance for one in made):
        return replace(pinned, version=tip.version)
    raise Conflict(
        f"table '{entry.key}' was changed outside of a commit: it is at version {tip.version}, "
        f"the graph publishes version {entry.version}",
        remedy="see `omnigraph doctor`, and restore the table from a backup if nobody knows the change",
    )


def _operation(made: Sequence[Authorship]) -> str:
    return made[-1].properties[OPERATION]
