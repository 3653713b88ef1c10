"""Tables that stand above what the manifest publishes although no write is on record for them.

Two kinds of that are known and harmless. A recovery that was paused and woke up late restores a table
once more: the rows are those of the pin it knew. An index build or compaction of a process that lost
its lock changes how rows are stored, never which. Anything else is for a person to judge.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.engine.lineage import RECOVERY_ACTOR
from omnigraph.engine.manifest import Entry, TableVersion
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.publish import Changes, Lineage, publish, repin
from omnigraph.engine.recovery.classify import OPERATION, RESTORED, is_restore_of
from omnigraph.errors import Conflict, CorruptGraph
from omnigraph.storage.locks import Held
from omnigraph.storage.staging import commit_staged, stage_restore
from omnigraph.storage.tables import Table
from omnigraph.storage.transactions import Authorship, history


def settle_drift(graph: OpenGraph, branch: str, held: Held, entries: Sequence[Entry]) -> bool:
    """Bring the manifest and these tables together where that is safe; True when something was published.

    What a late recovery restored is told by a commit. Maintenance is not: it is what upkeep does after a
    write, and a process that died in the middle of it left nothing that anybody has to know of.
    """
    restored, kept = _settled_by_kind(graph, held, entries)
    expected = {entry.key: entry.version for entry in entries}
    if kept:
        held.require()
        repin(graph.coordinator(branch), kept, expected={one.key: expected[one.key] for one in kept})
    if restored:
        held.require()
        publish(
            graph.coordinator(branch),
            Changes(versions=tuple(restored)),
            Lineage(graph.root.new_id(), actor=RECOVERY_ACTOR),
            expected={one.key: expected[one.key] for one in restored},
        )
    return bool(restored or kept)


def _settled_by_kind(
    graph: OpenGraph, held: Held, entries: Sequence[Entry]
) -> tuple[list[TableVersion], list[TableVersion]]:
    """The versions to be published: of tables that were restored, and of those that were only maintained."""
    restored, kept = [], []
    for entry in entries:
        if _stands_still(graph, entry):
            continue
        tip = graph.root.tables.tip(graph.root.layout.table(entry.path), branch=entry.owner)
        if tip.version < entry.version:
            raise CorruptGraph(
                f"table '{entry.key}' is at version {tip.version}, behind the published {entry.version}",
                object_id=entry.key,
            )
        if tip.version == entry.version:
            continue
        made = history(tip, entry.version, tip.version)
        if all(one.is_maintenance for one in made):
            kept.append(TableVersion(entry.key, tip.version, entry.owner, entry.row_count))
        else:
            restored.append(_restored(entry, tip, made, held))
    return restored, kept


def _stands_still(graph: OpenGraph, entry: Entry) -> bool:
    """Whether a table of main has no newer version, asked through the handle that a write has open anyway.

    Opening the newest version to see the same costs more with every version there is.
    """
    if entry.owner is not None:
        return False
    root = graph.root
    return root.tables.open(root.layout.table(entry.path), entry.version).latest_version() == entry.version


def _restored(entry: Entry, tip: Table, made: Sequence[Authorship], held: Held) -> TableVersion:
    if all(is_restore_of(one) for one in made):
        held.require()
        marks = {OPERATION: _operation(made), RESTORED: str(entry.version)}
        table = commit_staged(stage_restore(tip, entry.version).signed(marks))
        return TableVersion(entry.key, table.version, entry.owner, entry.row_count)
    raise Conflict(
        f"table '{entry.key}' was changed outside of a commit: it is at version {tip.version}, "
        f"the graph publishes version {entry.version}",
        remedy="see `omnigraph doctor`, and restore the table from a backup if nobody knows the change",
    )


def _operation(made: Sequence[Authorship]) -> str:
    return made[-1].properties[OPERATION]
