"""Drift: tables with versions above the published one that no recorded write explains.

Two kinds are harmless. A recovery that was paused restores a table again: its rows are those of the pin it
knew. An index build or compaction of a process that lost its lock changes how rows are stored, never which.
Anything else is for a person to judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import partial

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.recovery.table_progress import OPERATION, RESTORED, is_restore_of
from omnigraph.engine.graph.lineage import RECOVERY, RECOVERY_ACTOR
from omnigraph.engine.graph.manifest import TableEntry, TableVersion
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish, repin
from omnigraph.errors import CorruptGraph, TableDrift
from omnigraph.storage.concurrency import Together
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.staging import (
    UNKNOWN,
    TransactionInfo,
    commit_staged,
    read_transactions,
    stage_restore,
)
from omnigraph.storage.tables import Table

LATE_RECOVERY = "a late recovery"
MAINTENANCE = "maintenance"
MISSING = "versions are missing"


class DriftKind(StrEnum):
    """Whether the versions above the published one are known to hold its rows."""

    VERIFIED_MAINTENANCE = "verified_maintenance"
    SUSPICIOUS = "suspicious"
    """Something changed rows."""
    UNVERIFIABLE = "unverifiable"
    """The cause is unknown."""


@dataclass(frozen=True, slots=True)
class DriftJudgement:
    """The cause of drift."""

    kind: DriftKind
    cause: str
    made: tuple[TransactionInfo, ...] = ()
    """Who made the versions above the published one."""

    @property
    def is_late_recovery(self) -> bool:
        """Whether recovery restored the table again: its rows are those of a pin, maybe an older one."""
        return bool(self.made) and all(is_restore_of(one) for one in self.made)


def judge_drift(tip: Table, pinned: int) -> DriftJudgement:
    """Judge the versions between the published version of a table and its newest one."""
    if tip.version < pinned:
        return DriftJudgement(DriftKind.UNVERIFIABLE, MISSING)
    made = read_transactions(tip, pinned, tip.version)
    if all(is_restore_of(one) for one in made):
        return DriftJudgement(DriftKind.VERIFIED_MAINTENANCE, LATE_RECOVERY, made)
    if all(one.is_maintenance for one in made):
        return DriftJudgement(DriftKind.VERIFIED_MAINTENANCE, MAINTENANCE, made)
    if any(one.operation == UNKNOWN for one in made):
        return DriftJudgement(DriftKind.UNVERIFIABLE, "a change that cannot be read", made)
    return DriftJudgement(DriftKind.SUSPICIOUS, "a change outside of a commit", made)


def find_drift(graph: OpenGraph, entries: Sequence[TableEntry]) -> list[TableEntry]:
    """Return those of some tables that have newer versions than the published one; callers hold the lock."""
    with Together(graph.root.layout.root) as calls:
        found = [calls.add(partial(_is_at_tip, graph, entry)) for entry in entries]
    return [entry for entry, is_at_tip in zip(entries, found, strict=True) if not is_at_tip.answer]


def resolve_drift(graph: OpenGraph, branch: str, held: HeldLocks, entries: Sequence[TableEntry]) -> bool:
    """Publish the drift of these tables where that is safe; True when something was published.

    `entries` are those that `find_drift` found. A late recovery gets a commit. Maintenance does not: an
    interrupted upkeep changes no rows.
    """
    restored, kept = _sort_by_kind(graph, held, entries)
    expected = {entry.key: entry.version for entry in entries}
    if kept:
        held.require()
        repin(graph.coordinator(branch), kept, expected={one.key: expected[one.key] for one in kept})
    if restored:
        held.require()
        publish(
            graph.coordinator(branch),
            ManifestChanges(versions=tuple(restored)),
            NewCommit(graph.root.new_id(), actor=RECOVERY_ACTOR, operation=RECOVERY),
            expected={one.key: expected[one.key] for one in restored},
        )
    return bool(restored or kept)


def _sort_by_kind(
    graph: OpenGraph, held: HeldLocks, entries: Sequence[TableEntry]
) -> tuple[list[TableVersion], list[TableVersion]]:
    """Return the versions to publish: of restored tables, and of tables that were only maintained."""
    restored, kept = [], []
    for entry in entries:
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
            restored.append(restore_again(entry, tip, judged, held))
        elif judged.kind is DriftKind.VERIFIED_MAINTENANCE:
            kept.append(TableVersion(entry.key, tip.version, entry.owner, entry.row_count))
        else:
            raise TableDrift(entry.key, published=entry.version, head=tip.version)
    return restored, kept


def _is_at_tip(graph: OpenGraph, entry: TableEntry) -> bool:
    """Whether a table has no newer version than the published one; callers hold the branch's lock.

    Published versions and those above are never collected, so the next version exists if any newer one does.
    Checking for it is cheaper than opening the newest version.
    """
    root = graph.root
    table = root.tables.open(root.layout.table(entry.path), entry.version, branch=entry.owner)
    return table.is_newest()


def restore_again(entry: TableEntry, tip: Table, judged: DriftJudgement, held: HeldLocks) -> TableVersion:
    """Restore the published rows after a late recovery; returns the new version."""
    held.require()
    marks = {OPERATION: judged.made[-1].properties[OPERATION], RESTORED: str(entry.version)}
    table = commit_staged(stage_restore(tip, entry.version).with_properties(marks))
    return TableVersion(entry.key, table.version, entry.owner, entry.row_count)
