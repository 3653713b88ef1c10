"""Finishing or undoing an interrupted write.

A record fixes the ids of the two commits its write can end in. Both rewrite the branch's head row, and
each refuses once the other is visible, so exactly one of them ever lands; whatever follows is only
redoing what that outcome asks for. Undoing keeps one order: decide, then restore, then publish the
restored versions. A restore also fences off the writer, should it still be alive and wake up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from omnigraph import failpoints
from omnigraph.engine.created import remove_created
from omnigraph.engine.forks import ForkPlace, Standing, classify, clear_below, remove_fork, remove_orphan
from omnigraph.engine.lineage import RECOVERY_ACTOR
from omnigraph.engine.manifest import State, TableVersion
from omnigraph.engine.publish import Changes, ExactHead, Lineage, publish
from omnigraph.engine.recovery.audit import AuditRow, RecoveryKind, TableOutcome, record
from omnigraph.engine.recovery.classify import OPERATION, RESTORED, Decision, Judged, Reached, is_restore_of
from omnigraph.engine.recovery.sidecar import Pin, Registration, Sidecar, remove
from omnigraph.engine.recovery.verdict import (
    Scene,
    is_foreign,
    is_repinned,
    observe_to_undo,
    pinned_version,
    place_of,
    schema_target,
    tip_of,
    verdict,
)
from omnigraph.engine.schema_staging import discard_schema, promote_schema, staged_schema
from omnigraph.errors import (
    BranchInUse,
    Conflict,
    Decided,
    ReadSetChanged,
    RecoveryRequired,
    StorageFailure,
    TableVersionConflict,
)
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.location import Location
from omnigraph.storage.staging import commit_staged, stage_restore
from omnigraph.storage.transactions import history

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a write ended: all that is missing is to note it, and to remove its record."""

    decision: Decision
    commit_id: str
    outcomes: tuple[TableOutcome, ...]


_KINDS: Mapping[Decision, RecoveryKind] = {
    Decision.ROLL_FORWARD: "RolledForward",
    Decision.ROLL_BACK: "RolledBack",
}


def close(scene: Scene, ending: Ending) -> None:
    """Note how a write ended, and remove its record."""
    sidecar, root = scene.sidecar, scene.root
    row = AuditRow(
        operation_id=sidecar.operation_id,
        kind=_KINDS[ending.decision],
        commit_id=ending.commit_id,
        writer_kind=sidecar.writer_kind,
        actor=sidecar.actor_id,
        outcomes=ending.outcomes,
        created_at=root.clock(),
    )
    record(root, row)
    remove(root, sidecar.operation_id)


# --- the outcome that is visible already ---------------------------------------------------------


def finish_forward(scene: Scene) -> Ending:
    """The write is visible, and its schema, if it has one, is put in place."""
    state = scene.coordinator.load().state
    outcomes = tuple(
        TableOutcome(pin.table_key, pin.expected_version, pinned_version(state, pin))
        for pin in scene.sidecar.tables
    )
    _accept_schema(scene)
    return Ending(Decision.ROLL_FORWARD, scene.forward, outcomes)


def _finish_old(scene: Scene) -> Ending:
    """Note such a write under a commit of its own, which changes nothing."""
    scene.held.require()
    publish(scene.coordinator, Changes(), Lineage(scene.forward, actor=RECOVERY_ACTOR))
    return finish_forward(scene)


# --- forward -------------------------------------------------------------------------------------


def roll_forward(scene: Scene, judged: Sequence[Judged]) -> Ending | None:
    """Publish what the write had completed; None when the branch moved on and it must be undone instead."""
    failpoints.reach(failpoints.RECOVERY_BEFORE_ROLL_FORWARD_PUBLISH)
    sidecar = scene.sidecar
    lineage = Lineage(
        scene.forward,
        actor=RECOVERY_ACTOR,
        merged_parent=sidecar.merge_source_commit_id,
        rival=scene.back,
    )
    expected = {pin.table_key: pin.expected_version for pin in sidecar.tables}
    scene.held.require()
    try:
        done = publish(
            scene.coordinator,
            _published(scene, judged),
            lineage,
            expected=expected,
            precondition=_authority(sidecar),
        )
    except (ReadSetChanged, TableVersionConflict, Decided):
        return None
    _accept_schema(scene)
    outcomes = tuple(
        TableOutcome(one.pin.table_key, one.pin.expected_version, one.observed.head) for one in judged
    )
    return Ending(Decision.ROLL_FORWARD, done.commit.id, outcomes)


def _published(scene: Scene, judged: Iterable[Judged]) -> Changes:
    """What the write makes visible, of which an older form of the record tells only a part."""
    told = scene.sidecar.published
    if scene.sidecar.schema_version >= 3 and told.versions:
        return told
    observed = [
        TableVersion(one.pin.table_key, one.observed.head, one.pin.table_branch, _row_count(scene, one))
        for one in judged  # as it was when they were judged, never a newer head
    ]
    made = [_first_version(scene, one) for one in scene.sidecar.additional_registrations]
    return replace(told, versions=(*observed, *made))


