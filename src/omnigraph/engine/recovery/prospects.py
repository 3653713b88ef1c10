"""What a recovery would do about each write on record, told without doing it.

It takes no lock, but asks for those that a recovery would take: a branch whose lock is taken is alive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from omnigraph.engine.manifest import MAIN
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.recovery import sidecar
from omnigraph.engine.recovery.classify import Decision, Judged, Reached
from omnigraph.engine.recovery.damage import is_damage, reason_of
from omnigraph.engine.recovery.sidecar import Sidecar, Unreadable
from omnigraph.engine.recovery.sweep import branch_of, is_orphan, records
from omnigraph.engine.recovery.verdict import Scene, Verdict, is_repinned, observe_to_undo, verdict
from omnigraph.errors import OmnigraphError
from omnigraph.storage.locks import Held

FINISH = "finish it"
FINISH_VISIBLE = "finish it, as it is visible already"
UNDO = "undo it"
UNDO_VISIBLE = "finish undoing it"
DISCARD = "discard it: its branch is gone"
LEAVE = "leave it"
REFUSE = "refuse writes"
NOT_AS_TOLD = f"{REFUSE}: its tables are not as the record and the branch say"

_WOULD = {
    (Decision.ROLL_FORWARD, False): FINISH,
    (Decision.ROLL_FORWARD, True): FINISH_VISIBLE,
    (Decision.ROLL_BACK, False): UNDO,
    (Decision.ROLL_BACK, True): UNDO_VISIBLE,
}
_REACHED = {
    Reached.NO_MOVEMENT: "untouched",
    Reached.ROLLED_PAST_EXPECTED: "written",
    Reached.INCOMPLETE_PHASE_B: "written but not confirmed",
    Reached.UNEXPECTED_AT_P1: "changed once by something else",
    Reached.UNEXPECTED_MULTISTEP: "changed by something else",
}


@dataclass(frozen=True, slots=True)
class Prospect:
    """A record, and what a recovery would do about it."""

    operation_id: str
    branch: str | None
    """The branch that cannot be written until it is dealt with; None when that is unknown, and all cannot."""
    would: str
    tables: Mapping[str, str] = field(default_factory=dict)
    """How far the write came with each table, in words."""
    classes: Mapping[str, Reached] = field(default_factory=dict)
    """The same by its class, for tables that were looked at."""
    decision: Decision | None = None
    """What follows for the write as a whole; None when that cannot be told, or its branch is gone or busy."""
    stuck: bool = False
    """Whether it needs a person: nobody can finish or undo it."""
    busy: bool = False
    """Whether its branch is being written, mostly by its own writer: it is left alone, and not looked at."""
    writer_kind: str | None = None
    actor: str | None = None
    writer: str | None = None
    """The process that wrote it, which may be at work still."""


def prospects(graph: OpenGraph, held: Held | None = None) -> list[Prospect]:
    """What a recovery would do about every record at this moment; `held` are locks that the caller has."""
    found = (_prospect(graph, record, held or Held()) for record in records(graph))
    return [one for one in found if one is not None]


def _prospect(graph: OpenGraph, listed: Sidecar | Unreadable, held: Held) -> Prospect | None:
    """None when somebody was done with the record meanwhile."""
    if isinstance(listed, Unreadable):
        return _unreadable(graph, listed)
    try:
        busy = _left_alone(graph, listed, held)
        # Read once the lock is known to be free: until then its writer may have finished, or gone on.
        record = listed if busy else sidecar.read(graph.root, listed.operation_id)
        if busy or record is None:
            return busy
        if isinstance(record, Unreadable):
            return _unreadable(graph, record)
        found = _foretold(graph, record, held)
        # Whoever came meanwhile deals with it, and what was seen is half of that.
        return _left_alone(graph, record, held) or (found if _is_on_record(graph, record) else None)
    except OmnigraphError as error:
        return _hindered(listed, error)


def _foretold(graph: OpenGraph, record: Sidecar, held: Held) -> Prospect:
    try:
        return _judged(graph, record, held)
    except OmnigraphError as error:
        return _hindered(record, error)


def _hindered(record: Sidecar, error: OmnigraphError) -> Prospect:
    """What is in the way of one record; whoever looks for what is wrong must hear of the others, too."""
    stuck = is_damage(error)
    return replace(_told(record), would=f"{REFUSE if stuck else 'wait'}: {reason_of(error)}", stuck=stuck)


def _unreadable(graph: OpenGraph, record: Unreadable) -> Prospect:
    would = f"{REFUSE}: {record.reason}"
    return Prospect(record.operation_id, branch_of(graph, record), would, stuck=True)


def _is_on_record(graph: OpenGraph, record: Sidecar) -> bool:
    return sidecar.read(graph.root, record.operation_id) is not None


def _left_alone(graph: OpenGraph, record: Sidecar, held: Held) -> Prospect | None:
    """What there is to tell of a record if a lock is taken that dealing with it needs; else None."""
    needed = (MAIN, record.graph_branch) if is_orphan(graph, record) else (record.graph_branch,)
    for branch in needed:
        taken = None if branch in held.branches else graph.root.taken(branch)
        if taken is not None:
            by = f" by {taken.holder.owner}" if taken.holder else ""
            would = f"{LEAVE}: branch '{branch}' is being written{by}"
            tables = dict.fromkeys((pin.table_key for pin in record.tables), "not looked at")
            return replace(_told(record), would=would, busy=True, tables=tables)
    return None


def _judged(graph: OpenGraph, record: Sidecar, held: Held) -> Prospect:
    told = _told(record)
    if is_orphan(graph, record):
        return replace(told, would=DISCARD)
    scene = Scene(graph.root, graph.coordinator(record.graph_branch), held, record)
    found = verdict(scene)
    judged = _still_judged(scene, found)
    return replace(
        told,
        would=_would(found, judged or ()),
        decision=found.decision,
        stuck=_is_stuck(found, judged or ()),
        tables=_visible_tables(scene, found) if judged is None else _reached(judged),
        classes={one.pin.table_key: one.reached for one in judged or ()},
    )


def _told(record: Sidecar) -> Prospect:
    """What the record itself says."""
    owner = record.owner
    return Prospect(
        record.operation_id,
        record.graph_branch,
        would="",
        writer_kind=record.writer_kind,
        actor=record.actor_id,
        writer=f"process {owner.pid} on {owner.host}" if owner else None,
    )


def _would(found: Verdict, judged: Sequence[Judged]) -> str:
    damaged = next((one for one in judged if one.observed.damage), None)
    if damaged is not None:
        return f"{REFUSE}: table '{damaged.pin.table_key}' cannot be read: {damaged.observed.damage}"
    return NOT_AS_TOLD if _is_stuck(found, judged) else _WOULD[found.decision, found.visible]


def _is_stuck(found: Verdict, judged: Sequence[Judged]) -> bool:
    """Whether nobody can deal with it; a decision that is visible may be one that cannot be carried out."""
    return found.decision is Decision.ABORT or any(
        one.observed.damage or one.observed.head < one.observed.pinned for one in judged
    )


def _still_judged(scene: Scene, found: Verdict) -> Sequence[Judged] | None:
    """How far the write came with its tables; None when the manifest shows an outcome that is complete.

    What the manifest shows is not judged any more: versions at and below a pin are everybody's.
    """
    if not found.visible:
        return found.judged
    if found.decision is Decision.ROLL_FORWARD or is_repinned(scene):
        return None
    return observe_to_undo(scene)


def _visible_tables(scene: Scene, found: Verdict) -> dict[str, str]:
    state = "visible" if found.decision is Decision.ROLL_FORWARD else "as before the write"
    return dict.fromkeys((pin.table_key for pin in scene.sidecar.tables), state)


def _reached(judged: Sequence[Judged]) -> dict[str, str]:
    return {one.pin.table_key: _state(one) for one in judged}


def _state(one: Judged) -> str:
    if one.compensated:
        return "restored"
    if one.observed.damage:
        return "damaged"
    if one.reached is Reached.INVARIANT_VIOLATION and one.observed.head == 0:
        return "missing"
    if one.reached is Reached.INVARIANT_VIOLATION:
        behind = one.observed.head < one.observed.pinned
        return "older than what the branch shows" if behind else "changed by something else after the write"
    return _REACHED[one.reached]
