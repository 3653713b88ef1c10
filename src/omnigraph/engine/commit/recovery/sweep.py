"""Find interrupted writes and recover them, a branch at a time.

A process that holds a branch's lock knows that a record on that branch has no running owner. A branch whose
lock is taken is skipped. A record that cannot be read, or whose branch or tables cannot, blocks writes on its
own branch and nowhere else.

Errors that concern all records are raised: that they cannot be listed or read.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import StrEnum
from functools import partial

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.recovery import audit, sidecar
from omnigraph.engine.commit.recovery.actions import close_record, recover
from omnigraph.engine.commit.recovery.creations import undo_creations
from omnigraph.engine.commit.recovery.damage import is_damage, reason_of
from omnigraph.engine.commit.recovery.removals import finish_removals, pending_removals
from omnigraph.engine.commit.recovery.sidecar import Sidecar, Unreadable
from omnigraph.engine.commit.recovery.table_progress import Decision
from omnigraph.engine.commit.recovery.verdict import RecoveryContext, outcome_id
from omnigraph.engine.graph.lineage import RECOVERY, RECOVERY_ACTOR
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.errors import OmnigraphError, RecoveryRequired
from omnigraph.storage.concurrency import Together
from omnigraph.storage.locks import HeldLocks

_log = logging.getLogger(__name__)


class RecordStatus(StrEnum):
    """The status of a record after, or before, a recovery."""

    RECOVERED = "recovered"
    WAITING = "waiting"
    """It is recovered later: by a writer of its branch, or once that can be read."""
    STUCK = "stuck"
    """It can be neither finished nor undone: its branch or a table is damaged, or not as recorded."""
    BUSY = "busy"
    """Its branch is being written: the owner of the record is running."""
    UNREADABLE = "unreadable"
    DISCARDED = "discarded"
    """Its branch is gone."""
    GONE = "gone"
    """Its writer, or another recovery, removed it meanwhile."""


class RecoveryOutcome(StrEnum):
    """How an interrupted write ended."""

    FINISHED = "finished"
    UNDONE = "undone"


_OUTCOMES = {Decision.ROLL_FORWARD: RecoveryOutcome.FINISHED, Decision.ROLL_BACK: RecoveryOutcome.UNDONE}


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """One record and its status after a recovery."""

    operation_id: str
    branch: str | None
    status: RecordStatus
    reason: str = ""
    outcome: RecoveryOutcome | None = None
    """How a write that was recovered ended."""


def recover_branch(graph: OpenGraph, branch: str, held: HeldLocks, names: Sequence[str] | None = None) -> int:
    """Recover every record of a branch whose lock is held; returns how many.

    `names` are those of the files beside the records, where the caller has listed them under that lock.
    Raises `RecoveryRequired` when one cannot be recovered, so that it is not overwritten.
    """
    done = 0
    names = sidecar.without_running(sidecar.list_names(graph.root) if names is None else names)
    for record in _read_records(graph, names):
        if isinstance(record, Unreadable):
            if branch_of(graph, record) in (None, branch):
                raise RecoveryRequired(record.operation_id, record.reason)
        elif record.graph_branch == branch and not is_orphan(graph, record):
            done += _recover_own(graph, record, held)
    if branch == MAIN:
        finish_removals(graph, held, pending_removals(names))
    return done


def has_records(graph: OpenGraph, branch: str, names: Sequence[str]) -> bool:
    """Whether one of these records is, or may be, of a branch."""
    return any(
        branch_of(graph, record) in (None, branch)
        if isinstance(record, Unreadable)
        else record.graph_branch == branch and not is_orphan(graph, record)
        for record in _read_records(graph, names)
    )


def _recover_own(graph: OpenGraph, record: Sidecar, held: HeldLocks) -> bool:
    context = _make_context(graph, record, held)
    if context is None:
        return False
    try:
        ended = recover(context, only_forward=False)
    except OmnigraphError as error:
        if isinstance(error, RecoveryRequired) or not is_damage(error):
            raise
        raise RecoveryRequired(record.operation_id, error.message) from error
    if ended is None:
        return False
    close_record(context, ended)
    return True


def list_records(graph: OpenGraph) -> list[Sidecar | Unreadable]:
    """The writes on record, oldest first."""
    return _read_records(graph, sidecar.list_names(graph.root))


def _read_records(graph: OpenGraph, names: Sequence[str]) -> list[Sidecar | Unreadable]:
    found = sidecar.operations_among(names)
    failpoints.reach(failpoints.RECOVERY_POST_SIDECAR_LIST_PRE_READ)
    # A record that is gone by now belonged to a writer that finished.
    with Together(graph.root.layout.root) as calls:
        read = [calls.add(partial(sidecar.read, graph.root, operation_id)) for operation_id in found]
    return [record.answer for record in read if record.answer is not None]


def branch_of(graph: OpenGraph, record: Unreadable) -> str | None:
    """Return the branch of an unreadable record, from what is readable or from its lock."""
    return record.branch or graph.root.locks.branch_of_operation(record.operation_id)


def is_orphan(graph: OpenGraph, record: Sidecar) -> bool:
    """Whether the branch of a record was deleted, even if there is a new one of the same name."""
    root, branch = graph.root, record.graph_branch
    incarnation = root.forks.identity(root.layout.manifest, None if branch == MAIN else branch)
    if incarnation is None:
        return True
    return record.authority is not None and record.authority.branch_identifier != incarnation


def _make_context(graph: OpenGraph, listed: Sidecar, held: HeldLocks) -> RecoveryContext | None:
    """Re-read a record: its writer may have confirmed, or finished, while we waited for the lock."""
    record = sidecar.read(graph.root, listed.operation_id)
    if record is None:
        return None
    if isinstance(record, Unreadable):
        raise RecoveryRequired(record.operation_id, record.reason)
    coordinator = graph.coordinator(record.graph_branch)
    coordinator.forget()
    return RecoveryContext(graph.root, coordinator, held, record)


# --- the whole graph -----------------------------------------------------------------------------


def sweep(graph: OpenGraph, *, only_forward: bool) -> list[RecoveryReport]:
    """Recover the records of every branch that is not locked; never waits.

    A failure with the branch or the tables of one record is in its report, and the others are recovered. A
    failure to write the audit is raised, except with `only_forward`.
    """
    reports = []
    orphans: list[Sidecar] = []
    names = sidecar.without_running(sidecar.list_names(graph.root))
    for record in _read_records(graph, names):
        if isinstance(record, Unreadable):
            known = branch_of(graph, record)
            reports.append(RecoveryReport(record.operation_id, known, RecordStatus.UNREADABLE, record.reason))
            continue
        try:
            if is_orphan(graph, record):
                orphans.append(record)
                continue
            held = graph.root.locks.try_acquire([record.graph_branch])
        except OmnigraphError as error:
            reports.append(_report_failure(record, error))
            continue
        reports.append(_sweep_one(graph, record, held, only_forward=only_forward))
    # Last, so that their commits on main do not move the head under a sibling.
    reports += [_sweep_orphan(graph, record, only_forward=only_forward) for record in orphans]
    _sweep_removals(graph, names)
    if creations := sidecar.creations_among(names):
        undo_creations(graph, creations)
    return reports


def _sweep_removals(graph: OpenGraph, names: Sequence[str]) -> None:
    """Finish the removals of schema changes, unless main is being written: that writer does it."""
    pending = pending_removals(names)
    if not pending:
        return
    try:
        held = graph.root.locks.try_acquire([MAIN])
    except OmnigraphError as error:
        _log.warning("removals of schema changes %s are still pending: %s", ", ".join(pending), error)
        return
    if held is not None:
        with held:
            finish_removals(graph, held, pending)


def _report_failure(record: Sidecar, error: OmnigraphError) -> RecoveryReport:
    """Report a record that could not be recovered; only writers of its branch are affected."""
    return _report_and_log(
        record, RecordStatus.STUCK if is_damage(error) else RecordStatus.WAITING, reason_of(error)
    )


def _report_unrecorded(record: Sidecar, error: OmnigraphError, *, only_forward: bool) -> RecoveryReport:
    """Report or raise an audit failure of a recovered write; not raised where it would block writers."""
    if not only_forward and not is_damage(error):
        raise error
    return _report_and_log(record, RecordStatus.WAITING, reason_of(error))


def _report_and_log(record: Sidecar, status: RecordStatus, reason: str) -> RecoveryReport:
    operation_id, branch = record.operation_id, record.graph_branch
    _log.warning("operation %s on branch '%s' is %s: %s", operation_id, branch, status, reason)
    return RecoveryReport(operation_id, branch, status, reason)


def _sweep_one(
    graph: OpenGraph, record: Sidecar, held: HeldLocks | None, *, only_forward: bool
) -> RecoveryReport:
    operation_id, branch = record.operation_id, record.graph_branch
    if held is None:
        return RecoveryReport(operation_id, branch, RecordStatus.BUSY)
    with held:
        try:
            context = _make_context(graph, record, held)
        except RecoveryRequired as error:
            return _report_failure(record, error)
        if context is None:
            return RecoveryReport(operation_id, branch, RecordStatus.GONE)
        try:
            ended = recover(context, only_forward=only_forward)
        except OmnigraphError as error:
            return _report_failure(record, error)
        if ended is None:
            return RecoveryReport(operation_id, branch, RecordStatus.WAITING)
        try:
            close_record(context, ended)
        except OmnigraphError as error:
            return _report_unrecorded(record, error, only_forward=only_forward)
    return RecoveryReport(operation_id, branch, RecordStatus.RECOVERED, outcome=_OUTCOMES[ended.decision])


def _sweep_orphan(graph: OpenGraph, record: Sidecar, *, only_forward: bool) -> RecoveryReport:
    try:
        return _discard(graph, record)
    except OmnigraphError as error:
        return _report_unrecorded(record, error, only_forward=only_forward)


def _discard(graph: OpenGraph, record: Sidecar) -> RecoveryReport:
    """Discard the record of a deleted branch, and audit that."""
    root, branch = graph.root, record.graph_branch
    held = root.locks.try_acquire([MAIN, branch])
    if held is None:
        return RecoveryReport(record.operation_id, branch, RecordStatus.BUSY)
    with held:
        if sidecar.read(root, record.operation_id) is None:
            return RecoveryReport(record.operation_id, branch, RecordStatus.DISCARDED)
        if not is_orphan(graph, record):
            return RecoveryReport(record.operation_id, branch, RecordStatus.WAITING, "its branch came back")
        failpoints.reach(failpoints.RECOVERY_ORPHAN_DISCARD_AUDIT_APPEND)
        commit_id = record.rollback_commit_id or outcome_id(record, "back")
        held.require()
        undone = NewCommit(commit_id, actor=RECOVERY_ACTOR, operation=RECOVERY)
        publish(graph.coordinator(MAIN), ManifestChanges(), undone)
        row = audit.AuditRow(
            operation_id=record.operation_id,
            kind="OrphanedBranchDiscarded",
            commit_id=commit_id,
            writer_kind=record.writer_kind,
            actor=record.actor_id,
            outcomes=(),
            created_at=root.clock(),
        )
        audit.record_recovery(root, row)
        sidecar.remove(root, record.operation_id)
    return RecoveryReport(record.operation_id, branch, RecordStatus.DISCARDED)


def has_leftovers(root: Root) -> bool:
    """Whether there is anything to recover, with one list call."""
    names = sidecar.without_running(sidecar.list_names(root))
    pending = (sidecar.operations_among(names), pending_removals(names), sidecar.creations_among(names))
    return any(pending)


def finish_completed_writes(graph: OpenGraph, branch: str | None = None) -> None:
    """Publish interrupted writes that were complete, before any write; usually one list call.

    Raises `RecoveryRequired` when a record of `branch` cannot be recovered.
    """
    if not has_leftovers(graph.root):
        return
    for report in sweep(graph, only_forward=True):
        if report.status is RecordStatus.STUCK and report.branch == branch:
            raise RecoveryRequired(report.operation_id, report.reason)
