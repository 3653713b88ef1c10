"""Finding interrupted writes and dealing with them, a branch at a time.

Whoever holds a branch's lock knows that a record on that branch has no living owner. A branch whose
lock is taken is alive and is left alone. A record that cannot be read blocks writes on its own branch
and nowhere else.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum

from omnigraph import failpoints
from omnigraph.engine.lineage import RECOVERY_ACTOR
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.publish import Changes, Lineage, publish
from omnigraph.engine.recovery import audit, sidecar
from omnigraph.engine.recovery.actions import Scene, observe, outcome_id, recover, visible_outcome
from omnigraph.engine.recovery.classify import Decision, decide
from omnigraph.engine.recovery.sidecar import Sidecar, Unreadable
from omnigraph.errors import BranchNotFound, Conflict, LockLost, RecoveryRequired
from omnigraph.storage.locks import Held

_log = logging.getLogger(__name__)


class Found(StrEnum):
    """What became, or would become, of a record."""

    RECOVERED = "recovered"
    WAITING = "waiting"
    """It must be undone, and only a writer of its branch may do that."""
    BUSY = "busy"
    """Its branch is being written: the record has a living owner."""
    UNREADABLE = "unreadable"
    DISCARDED = "discarded"
    """Its branch is gone."""


@dataclass(frozen=True, slots=True)
class Report:
    """One record and what became of it."""

    operation_id: str
    branch: str | None
    found: Found
    reason: str = ""


def recover_branch(graph: OpenGraph, branch: str, held: Held, *, only_forward: bool = False) -> int:
    """Deal with every record of a branch whose lock is held; how many were dealt with.

    Raises `RecoveryRequired` when one of them cannot be, so that nobody writes over it.
    """
    done = 0
    for record in _records(graph):
        if isinstance(record, Unreadable):
            if _concerns(graph, record, branch):
                raise RecoveryRequired(record.operation_id, record.reason)
        elif record.graph_branch == branch and not _is_orphan(graph, record):
            done += _recover(graph, record.operation_id, held, only_forward=only_forward)
    return done


def _records(graph: OpenGraph) -> list[Sidecar | Unreadable]:
    failpoints.reach(failpoints.RECOVERY_SIDECAR_LIST)
    found = sidecar.operations(graph.root)
    failpoints.reach(failpoints.RECOVERY_POST_SIDECAR_LIST_PRE_READ)
    # A record that is gone by now belonged to a writer that finished.
    read = (sidecar.read(graph.root, operation_id) for operation_id in found)
    return [record for record in read if record is not None]


def _concerns(graph: OpenGraph, record: Unreadable, branch: str) -> bool:
    known = record.branch or graph.root.locks.branch_of_operation(record.operation_id)
    return known is None or known == branch


def _is_orphan(graph: OpenGraph, record: Sidecar) -> bool:
    """Whether the branch of a record is gone, even if there is a new one of the same name."""
    root, branch = graph.root, record.graph_branch
    life = root.forks.identity(root.layout.manifest, None if branch == MAIN else branch)
    if life is None:
        return True
    return record.authority is not None and record.authority.branch_identifier != life


def _recover(graph: OpenGraph, operation_id: str, held: Held, *, only_forward: bool) -> int:
    # Read anew under the lock: its writer may have confirmed, or finished, while we waited.
    record = sidecar.read(graph.root, operation_id)
    if record is None:
        return 0
    if isinstance(record, Unreadable):
        raise RecoveryRequired(operation_id, record.reason)
    coordinator = graph.coordinator(record.graph_branch)
    coordinator.forget()
    return int(recover(Scene(graph.root, coordinator, held, record), only_forward=only_forward))


# --- the whole graph -----------------------------------------------------------------------------


def sweep(graph: OpenGraph, *, only_forward: bool) -> list[Report]:
    """Deal with the records of every branch that is free at this moment; never waits."""
    reports = []
    orphans: list[Sidecar] = []
    for record in _records(graph):
        if isinstance(record, Unreadable):
            reports.append(Report(record.operation_id, record.branch, Found.UNREADABLE, record.reason))
        elif _is_orphan(graph, record):
            orphans.append(record)
        else:
            reports.append(_sweep_one(graph, record, only_forward=only_forward))
    # Last, so that what they note on main moves no head under a sibling.
    reports += [_discard(graph, record) for record in orphans]
    return reports


def _sweep_one(graph: OpenGraph, record: Sidecar, *, only_forward: bool) -> Report:
    branch = record.graph_branch
    held = graph.root.locks.try_acquire([branch])
    if held is None:
        return Report(record.operation_id, branch, Found.BUSY)
    with held:
        try:
            done = _recover(graph, record.operation_id, held, only_forward=only_forward)
        except (RecoveryRequired, LockLost, BranchNotFound, Conflict) as error:
            # Whoever writes to that branch next meets it again; nobody else has to wait for it.
            _log.warning("operation %s on branch '%s' waits: %s", record.operation_id, branch, error)
            reason = error.reason if isinstance(error, RecoveryRequired) else error.message
            return Report(record.operation_id, branch, Found.WAITING, reason)
    return Report(record.operation_id, branch, Found.RECOVERED if done else Found.WAITING)


def _discard(graph: OpenGraph, record: Sidecar) -> Report:
    """A branch that was deleted took its unfinished writes with it; note that, and drop the record."""
    root, branch = graph.root, record.graph_branch
    held = root.locks.try_acquire([MAIN, branch])
    if held is None:
        return Report(record.operation_id, branch, Found.BUSY)
    with held:
        if sidecar.read(root, record.operation_id) is None:
            return Report(record.operation_id, branch, Found.DISCARDED)
        if not _is_orphan(graph, record):
            return Report(record.operation_id, branch, Found.WAITING, "its branch came back")
        failpoints.reach(failpoints.RECOVERY_ORPHAN_DISCARD_AUDIT_APPEND)
        commit_id = record.rollback_commit_id or outcome_id(record, "back")
        held.require()
        publish(graph.coordinator(MAIN), Changes(), Lineage(commit_id, actor=RECOVERY_ACTOR))
        row = audit.AuditRow(
            operation_id=record.operation_id,
            kind="OrphanedBranchDiscarded",
            commit_id=commit_id,
            writer_kind=record.writer_kind,
            actor=record.actor_id,
            outcomes=(),
            created_at=root.clock(),
        )
        audit.record(root, row)
        sidecar.remove(root, record.operation_id)
    return Report(record.operation_id, branch, Found.DISCARDED)


def heal(graph: OpenGraph) -> None:
    """What every write does first: finish what a dead writer completed; one list call if all is well."""
    if sidecar.operations(graph.root):
        sweep(graph, only_forward=True)


# --- looking without touching --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prospect:
    """A record, and what a recovery would do about it."""

    operation_id: str
    branch: str | None
    writer_kind: str | None
    would: str
    classes: dict[str, str]
    stuck: bool = False
    """Whether it needs a person: nobody can finish or undo it."""


def prospects(graph: OpenGraph) -> list[Prospect]:
    """What a recovery would do, without doing it."""
    return [_prospect(graph, record) for record in _records(graph)]


def _prospect(graph: OpenGraph, record: Sidecar | Unreadable) -> Prospect:
    if isinstance(record, Unreadable):
        return Prospect(record.operation_id, record.branch, None, f"refuse writes: {record.reason}", {}, True)
    branch = record.graph_branch
    if _is_orphan(graph, record):
        return Prospect(record.operation_id, branch, record.writer_kind, "discard: its branch is gone", {})
    scene = Scene(graph.root, graph.coordinator(branch), Held(), record)
    outcome = visible_outcome(scene)
    judged = observe(scene)
    classes = {one.pin.table_key: one.found.value for one in judged}
    if outcome is not None:
        return Prospect(record.operation_id, branch, record.writer_kind, f"finish {outcome}", classes)
    decision: Decision = decide(record, judged)
    stuck = decision is Decision.ABORT
    return Prospect(record.operation_id, branch, record.writer_kind, decision.value, classes, stuck)