def _first_version(scene: Scene, made: Registration) -> TableVersion:
    table = scene.root.tables.tip(scene.root.layout.table(made.table_path), branch=made.table_branch)
    return TableVersion(made.table_key, table.version, made.table_branch, table.count())


def _row_count(scene: Scene, one: Judged) -> int:
    place = place_of(scene, one.pin, scene.coordinator.load().state)
    return scene.root.tables.open(place, one.observed.head, branch=one.pin.table_branch).count()


def _authority(sidecar: Sidecar) -> ExactHead | None:
    if sidecar.authority is None:
        return None
    return ExactHead(sidecar.authority.branch_identifier, sidecar.authority.graph_head)


def _accept_schema(scene: Scene) -> None:
    """The write is visible: the schema that came with it holds from now on."""
    if scene.sidecar.writer_kind == "SchemaApply":
        staged = staged_schema(scene.root, schema_target(scene.sidecar), scene.forward)
        promote_schema(scene.root, scene.held, staged)


# --- back ----------------------------------------------------------------------------------------


def roll_back(scene: Scene) -> Ending:
    """Undo a write: decide, restore, publish what was restored.

    Its own commit may have become visible meanwhile; then it is finished instead.
    """
    if scene.sidecar.schema_version < 3:
        return _roll_back_old(scene)
    try:
        scene.held.require()
        publish(
            scene.coordinator,
            Changes(),
            Lineage(scene.back, actor=RECOVERY_ACTOR, rival=scene.forward),
        )
    except Decided:
        return finish_forward(scene)
    return finish_back(scene)


def finish_back(scene: Scene) -> Ending:
    """The decision to undo is visible; do what it asks for."""
    state = scene.coordinator.load().state
    _take_back(scene, state)
    if not is_repinned(scene):
        restored = _restore_all(scene, state)
        failpoints.reach(failpoints.RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH)
        if restored:
            _repin(scene, restored, state)
    return Ending(Decision.ROLL_BACK, scene.back, _undone(scene))


def _take_back(scene: Scene, state: State) -> None:
    """Remove what the write made and nobody will ever know: new tables, and the files of a new schema."""
    for made in scene.sidecar.additional_registrations:
        remove_created(scene.root, scene.held, made.table_key, made.table_path, state)
    if scene.sidecar.writer_kind == "SchemaApply":
        scene.held.require()
        discard_schema(scene.root)
        scene.root.objects.delete(scene.root.layout.past_schema(scene.forward))


def _roll_back_old(scene: Scene) -> Ending:
    """Records of older forms know one commit for both steps: restore, then publish."""
    state = scene.coordinator.load().state
    _take_back(scene, state)
    restored = _restore_all(scene, state)
    failpoints.reach(failpoints.RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH)
    scene.held.require()
    publish(
        scene.coordinator,
        Changes(versions=tuple(restored)),
        Lineage(scene.back, actor=RECOVERY_ACTOR),
        expected={one.key: state.versions[one.key].version for one in restored},
    )
    return Ending(Decision.ROLL_BACK, scene.back, _undone(scene))


def _restore_all(scene: Scene, state: State) -> list[TableVersion]:
    found = (_restored(scene, one, state) for one in observe_to_undo(scene))
    return [one for one in found if one is not None]


def _undone(scene: Scene) -> tuple[TableOutcome, ...]:
    """What was restored, told by the tables themselves: an earlier recovery may have done a part of it."""
    state = scene.coordinator.load().state
    outcomes = []
    for pin in scene.sidecar.tables:
        tip = tip_of(scene, pin, state)
        made = history(tip, pin.expected_version, tip.version) if tip else ()
        first = next((one for one in made if is_restore_of(one, scene.sidecar.operation_id)), None)
        if first is not None:
            outcomes.append(TableOutcome(pin.table_key, first.version - 1, int(first.properties[RESTORED])))
    return tuple(outcomes)


def _restored(scene: Scene, one: Judged, state: State) -> TableVersion | None:
    """The version of a table that holds the pinned rows again; None when nothing of the write is there."""
    pin, observed = one.pin, one.observed
    known = state.versions.get(pin.table_key)
    if known is None:
        return None
    if observed.head < observed.pinned or observed.damage:
        raise _not_as_told(scene, one)
    moved = observed.head > observed.pinned
    if is_foreign(scene, one):
        return None
    if not moved:
        return _fence_unmoved(scene, pin, known, state)
    if one.compensated:
        return replace(known, version=observed.head, owner=pin.table_branch)
    return _restore(scene, pin, known, state)


