"""Tables that stand above what the manifest publishes although no write is on record for them.

Two kinds of that are known and harmless. A recovery that was paused and woke up late restores a table
once more: the rows are those of the pin it knew. An index build or compaction of a process that lost
its lock changes how rows are stored, never which. Anything else is for a person to judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.engine.lineage import RECOVERY_ACTOR
from omnigraph.engine.manifest import Entry, TableVersion
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.publish import Changes, Lineage, publish, repin
from omnigraph.engine.recovery.classify import OPERATION, RESTORED, is_restore_of
from omnigraph.errors import CorruptGraph, TableDrift
from omnigraph.storage.locks import Held
from omnigraph.storage.staging import commit_staged, stage_restore
from omnigraph.storage.tables import Table
from omnigraph.storage.transactions import UNKNOWN, Authorship, history

LATE_RECOVERY = "a late recovery"
MAINTENANCE = "maintenance"
MISSING = "versions are missing"


class DriftKind(StrEnum):
    """Whether the versions above the published one are known to hold its rows."""

    VERIFIED_MAINTENANCE = "verified_maintenance"
    SUSPICIOUS = "suspicious"
    """Something changed rows."""
    UNVERIFIABLE = "unverifiable"
    """Nobody can tell what happened."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What made a table stand elsewhere than its branch says."""

    kind: DriftKind
    cause: str
    made: tuple[Authorship, ...] = ()
    """Who made the versions above the published one."""

    @property
    def is_late_recovery(self) -> bool:
        """Whether recovery restored the table once more: its rows are those of a pin, maybe an older one."""
        return bool(self.made) and all(is_restore_of(one) for one in self.made)


def judge_drift(tip: Table, pinned: int) -> Judgement:
    """What lies between the published version of a table and its newest one."""
    if tip.version < pinned:
        return Judgement(DriftKind.UNVERIFIABLE, MISSING)
    made = history(tip, pinned, tip.version)
    if all(is_restore_of(one) for one in made):
        return Judgement(DriftKind.VERIFIED_MAINTENANCE, LATE_RECOVERY, made)
    if all(one.is_maintenance for one in made):
        return Judgement(DriftKind.VERIFIED_MAINTENANCE, MAINTENANCE, made)
    if any(one.operation == UNKNOWN for one in made):
        return Judgement(DriftKind.UNVERIFIABLE, "a change that cannot be read", made)
    return Judgement(DriftKind.SUSPICIOUS, "a change outside of a commit", made)


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
        judged = judge_drift(tip, entry.version)
        if judged.is_late_recovery:
            restored.append(restored_again(entry, tip, judged, held))
        elif judged.kind is DriftKind.VERIFIED_MAINTENANCE:
            kept.append(TableVersion(entry.key, tip.version, entry.owner, entry.row_count))
        else:
            raise TableDrift(entry.key, published=entry.version, head=tip.version)
    return restored, kept


def _stands_still(graph: OpenGraph, entry: Entry) -> bool:
    """Whether a table has no newer version than the published one; callers hold the branch's lock.

    What is published is never collected, nor what is above it, so the next version is there as soon as any
    newer one is. Opening the newest to see the same costs more with every version that is kept.
    """
    root = graph.root
    table = root.tables.open(root.layout.table(entry.path), entry.version, branch=entry.owner)
    return table.stands_still()


def restored_again(entry: Entry, tip: Table, judged: Judgement, held: Held) -> TableVersion:
    """The version that holds the published rows again after a recovery that came too late."""
    held.require()
    marks = {OPERATION: judged.made[-1].properties[OPERATION], RESTORED: str(entry.version)}
    table = commit_staged(stage_restore(tip, entry.version).signed(marks))
    return TableVersion(entry.key, table.version, entry.owner, entry.row_count)
