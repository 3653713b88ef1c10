"""Find tables whose newest version is not the one their branch publishes.

A write in progress looks like one that a dead process left. So each such table is checked again: first the
lock and the record of the write, then what the branch publishes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.recovery.drift import DriftKind, judge_drift
from omnigraph.engine.commit.recovery.forecast import RecoveryForecast
from omnigraph.engine.commit.recovery.sidecar import Sidecar
from omnigraph.engine.commit.recovery.sweep import list_records as records_of
from omnigraph.engine.graph.coordinator import LoadedBranch
from omnigraph.engine.graph.manifest import MAIN, TableEntry
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.maintenance.health import (
    ON_RECORD,
    DriftedTable,
    UnreadablePart,
)
from omnigraph.errors import (
    BranchNotFound,
    StorageFailure,
)
from omnigraph.storage.references import Incarnation
from omnigraph.storage.tables import Table

MAX_LOOKS = 3
"""How often to check a table that changes between checks; after that, it has an active writer."""


@dataclass(frozen=True, slots=True)
class OwnTable:
    """A table that a branch owns: the version it publishes, and the newest."""

    branch: str
    incarnation: Incarnation
    entry: TableEntry
    shown: Table | None
    """None when the published version is gone."""
    tip: Table


def open_own_tables(
    graph: OpenGraph, branches: Mapping[str, LoadedBranch]
) -> tuple[list[OwnTable], list[UnreadablePart]]:
    """Open the tables that branches own; inherited tables belong to another branch."""
    found, unread = [], []
    for branch, loaded in branches.items():
        own = [entry for entry in loaded.state.entries().values() if _is_own(entry, branch)]
        for entry in own:
            try:
                found.append(_open_own_table(graph, branch, loaded.identity, entry))
            except StorageFailure as failure:
                unread.append(UnreadablePart(branch, entry.key, failure.message))
    return found, unread


def _is_own(entry: TableEntry, branch: str) -> bool:
    return (entry.owner or MAIN) == branch


def _open_own_table(graph: OpenGraph, branch: str, incarnation: Incarnation, entry: TableEntry) -> OwnTable:
    place, tables = graph.root.layout.table(entry.path), graph.root.tables
    tip = tables.tip(place, branch=entry.owner)
    behind = tip.version < entry.version
    shown = None if behind else tables.open(place, entry.version, branch=entry.owner)
    return OwnTable(branch, incarnation, entry, shown, tip)


def find_drift(
    graph: OpenGraph, tables: Sequence[OwnTable], records: Sequence[RecoveryForecast]
) -> Iterator[DriftedTable]:
    interrupted = {record.operation_id for record in records if not record.busy}
    for one in tables:
        found = _confirm_drift(graph, one, interrupted)
        if found is not None:
            yield found


def _confirm_drift(graph: OpenGraph, one: OwnTable, interrupted: Collection[str]) -> DriftedTable | None:
    """Return the drift of a table, or None when a write in progress explains it.

    A write has a record from before its first version until the branch publishes all of them; upkeep has no
    record, but holds the lock that long. So after the version was seen, checked in this order: no lock, no
    record and no change of what the branch publishes mean that no process is going to publish it.
    """
    for _ in range(MAX_LOOKS):
        if one.tip.version == one.entry.version:
            return None
        is_taken = graph.root.taken(one.branch) is not None
        writes = _pending_writes(graph, one)
        now = _reload_entry(graph, one)
        if now is None:
            return None
        if now == (one.incarnation, one.entry):
            return _drift_on_record(one, writes, interrupted) if writes else _judge_unrecorded(one, is_taken)
        one = _open_own_table(graph, one.branch, *now)
    return None


def _pending_writes(graph: OpenGraph, one: OwnTable) -> set[str]:
    """Return the recorded operations that change a table, in this incarnation of its branch."""
    return {
        record.operation_id
        for record in records_of(graph)
        if isinstance(record, Sidecar)
        and record.graph_branch == one.branch
        and (record.authority is None or record.authority.branch_identifier == one.incarnation)
        and any(pin.table_key == one.entry.key for pin in record.tables)
    }


def _reload_entry(graph: OpenGraph, one: OwnTable) -> tuple[Incarnation, TableEntry] | None:
    """Return what a branch publishes of a table now; None when it no longer owns the table."""
    try:
        loaded = graph.load(one.branch)
    except BranchNotFound:
        return None
    entry = loaded.state.entries().get(one.entry.key)
    return (loaded.identity, entry) if entry is not None and _is_own(entry, one.branch) else None


def _drift_on_record(
    one: OwnTable, writes: Collection[str], interrupted: Collection[str]
) -> DriftedTable | None:
    """Return the drift of a table with recorded writes; None for a write that is active or just began."""
    return _report_drift(ON_RECORD, one) if any(write in interrupted for write in writes) else None


def _judge_unrecorded(one: OwnTable, is_taken: bool) -> DriftedTable | None:
    judged = judge_drift(one.tip, one.entry.version)
    # The holder of the lock may be publishing it now; otherwise the next one does.
    under_way = is_taken and judged.kind is DriftKind.VERIFIED_MAINTENANCE
    return None if under_way else _report_drift(judged.cause, one)


def _report_drift(cause: str, one: OwnTable) -> DriftedTable:
    return DriftedTable(one.entry.key, one.branch, one.entry.version, one.tip.version, cause)