def _fence_unmoved(scene: Scene, pin: Pin, known: TableVersion, state: State) -> TableVersion | None:
    """A lease may have been lost by a writer that still runs: restore what it has not touched yet, too."""
    unmade = pin.first_touch is not None and tip_of(scene, pin, state) is None
    if scene.root.layout.root.is_local:
        if pin.first_touch is not None and known.owner != pin.table_branch and pin.table_branch is not None:
            _drop_fork(scene, place_of(scene, pin, state), pin.table_branch, unmade=unmade)
        return None
    if unmade and not _make_fork(scene, pin, state):
        return None
    return _restore(scene, pin, known, state)


def _drop_fork(scene: Scene, place: Location, branch: str, *, unmade: bool) -> None:
    """Remove the fork that a write made, or began to make; that of an earlier branch is left as it is.

    It stands in nobody's way: the next write that needs the name removes it.
    """
    if unmade and scene.root.forks.find(place, branch) is not None:
        return
    scene.held.require()
    try:
        remove_fork(scene.root, place, branch)
    except BranchInUse as error:
        # Nobody builds on what was not published: it is of an earlier branch that began at the same version.
        _log.info("a fork of an earlier branch '%s' stays: %s still stands on it", branch, error.dependants)


def _make_fork(scene: Scene, pin: Pin, state: State) -> bool:
    """Make the fork that a write did not come to make, so that it never can; False where it cannot anyway."""
    assert pin.table_branch is not None
    assert pin.first_touch is not None
    touch, place = pin.first_touch, place_of(scene, pin, state)
    source = scene.root.tables.open(place, touch.source_version, branch=touch.source_branch)
    scene.held.require()
    try:
        scene.root.forks.create(source, pin.table_branch)
    except StorageFailure as failure:
        if failure.kind not in (Trouble.RESIDUE, Trouble.EXISTS):
            raise
        # The writer died while it made the fork, or before it removed that of an earlier branch.
        if not _makes_way(scene, ForkPlace(pin.table_key, place, pin.table_branch)):
            return False
        scene.root.forks.create(source, pin.table_branch)
    return True


def _makes_way(scene: Scene, there: ForkPlace) -> bool:
    """Remove what is there under the name; False when others need it, so that nobody can make another."""
    if classify(scene.root, there) is Standing.LEGITIMATE:
        return False
    clear_below(scene.root, scene.held, there)
    try:
        remove_orphan(scene.root, scene.held, there)
    except Conflict:
        return False
    return True


def _restore(scene: Scene, pin: Pin, known: TableVersion, state: State) -> TableVersion:
    tip = tip_of(scene, pin, state)
    if tip is None:
        raise RecoveryRequired(scene.sidecar.operation_id, f"table '{pin.table_key}' has no fork to restore")
    marks = {OPERATION: scene.sidecar.operation_id, RESTORED: str(known.version)}
    scene.held.require()
    table = commit_staged(stage_restore(tip, known.version).signed(marks))
    return replace(known, version=table.version, owner=pin.table_branch)


def _repin(scene: Scene, restored: Sequence[TableVersion], state: State) -> None:
    """Publish the restored versions, so that the manifest and the tables agree again."""
    lineage = Lineage(scene.sidecar.restore_commit_id or scene.root.new_id(), actor=RECOVERY_ACTOR)
    expected: Mapping[str, int] = {one.key: state.versions[one.key].version for one in restored}
    scene.held.require()
    publish(scene.coordinator, Changes(versions=tuple(restored)), lineage, expected=expected)


# --- all together --------------------------------------------------------------------------------


def _settle(scene: Scene) -> None:
    """Its writer may have died before its files were on disk, and nobody looks after them later."""
    if scene.root.tables.access.sync is None:
        return
    loaded = scene.coordinator.load()
    loaded.table.settled()
    for pin in scene.sidecar.tables:
        tip = tip_of(scene, pin, loaded.state)
        if tip is not None:
            tip.settled()


def recover(scene: Scene, *, only_forward: bool) -> Ending | None:
    """Deal with one record, and say how it ended; None when it has to wait for who may undo things.

    What fails here concerns the tables and the branch of the record. `close` is for what all records share.
    """
    found = verdict(scene)
    if found.decision is Decision.ABORT:
        if only_forward:
            return None
        raise _not_as_told(
            scene, next(one for one in found.judged if one.reached is Reached.INVARIANT_VIOLATION)
        )
    _settle(scene)
    if found.decision is Decision.ROLL_FORWARD:
        if found.visible:
            return (_finish_old if found.judged else finish_forward)(scene)
        ended = roll_forward(scene, found.judged)
        if ended is not None:
            return ended
    if only_forward:
        return None
    return finish_back(scene) if found.visible else roll_back(scene)


def _not_as_told(scene: Scene, one: Judged) -> RecoveryRequired:
    key, damage = one.pin.table_key, one.observed.damage
    reason = f"cannot be read: {damage}" if damage else "is not as the write and its manifest say"
    return RecoveryRequired(scene.sidecar.operation_id, f"table '{key}' {reason}")
