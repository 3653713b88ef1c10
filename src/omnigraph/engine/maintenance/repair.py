"""`repair`: tables whose newest version is not published, and for which no write is on record.

It changes what is published, never rows. A version known to hold the published rows is published as it is;
anything else only with `force`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.recovery.drift import DriftJudgement, DriftKind, judge_drift, restore_again
from omnigraph.engine.commit.recovery.forecast import forecast_recovery
from omnigraph.engine.commit.recovery.sweep import recover_branch
from omnigraph.engine.graph.lineage import FORCED_REPAIR_ACTOR, REPAIR, REPAIR_ACTOR, Commit
from omnigraph.engine.graph.manifest import MAIN, TableEntry, TableVersion
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.table_types import TableType
from omnigraph.errors import BadRequest, BranchNotFound, OmnigraphError, RecoveryRequired
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.tables import Table


class RepairAction(StrEnum):
    """What was done about a table."""

    NO_OP = "no_op"
    """Its newest version is published, or a recorded write explains why not."""
    PREVIEW = "preview"
    HEALED = "healed"
    FORCED = "forced"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class RepairedTable:
    """A table that a branch has of its own."""

    key: str
    branch: str
    pinned: int
    """The version that the branch publishes."""
    head: int
    """Its newest version."""
    action: RepairAction
    classification: DriftKind | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class RepairResult:
    """What was found and done."""

    tables: tuple[RepairedTable, ...]
    commits: tuple[Commit, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was refused."""
        return all(one.action is not RepairAction.REFUSED for one in self.tables)


@dataclass(frozen=True, slots=True)
class _Drift:
    entry: TableEntry
    tip: Table
    judged: DriftJudgement
    misfits: tuple[str, ...] = ()
    """What is wrong with its columns: it could not be read or written with the schema."""

    @property
    def cause(self) -> str:
        wrong = (
            f"; its columns are not those of the schema: {', '.join(self.misfits)}" if self.misfits else ""
        )
        return f"{self.judged.cause}{wrong}"


def repair(
    graph: OpenGraph, *, confirm: bool = False, force: bool = False, actor: str | None = None
) -> RepairResult:
    """Check every table of every branch, and with `confirm` publish what is known to be harmless.

    With `force` any newest version is published if it has the columns of the schema. Its rows were never
    checked.
    """
    if force and not confirm:
        raise BadRequest("force without confirm does nothing", remedy="set both")
    graph.permissions.require_admin(actor, dry_run=not confirm)
    tables: list[RepairedTable] = []
    commits: list[Commit] = []
    for branch in graph.branch_names():
        # It may be deleted while the others are checked.
        with suppress(BranchNotFound):
            if confirm:
                found, made = _repair_branch(graph, branch, force=force)
                commits += made
            else:
                found = _preview_branch(graph, branch)
            tables += found
    return RepairResult(tuple(tables), tuple(commits))


def _preview_branch(graph: OpenGraph, branch: str) -> list[RepairedTable]:
    recorded = {key for one in forecast_recovery(graph) if one.branch == branch for key in one.tables}
    return [_preview_table(branch, one, recorded) for one in _inspect_tables(graph, branch)]


def _preview_table(branch: str, found: _Drift | RepairedTable, recorded: set[str]) -> RepairedTable:
    if isinstance(found, RepairedTable):
        return found
    if found.entry.key in recorded:
        report = _report(branch, found, RepairAction.NO_OP, "a write is on record; see `omnigraph recover`")
        return replace(report, classification=None)
    return _report(branch, found, RepairAction.PREVIEW, found.cause)


def _repair_branch(graph: OpenGraph, branch: str, *, force: bool) -> tuple[list[RepairedTable], list[Commit]]:
    with graph.root.locks.hold([branch]) as held:
        try:
            recover_branch(graph, branch, held)
        except RecoveryRequired as error:
            return [_report_blocked(branch, one, error) for one in _inspect_tables(graph, branch)], []
        found = list(_inspect_tables(graph, branch))
        done = [one if isinstance(one, RepairedTable) else _decide(branch, one, force=force) for one in found]
        acts = list(zip(found, done, strict=True))
        healed = [one for one, act in acts if isinstance(one, _Drift) and act.action is RepairAction.HEALED]
        forced = [one for one, act in acts if isinstance(one, _Drift) and act.action is RepairAction.FORCED]
        commits = [
            *_publish_drift(graph, branch, held, healed, REPAIR_ACTOR),
            *_publish_drift(graph, branch, held, forced, FORCED_REPAIR_ACTOR),
        ]
    return done, commits


