"""How an interrupted write ends, told by its record, the manifest and the tables; nothing is done."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ulid import ULID

from omnigraph.engine.coordinator import Coordinator
from omnigraph.engine.manifest import State
from omnigraph.engine.recovery.classify import (
    Decision,
    Judged,
    Observed,
    Proof,
    Reached,
    decide,
    judge,
    proof_of,
)
from omnigraph.engine.recovery.damage import is_damage
from omnigraph.engine.recovery.sidecar import Pin, Sidecar
from omnigraph.engine.root import Root
from omnigraph.engine.schema_staging import is_staged
from omnigraph.errors import BranchNotFound, CorruptGraph, RecoveryRequired, StorageFailure
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.location import Location
from omnigraph.storage.locks import Held
from omnigraph.storage.references import Fork
from omnigraph.storage.tables import Table
from omnigraph.storage.transactions import history


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything a recovery of one record works with; the branch's lock is held."""

    root: Root
    coordinator: Coordinator
    held: Held
    sidecar: Sidecar

    @property
    def forward(self) -> str:
        """The id of the commit that means success."""
        lineage = self.sidecar.lineage
        return lineage.graph_commit_id if lineage else outcome_id(self.sidecar, "forward")

    @property
    def back(self) -> str:
        """The id of the commit that means the write never happened."""
        return self.sidecar.rollback_commit_id or outcome_id(self.sidecar, "back")


def outcome_id(sidecar: Sidecar, outcome: str) -> str:
    """The id of an outcome for records that name none: the same whoever works it out, and however often."""
    digest = hashlib.sha256(f"{outcome}:{sidecar.operation_id}".encode()).digest()
    return str(ULID.from_bytes(digest[:16]))


def observe(scene: Scene) -> list[Judged]:
    """Look at every table the record names, and say how far the write came with it."""
    state = scene.coordinator.load().state
    return [judge(scene.sidecar, pin, _observed(scene, pin, state)) for pin in scene.sidecar.tables]


def observe_to_undo(scene: Scene, judged: Iterable[Judged] | None = None) -> list[Judged]:
    """The same, and whether the versions that undoing goes back to can be read."""
    state = scene.coordinator.load().state
    return [_with_its_base(scene, one, state) for one in (observe(scene) if judged is None else judged)]


def _with_its_base(scene: Scene, one: Judged, state: State) -> Judged:
    pin, observed = one.pin, one.observed
    if one.compensated or is_foreign(scene, one) or not 0 < observed.pinned < observed.head:
        return one  # nothing is restored
    try:
        scene.root.tables.open(place_of(scene, pin, state), observed.pinned, branch=pin.table_branch)
    except StorageFailure as failure:
        if not is_damage(failure):
            raise
        return Judged(pin, replace(observed, damage=failure.message), Reached.INVARIANT_VIOLATION)
    return one


def is_foreign(scene: Scene, one: Judged) -> bool:
    """Whether a table was only moved by somebody else; older records cannot tell, and undo that, too."""
    unexpected = one.reached in (Reached.UNEXPECTED_AT_P1, Reached.UNEXPECTED_MULTISTEP)
    return scene.sidecar.schema_version >= 3 and unexpected


def place_of(scene: Scene, pin: Pin, state: State) -> Location:
    """Where a pinned table is: the manifest tells, since a record may have come with a copy of the graph."""
    path = state.locations.get(pin.table_key)
    return Location(pin.table_path) if path is None else scene.root.layout.table(path)


def _observed(scene: Scene, pin: Pin, state: State) -> Observed:
    pinned = pinned_version(state, pin)
    try:
        return _seen(scene, pin, state, pinned)
    except StorageFailure as failure:
        if not is_damage(failure):
            raise
        return Observed(head=0, pinned=pinned, damage=failure.message)


def _seen(scene: Scene, pin: Pin, state: State, pinned: int) -> Observed:
    try:
        tip = tip_of(scene, pin, state)
    except StorageFailure as failure:
        if failure.kind != Trouble.NOT_FOUND:
            raise
        return Observed(head=0, pinned=pinned)  # its versions are gone, that of the manifest included
    if tip is None:
        return Observed(head=pinned, pinned=pinned)
    if proof_of(scene.sidecar) is not Proof.EXACT:
        return Observed(head=tip.version, pinned=pinned)
    made = history(tip, pin.expected_version, tip.version)
    return Observed(head=tip.version, pinned=pinned, transactions=made)


