"""Finding interrupted writes and dealing with them, a branch at a time.

Whoever holds a branch's lock knows that a record on that branch has no living owner. A branch whose
lock is taken is alive and is left alone. A record that cannot be read, or whose branch or tables cannot,
blocks writes on its own branch and nowhere else.

What concerns all records is told to everybody at once: that they cannot be listed or read.
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
from omnigraph.engine.recovery.actions import close, recover
from omnigraph.engine.recovery.classify import Decision
from omnigraph.engine.recovery.damage import is_damage, reason_of
from omnigraph.engine.recovery.sidecar import Sidecar, Unreadable
from omnigraph.engine.recovery.verdict import Scene, outcome_id
from omnigraph.errors import OmnigraphError, RecoveryRequired
from omnigraph.storage.locks import Held

_log = logging.getLogger(__name__)


class Fate(StrEnum):
    """What became, or would become, of a record."""

    RECOVERED = "recovered"
    WAITING = "waiting"
    """It is dealt with later: by a writer of its branch, or as soon as that can be reached."""
    STUCK = "stuck"
    """Nobody can finish or undo it: its branch or a table is damaged, or not as told."""
    BUSY = "busy"
    """Its branch is being written: the record has a living owner."""
    UNREADABLE = "unreadable"
    DISCARDED = "discarded"
    """Its branch is gone."""
    GONE = "gone"
    """Its writer, or somebody else's recovery, was done with it just then."""


class Outcome(StrEnum):
    """How an interrupted write ended."""

    FINISHED = "finished"
    UNDONE = "undone"


_OUTCOMES = {Decision.ROLL_FORWARD: Outcome.FINISHED, Decision.ROLL_BACK: Outcome.UNDONE}


@dataclass(frozen=True, slots=True)
class Report:
    """One record and what became of it."""

    operation_id: str
    branch: str | None
    fate: Fate
    reason: str = ""
    outcome: Outcome | None = None
    """How a write that was recovered ended."""


def recover_branch(graph: OpenGraph, branch: str, held: Held) -> int:
    """Deal with every record of a branch whose lock is held; how many were dealt with.

    Raises `RecoveryRequired` when one of them cannot be, so that nobody writes over it.
    """
    done = 0
    for record in records(graph):
        if isinstance(record, Unreadable):
            if branch_of(graph, record) in (None, branch):
                raise RecoveryRequired(record.operation_id, record.reason)
        elif record.graph_branch == branch and not is_orphan(graph, record):
            done += _recover_own(graph, record, held)
    return done


def _recover_own(graph: OpenGraph, record: Sidecar, held: Held) -> bool:
    scene = _scene(graph, record, held)
    if scene is None:
        return False
    try:
        ended = recover(scene, only_forward=False)
    except OmnigraphError as error:
        if isinstance(error, RecoveryRequired) or not is_damage(error):
            raise
        raise RecoveryRequired(record.operation_id, error.message) from error
    if ended is None:
        return False
    close(scene, ended)
    return True


def records(graph: OpenGraph) -> list[Sidecar | Unreadable]:
    """The writes on record, oldest first."""
    found = sidecar.operations(graph.root)
    failpoints.reach(failpoints.RECOVERY_POST_SIDECAR_LIST_PRE_READ)
    # A record that is gone by now belonged to a writer that finished.
    read = (sidecar.read(graph.root, operation_id) for operation_id in found)
    return [record for record in read if record is not None]


def branch_of(graph: OpenGraph, record: Unreadable) -> str | None:
    """The branch of a record that cannot be used: what is left of it tells, or the lock taken for it."""
    return record.branch or graph.root.locks.branch_of_operation(record.operation_id)


def is_orphan(graph: OpenGraph, record: Sidecar) -> bool:
    """Whether the branch of a record is gone, even if there is a new one of the same name."""
    root, branch = graph.root, record.graph_branch
    life = root.forks.identity(root.layout.manifest, None if branch == MAIN else branch)
    if life is None:
        return True
    return record.authority is not None and record.authority.branch_identifier != life


def _scene(graph: OpenGraph, listed: Sidecar, held: Held) -> Scene | None:
    """A record as it is now: its writer may have confirmed, or finished, while we waited for the lock."""
    record = sidecar.read(graph.root, listed.operation_id)
    if record is None:
        return None
    if isinstance(record, Unreadable):
        raise RecoveryRequired(record.operation_id, record.reason)
    coordinator = graph.coordinator(record.graph_branch)
    coordinator.forget()
    return Scene(graph.root, coordinator, held, record)


