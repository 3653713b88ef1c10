"""Forecast what a recovery would do about each recorded write, without doing it; abandon what it cannot.

A forecast takes no lock, but checks those that a recovery would take: a branch whose lock is taken is being
written. Once a record is abandoned, its branch can be written to again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.recovery import sidecar
from omnigraph.engine.commit.recovery.damage import is_damage, reason_of
from omnigraph.engine.commit.recovery.sidecar import Sidecar, Unreadable
from omnigraph.engine.commit.recovery.sweep import branch_of, is_orphan, list_records
from omnigraph.engine.commit.recovery.table_progress import Decision, TableJudgement, TableProgress
from omnigraph.engine.commit.recovery.verdict import (
    RecoveryContext,
    Verdict,
    is_repinned,
    judge_tables_to_undo,
    reach_verdict,
)
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.errors import Conflict, NotFound, OmnigraphError
from omnigraph.storage.locks import HeldLocks

FINISH = "finish it"
FINISH_VISIBLE = "finish it, as it is visible already"
UNDO = "undo it"
UNDO_VISIBLE = "finish undoing it"
DISCARD = "discard it: its branch is gone"
LEAVE = "leave it"
REFUSE = "refuse writes"
REFUSE_MISMATCH = f"{REFUSE}: its tables are not as the record and the branch say"

_WOULD = {
    (Decision.ROLL_FORWARD, False): FINISH,
    (Decision.ROLL_FORWARD, True): FINISH_VISIBLE,
    (Decision.ROLL_BACK, False): UNDO,
    (Decision.ROLL_BACK, True): UNDO_VISIBLE,
}
_REACHED = {
    TableProgress.NO_MOVEMENT: "untouched",
    TableProgress.ROLLED_PAST_EXPECTED: "written",
    TableProgress.INCOMPLETE_PHASE_B: "written but not confirmed",
    TableProgress.UNEXPECTED_AT_P1: "changed once by something else",
    TableProgress.UNEXPECTED_MULTISTEP: "changed by something else",
}


@dataclass(frozen=True, slots=True)
class RecoveryForecast:
    """A record, and what a recovery would do about it."""

    operation_id: str
    branch: str | None
    """The branch that cannot be written until it is dealt with; None when that is unknown, and all cannot."""
    would: str
    tables: Mapping[str, str] = field(default_factory=dict)
    """How far the write came with each table, in words."""
    classes: Mapping[str, TableProgress] = field(default_factory=dict)
    """The same by its class, for tables that were looked at."""
    decision: Decision | None = None
    """The decision for the write as a whole; None when unknown, or its branch is deleted or busy."""
    stuck: bool = False
    """Whether it needs a person: it can be neither finished nor undone."""
    busy: bool = False
    """Whether its branch is being written, mostly by its own writer: it is skipped."""
    writer_kind: str | None = None
    actor: str | None = None
    writer: str | None = None
    """The process that wrote it, which may be at work still."""


def forecast_recovery(graph: OpenGraph, held: HeldLocks | None = None) -> list[RecoveryForecast]:
    """Return what a recovery would do about every record now; `held` are locks that the caller has."""
    found = (_forecast(graph, record, held or HeldLocks()) for record in list_records(graph))
    return [one for one in found if one is not None]


def _forecast(graph: OpenGraph, listed: Sidecar | Unreadable, held: HeldLocks) -> RecoveryForecast | None:
    """Forecast one record; None when it was removed meanwhile."""
    if isinstance(listed, Unreadable):
        return _unreadable(graph, listed)
    try:
        busy = _forecast_busy(graph, listed, held)
        # Read once the lock is known to be free: until then its writer may have finished, or gone on.
        record = listed if busy else sidecar.read(graph.root, listed.operation_id)
        if busy or record is None:
            return busy
        if isinstance(record, Unreadable):
            return _unreadable(graph, record)
        found = _forecast_or_error(graph, record, held)
        # A writer that came meanwhile handles it, and the forecast is outdated.
        return _forecast_busy(graph, record, held) or (found if _is_on_record(graph, record) else None)
    except OmnigraphError as error:
        return _forecast_error(listed, error)


def _forecast_or_error(graph: OpenGraph, record: Sidecar, held: HeldLocks) -> RecoveryForecast:
    try:
        return _forecast_verdict(graph, record, held)
    except OmnigraphError as error:
        return _forecast_error(record, error)


def _forecast_error(record: Sidecar, error: OmnigraphError) -> RecoveryForecast:
    """Return the error with one record as its forecast, so that the others are reported too."""
    stuck = is_damage(error)
    return replace(
        _describe_record(record), would=f"{REFUSE if stuck else 'wait'}: {reason_of(error)}", stuck=stuck
    )


def _unreadable(graph: OpenGraph, record: Unreadable) -> RecoveryForecast:
    would = f"{REFUSE}: {record.reason}"
    return RecoveryForecast(record.operation_id, branch_of(graph, record), would, stuck=True)


def _is_on_record(graph: OpenGraph, record: Sidecar) -> bool:
    return sidecar.read(graph.root, record.operation_id) is not None


def _forecast_busy(graph: OpenGraph, record: Sidecar, held: HeldLocks) -> RecoveryForecast | None:
    """Return the forecast of a record whose recovery needs a taken lock; else None."""
    needed = (MAIN, record.graph_branch) if is_orphan(graph, record) else (record.graph_branch,)
    for branch in needed:
        taken = None if branch in held.branches else graph.root.taken(branch)
        if taken is not None:
            by = f" by {taken.holder.owner}" if taken.holder else ""
            would = f"{LEAVE}: branch '{branch}' is being written{by}"
            tables = dict.fromkeys((pin.table_key for pin in record.tables), "not looked at")
            return replace(_describe_record(record), would=would, busy=True, tables=tables)
    return None


def _forecast_verdict(graph: OpenGraph, record: Sidecar, held: HeldLocks) -> RecoveryForecast:
    described = _describe_record(record)
    if is_orphan(graph, record):
        return replace(described, would=DISCARD)
    context = RecoveryContext(graph.root, graph.coordinator(record.graph_branch), held, record)
    found = reach_verdict(context)
    judged = _judgements(context, found)
    return replace(
        described,
        would=_would(found, judged or ()),
        decision=found.decision,
        stuck=_is_stuck(found, judged or ()),
        tables=_visible_tables(context, found) if judged is None else _table_states(judged),
        classes={one.pin.table_key: one.progress for one in judged or ()},
    )


def _describe_record(record: Sidecar) -> RecoveryForecast:
    """Return the forecast fields that the record itself has."""
    owner = record.owner
    return RecoveryForecast(
        record.operation_id,
        record.graph_branch,
        would="",
        writer_kind=record.writer_kind,
        actor=record.actor_id,
        writer=f"process {owner.pid} on {owner.host}" if owner else None,
    )


def _would(found: Verdict, judged: Sequence[TableJudgement]) -> str:
    damaged = next((one for one in judged if one.observed.damage), None)
    if damaged is not None:
        return f"{REFUSE}: table '{damaged.pin.table_key}' cannot be read: {damaged.observed.damage}"
    return REFUSE_MISMATCH if _is_stuck(found, judged) else _WOULD[found.decision, found.visible]


def _is_stuck(found: Verdict, judged: Sequence[TableJudgement]) -> bool:
    """Whether it needs a person; even a visible decision may be impossible to carry out."""
    return found.decision is Decision.ABORT or any(
        one.observed.damage or one.observed.head < one.observed.pinned for one in judged
    )


def _judgements(context: RecoveryContext, found: Verdict) -> Sequence[TableJudgement] | None:
    """Return how far the write came with its tables; None when its outcome is published completely.

    Published tables are not judged: versions at and below a pin are shared.
    """
    if not found.visible:
        return found.judged
    if found.decision is Decision.ROLL_FORWARD or is_repinned(context):
        return None
    return judge_tables_to_undo(context)


def _visible_tables(context: RecoveryContext, found: Verdict) -> dict[str, str]:
    state = "visible" if found.decision is Decision.ROLL_FORWARD else "as before the write"
    return dict.fromkeys((pin.table_key for pin in context.sidecar.tables), state)


def _table_states(judged: Sequence[TableJudgement]) -> dict[str, str]:
    return {one.pin.table_key: _state(one) for one in judged}


def _state(one: TableJudgement) -> str:
    if one.compensated:
        return "restored"
    if one.observed.damage:
        return "damaged"
    if one.progress is TableProgress.INVARIANT_VIOLATION and one.observed.head == 0:
        return "missing"
    if one.progress is TableProgress.INVARIANT_VIOLATION:
        behind = one.observed.head < one.observed.pinned
        return "older than what the branch shows" if behind else "changed by something else after the write"
    return _REACHED[one.progress]


SUFFIX = ".abandoned"
"""The suffix of an abandoned record: it is ignored, and a person can still read it."""


def abandon_record(graph: OpenGraph, operation_id: str) -> RecoveryForecast:
    """Rename the record of an operation; its changes to tables stay, and `repair` judges them.

    Refused while recovery can finish or undo the operation.
    """
    root = graph.root
    known = _found(graph, operation_id)
    # A record of an unknown branch blocks all writers, so all branches are locked.
    with root.locks.hold([known.branch] if known.branch else graph.branch_names()) as held:
        found = _found(graph, operation_id, held)
        if not found.stuck:
            raise Conflict(
                f"operation '{operation_id}' can be recovered: `omnigraph recover` would {found.would}",
                remedy="run that, or simply write to the branch",
            )
        held.require()
        place = sidecar.place(root, operation_id)
        root.objects.rename_text(place, root.layout.recovery / f"{operation_id}{SUFFIX}")
    return found


def _found(graph: OpenGraph, operation_id: str, held: HeldLocks | None = None) -> RecoveryForecast:
    for one in forecast_recovery(graph, held):
        if one.operation_id == operation_id:
            return one
    raise NotFound(
        f"there is no operation '{operation_id}' on record",
        remedy="list them with `omnigraph recover --dry-run`",
    )