def _inspect_tables(graph: OpenGraph, branch: str) -> Iterator[_Drift | RepairedTable]:
    """Yield the drift of each table that a branch owns, or the finished report if it has none."""
    owner, targets = None if branch == MAIN else branch, graph.schema().targets
    for entry in graph.load(branch).state.entries().values():
        if entry.owner != owner:
            continue
        head = 0
        try:
            tip = graph.root.tables.tip(graph.root.layout.table(entry.path), branch=owner)
            head = tip.version
            drift = None if head == entry.version else _judge_table(entry, tip, targets[entry.key])
        except OmnigraphError as error:
            unread = RepairedTable(
                entry.key, branch, entry.version, head, RepairAction.REFUSED, DriftKind.UNVERIFIABLE
            )
            yield replace(unread, reason=error.message)
            continue
        yield drift or RepairedTable(entry.key, branch, entry.version, head, RepairAction.NO_OP)


def _judge_table(entry: TableEntry, tip: Table, target: TableType) -> _Drift:
    return _Drift(
        entry, tip, judge_drift(tip, entry.version), tuple(_compare_columns(tip.schema, target.schema))
    )


def _compare_columns(found: pa.Schema, wanted: pa.Schema) -> Iterator[str]:
    """How the columns of a table differ from what its type declares."""
    for field in wanted:
        if field.name not in found.names:
            yield f"`{field.name}` is missing"
        elif found.field(field.name).type != field.type:
            yield f"`{field.name}` is {found.field(field.name).type} and not {field.type}"
    yield from (f"`{name}` is not declared" for name in found.names if name not in wanted.names)


def _report(branch: str, drift: _Drift, action: RepairAction, reason: str) -> RepairedTable:
    entry = drift.entry
    return RepairedTable(
        entry.key, branch, entry.version, drift.tip.version, action, drift.judged.kind, reason
    )


def _report_blocked(branch: str, found: _Drift | RepairedTable, error: RecoveryRequired) -> RepairedTable:
    return (
        found
        if isinstance(found, RepairedTable)
        else _report(branch, found, RepairAction.REFUSED, error.message)
    )


def _decide(branch: str, drift: _Drift, *, force: bool) -> RepairedTable:
    cause = drift.cause
    if drift.judged.kind is DriftKind.VERIFIED_MAINTENANCE:
        return _report(branch, drift, RepairAction.HEALED, cause)
    if not force:
        return _report(branch, drift, RepairAction.REFUSED, cause)
    if drift.tip.version < drift.entry.version or drift.misfits:
        return _report(branch, drift, RepairAction.REFUSED, f"{cause}; restore the table from a backup")
    return _report(branch, drift, RepairAction.FORCED, cause)


def _publish_drift(
    graph: OpenGraph, branch: str, held: HeldLocks, drifts: Sequence[_Drift], actor: str
) -> Iterable[Commit]:
    """Publish the newest versions of the tables, in one commit."""
    if not drifts:
        return []
    versions = tuple(_version_to_publish(drift, held) for drift in drifts)
    held.require()
    done = publish(
        graph.coordinator(branch),
        ManifestChanges(versions=versions),
        NewCommit(graph.root.new_id(), actor=actor, operation=REPAIR),
        expected={drift.entry.key: drift.entry.version for drift in drifts},
    )
    return [done.commit]


def _version_to_publish(drift: _Drift, held: HeldLocks) -> TableVersion:
    entry, tip = drift.entry, drift.tip
    if drift.judged.is_late_recovery:
        return restore_again(entry, tip, drift.judged, held)
    if drift.judged.kind is DriftKind.VERIFIED_MAINTENANCE:
        return TableVersion(entry.key, tip.version, entry.owner, entry.row_count)
    return TableVersion(entry.key, tip.version, entry.owner, tip.count())