# --- the whole graph -----------------------------------------------------------------------------


def sweep(graph: OpenGraph, *, only_forward: bool) -> list[Report]:
    """Deal with the records of every branch that is free at this moment; never waits.

    What fails about the branch or the tables of one record is told in its report, and the others are dealt
    with. A note that cannot be made is told by raising, but not to those who merely pass, `only_forward`.
    """
    reports = []
    orphans: list[Sidecar] = []
    for record in records(graph):
        if isinstance(record, Unreadable):
            known = branch_of(graph, record)
            reports.append(Report(record.operation_id, known, Fate.UNREADABLE, record.reason))
            continue
        try:
            if is_orphan(graph, record):
                orphans.append(record)
                continue
            held = graph.root.locks.try_acquire([record.graph_branch])
        except OmnigraphError as error:
            reports.append(_left(record, error))
            continue
        reports.append(_sweep_one(graph, record, held, only_forward=only_forward))
    # Last, so that what they note on main moves no head under a sibling.
    reports += [_sweep_orphan(graph, record, only_forward=only_forward) for record in orphans]
    return reports


def _left(record: Sidecar, error: OmnigraphError) -> Report:
    """Whoever writes to that branch next meets it again; nobody else has to wait for it."""
    return _logged(record, Fate.STUCK if is_damage(error) else Fate.WAITING, reason_of(error))


def _unnoted(record: Sidecar, error: OmnigraphError, *, only_forward: bool) -> Report:
    """A write is dealt with and cannot be noted: told at once, unless that keeps others from writing."""
    if not only_forward and not is_damage(error):
        raise error
    return _logged(record, Fate.WAITING, reason_of(error))


def _logged(record: Sidecar, fate: Fate, reason: str) -> Report:
    operation_id, branch = record.operation_id, record.graph_branch
    _log.warning("operation %s on branch '%s' is %s: %s", operation_id, branch, fate, reason)
    return Report(operation_id, branch, fate, reason)


def _sweep_one(graph: OpenGraph, record: Sidecar, held: Held | None, *, only_forward: bool) -> Report:
    operation_id, branch = record.operation_id, record.graph_branch
    if held is None:
        return Report(operation_id, branch, Fate.BUSY)
    with held:
        try:
            scene = _scene(graph, record, held)
        except RecoveryRequired as error:
            return _left(record, error)
        if scene is None:
            return Report(operation_id, branch, Fate.GONE)
        try:
            ended = recover(scene, only_forward=only_forward)
        except OmnigraphError as error:
            return _left(record, error)
        if ended is None:
            return Report(operation_id, branch, Fate.WAITING)
        try:
            close(scene, ended)
        except OmnigraphError as error:
            return _unnoted(record, error, only_forward=only_forward)
    return Report(operation_id, branch, Fate.RECOVERED, outcome=_OUTCOMES[ended.decision])


def _sweep_orphan(graph: OpenGraph, record: Sidecar, *, only_forward: bool) -> Report:
    try:
        return _discard(graph, record)
    except OmnigraphError as error:
        return _unnoted(record, error, only_forward=only_forward)


def _discard(graph: OpenGraph, record: Sidecar) -> Report:
    """A branch that was deleted took its unfinished writes with it; note that, and drop the record."""
    root, branch = graph.root, record.graph_branch
    held = root.locks.try_acquire([MAIN, branch])
    if held is None:
        return Report(record.operation_id, branch, Fate.BUSY)
    with held:
        if sidecar.read(root, record.operation_id) is None:
            return Report(record.operation_id, branch, Fate.DISCARDED)
        if not is_orphan(graph, record):
            return Report(record.operation_id, branch, Fate.WAITING, "its branch came back")
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
    return Report(record.operation_id, branch, Fate.DISCARDED)


def heal(graph: OpenGraph, branch: str | None = None) -> None:
    """What every write does first: finish what a dead writer completed; one list call if all is well.

    Raises `RecoveryRequired` when nobody can deal with a record of `branch`, if one is given.
    """
    if not sidecar.operations(graph.root):
        return
    for report in sweep(graph, only_forward=True):
        if report.fate is Fate.STUCK and report.branch == branch:
            raise RecoveryRequired(report.operation_id, report.reason)
