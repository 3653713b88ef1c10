"""What a recovery would do about each write on record, told without doing it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.recovery.classify import Decision, Judged, Reached
from omnigraph.engine.recovery.sidecar import Sidecar, Unreadable
from omnigraph.engine.recovery.sweep import branch_of, is_orphan, records
from omnigraph.engine.recovery.verdict import Scene, Verdict, is_repinned, observe, verdict
from omnigraph.errors import InternalError, StorageFailure
from omnigraph.storage.locks import Held

FINISH = "finish it"
FINISH_VISIBLE = "finish it, as it is visible already"
UNDO = "undo it"
UNDO_VISIBLE = "finish undoing it"
DISCARD = "discard it: its branch is gone"
REFUSE = "refuse writes: its tables are not as the record and the branch say"

_WOULD = {
    (Decision.ROLL_FORWARD, False): FINISH,
    (Decision.ROLL_FORWARD, True): FINISH_VISIBLE,
    (Decision.ROLL_BACK, False): UNDO,
    (Decision.ROLL_BACK, True): UNDO_VISIBLE,
    (Decision.ABORT, False): REFUSE,
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
    """How far the write came with each table."""
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
        would = f"refuse writes: {record.reason}"
        return Prospect(record.operation_id, branch_of(graph, record), would, stuck=True)
    if is_orphan(graph, record):
        return _told(record, DISCARD)
    scene = Scene(graph.root, graph.coordinator(record.graph_branch), Held(), record)
    try:
        found = verdict(scene)
        tables = _visible_tables(scene, found) if found.visible else _reached(found.judged)
    except (InternalError, StorageFailure) as error:
        # Whoever looks for what is wrong must hear of the others, too.
        return _told(record, f"wait: {error.message}")
    would = _WOULD[found.decision, found.visible]
    return _told(record, would, tables, stuck=found.decision is Decision.ABORT)


def _told(
    record: Sidecar, would: str, tables: Mapping[str, str] | None = None, *, stuck: bool = False
) -> Prospect:
    owner = record.owner
    return Prospect(
        record.operation_id,
        record.graph_branch,
        would,
        tables or {},
        stuck,
        record.writer_kind,
        record.actor_id,
        f"process {owner.pid} on {owner.host}" if owner else None,
    )


def _reached(judged: tuple[Judged, ...]) -> dict[str, str]:
    return {one.pin.table_key: _state(one) for one in judged}


def _state(one: Judged) -> str:
    if one.compensated:
        return "restored"
    if one.reached is Reached.INVARIANT_VIOLATION and one.observed.head == 0:
        return "missing"
    if one.reached is Reached.INVARIANT_VIOLATION:
        behind = one.observed.head < one.observed.pinned
        return "older than what the branch shows" if behind else "changed by something else after the write"
    return _REACHED[one.reached]


def _visible_tables(scene: Scene, found: Verdict) -> dict[str, str]:
    """What the manifest shows is not judged any more: versions at and below a pin are everybody's."""
    keys = [pin.table_key for pin in scene.sidecar.tables]
    if found.decision is Decision.ROLL_FORWARD:
        return dict.fromkeys(keys, "visible")
    if is_repinned(scene):
        return dict.fromkeys(keys, "as before the write")
    return _reached(tuple(observe(scene)))