def tip_of(scene: Scene, pin: Pin, state: State) -> Table | None:
    """The newest version of a pinned table; None when the fork it was meant for was never made."""
    place, branch = place_of(scene, pin, state), pin.table_branch
    # Older records do not say whether the fork was there before. Files alone are no fork: they come first.
    may_miss = pin.first_touch is not None or scene.sidecar.schema_version < 3
    if may_miss and branch is not None and not _is_there(scene.root.forks.find(place, branch), pin):
        return None
    return scene.root.tables.tip(place, branch=branch)


def _is_there(fork: Fork | None, pin: Pin) -> bool:
    """Whether a fork may be the one that was meant: an earlier branch of the name may have left another."""
    if fork is None or pin.first_touch is None:
        return fork is not None
    touch = pin.first_touch
    return (fork.parent, fork.parent_version) == (touch.source_branch, touch.source_version)


def pinned_version(state: State, pin: Pin) -> int:
    """The version of a table that the manifest publishes; 0 when it has none."""
    known = state.versions.get(pin.table_key)
    return known.version if known else 0


# --- how it ends ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a write ends, as things stand."""

    decision: Decision
    visible: bool = False
    """Whether the manifest shows that outcome already, and only its consequences are missing."""
    judged: tuple[Judged, ...] = ()


def verdict(scene: Scene) -> Verdict:
    """What is to become of a record; nothing is done about it."""
    _require_branch(scene)
    outcome = visible_outcome(scene)
    if outcome is not None:
        return Verdict(outcome, visible=True)
    judged = tuple(observe(scene))
    if _is_stale_old(scene, judged):
        return Verdict(Decision.ROLL_FORWARD, visible=True, judged=judged)
    decision = decide(scene.sidecar, judged)
    if decision is Decision.ROLL_FORWARD and not _may_go_forward(scene):
        decision = Decision.ROLL_BACK
    if decision is Decision.ROLL_BACK:
        judged = tuple(observe_to_undo(scene, judged))
        if any(one.observed.damage for one in judged):
            decision = Decision.ABORT
    return Verdict(decision, judged=judged)


def _require_branch(scene: Scene) -> None:
    """Raise `RecoveryRequired` when the manifest of the branch, which decides everything, is damaged."""
    branch = scene.sidecar.graph_branch
    try:
        scene.coordinator.load()
    except (BranchNotFound, CorruptGraph, StorageFailure) as error:
        if isinstance(error, BranchNotFound):
            # Without its reference it was deleted just now; with it, its versions are gone.
            harmless = scene.root.forks.find(scene.root.layout.manifest, branch) is None
        else:
            harmless = not is_damage(error)
        if harmless:
            raise
        reason = f"branch '{branch}' cannot be read: {error.message}"
        raise RecoveryRequired(scene.sidecar.operation_id, reason) from error


def _may_go_forward(scene: Scene) -> bool:
    """Whether a completed write still fits: it is never put on top of one that it does not know."""
    sidecar, authority = scene.sidecar, scene.sidecar.authority
    if sidecar.writer_kind == "SchemaApply" and not is_staged(scene.root, schema_target(sidecar)):
        return False
    if authority is None:
        return True
    loaded = scene.coordinator.load()
    head = loaded.state.head.id if loaded.state.head else None
    return (loaded.identity, head) == (authority.branch_identifier, authority.graph_head)


def visible_outcome(scene: Scene) -> Decision | None:
    """The outcome that the manifest shows, if it shows one."""
    commits = scene.coordinator.load().state.commits
    if scene.forward in commits:
        return Decision.ROLL_FORWARD
    if scene.back in commits:
        return Decision.ROLL_BACK
    return None


def is_repinned(scene: Scene) -> bool:
    """Whether the restored versions are published: nothing must be restored any more."""
    if scene.sidecar.schema_version < 3:
        return True
    return scene.sidecar.restore_commit_id in scene.coordinator.load().state.commits


def _is_stale_old(scene: Scene, judged: Sequence[Judged]) -> bool:
    """Whether a record of an older form, which names no commit, is of a write that is published."""
    if scene.sidecar.schema_version >= 3 or any(one.reached is not Reached.NO_MOVEMENT for one in judged):
        return False
    return any(one.observed.pinned > one.pin.expected_version for one in judged)


def schema_target(sidecar: Sidecar) -> str | None:
    """What the schema is recognised by that comes with the write, if one does."""
    return sidecar.schema_target.schema_ir_hash if sidecar.schema_target else None
