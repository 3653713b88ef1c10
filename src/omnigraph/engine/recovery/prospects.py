"""What a recovery would do about each write on record, told without doing it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from omnigraph.engine.opened import OpenGraph
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
    """What follows for the write as a whole; None when that cannot be told, or its branch is gone."""
    stuck: bool = False
    """Whether it needs a person: nobody can finish or undo it."""
    writer_kind: str | None = None
    actor: str | None = None
    writer: str | None = None
    """The process that wrote it, which may be at work still."""


def prospects(graph: OpenGraph) -> list[Prospect]:
    """What a recovery would do about every record at this moment."""
    return [_prospect(graph, record) for record in records(graph)]


def _prospect(graph: OpenGraph, record: Sidecar | Unreadable) -> Prospect:
    if isinstance(record, Unreadable):
        would = f"{REFUSE}: {record.reason}"
        return Prospect(record.operation_id, branch_of(graph, record), would, stuck=True)
    told = _told(record)
    try:
        if is_orphan(graph, record):
            return replace(told, would=DISCARD)
        scene = Scene(graph.root, graph.coordinator(record.graph_branch), Held(), record)
        found = verdict(scene)
        judged = _still_judged(scene, found)
    except OmnigraphError as error:
        # Whoever looks for what is wrong must hear of the others, too.
        stuck = is_damage(error)
        return replace(told, would=f"{REFUSE if stuck else 'wait'}: {reason_of(error)}", stuck=stuck)
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
