"""Roll an interrupted write forward or back.

A record fixes the ids of the two commits its write can end in. Both rewrite the branch's head row, and each
is refused once the other is visible, so exactly one of them is published; the steps after it are idempotent.
Rolling back keeps one order: decide, then restore, then publish the restored versions. A restore also fences
off the writer, should it still run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.effects import remove_orphan_table
from omnigraph.engine.commit.recovery.audit import AuditRow, RecoveryKind, TableOutcome, record_recovery
from omnigraph.engine.commit.recovery.removals import delete_removal
from omnigraph.engine.commit.recovery.sidecar import Pin, Registration, Sidecar, remove
from omnigraph.engine.commit.recovery.table_progress import (
    OPERATION,
    RESTORED,
    Decision,
    TableJudgement,
    TableProgress,
    is_restore_of,
)
from omnigraph.engine.commit.recovery.verdict import (
    RecoveryContext,
    is_foreign,
    is_repinned,
    judge_tables_to_undo,
    location_of,
    open_tip,
    pinned_version,
    reach_verdict,
    schema_target,
)
from omnigraph.engine.commit.schema_staging import discard_staged_schema, promote_schema, read_staged_schema
from omnigraph.engine.graph.lineage import RECOVERY, RECOVERY_ACTOR
from omnigraph.engine.graph.manifest import ManifestState, TableVersion
from omnigraph.engine.graph.publish import ExactHead, ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.table_forks import (
    ForkPlace,
    ForkStatus,
    classify_fork,
    remove_fork,
    remove_orphan_fork,
    remove_orphans_below,
)
from omnigraph.errors import (
    BranchInUse,
    Conflict,
    Decided,
    ReadSetChanged,
    RecoveryRequired,
    StorageFailure,
    TableVersionConflict,
)
from omnigraph.phases import RECOVERED, in_phase
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.location import Location
from omnigraph.storage.staging import TransactionInfo, commit_staged, read_transaction, stage_restore
from omnigraph.storage.tables import Table

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resolution:
    """How a write ended; what remains is to audit it and remove its record."""

    decision: Decision
    commit_id: str
    outcomes: tuple[TableOutcome, ...]


_KINDS: Mapping[Decision, RecoveryKind] = {
    Decision.ROLL_FORWARD: "RolledForward",
    Decision.ROLL_BACK: "RolledBack",
}


@in_phase(RECOVERED)
def close_record(context: RecoveryContext, ending: Resolution) -> None:
    """Record in the audit how a write ended, and remove its record."""
    sidecar, root = context.sidecar, context.root
    row = AuditRow(
        operation_id=sidecar.operation_id,
        kind=_KINDS[ending.decision],
        commit_id=ending.commit_id,
        writer_kind=sidecar.writer_kind,
        actor=sidecar.actor_id,
        outcomes=ending.outcomes,
        created_at=root.clock(),
    )
    record_recovery(root, row)
    remove(root, sidecar.operation_id)


# --- the outcome that is visible already ---------------------------------------------------------


def finish_forward(context: RecoveryContext) -> Resolution:
    """Finish a write that is visible: promote its schema, if it has one."""
    state = context.coordinator.load().state
    outcomes = tuple(
        TableOutcome(pin.table_key, pin.expected_version, pinned_version(state, pin))
        for pin in context.sidecar.tables
    )
    context.coordinator.unchecked.update(pin.table_key for pin in context.sidecar.tables)
    _accept_schema(context)
    return Resolution(Decision.ROLL_FORWARD, context.forward_id, outcomes)


def _finish_legacy(context: RecoveryContext) -> Resolution:
    """Record a published legacy write with an empty commit of its own."""
    context.held.require()
    lineage = NewCommit(context.forward_id, actor=RECOVERY_ACTOR, operation=RECOVERY)
    publish(context.coordinator, ManifestChanges(), lineage)
    return finish_forward(context)


# --- forward -------------------------------------------------------------------------------------


def roll_forward(context: RecoveryContext, judged: Sequence[TableJudgement]) -> Resolution | None:
    """Publish a completed write; None when the branch moved on and it must be undone instead."""
    failpoints.reach(failpoints.RECOVERY_BEFORE_ROLL_FORWARD_PUBLISH)
    sidecar = context.sidecar
    lineage = NewCommit(
        context.forward_id,
        actor=RECOVERY_ACTOR,
        merged_parent=sidecar.merge_source_commit_id,
        merged_commits=sidecar.lineage.merged_commits if sidecar.lineage else (),
        rival=context.rollback_id,
        message=sidecar.lineage.message if sidecar.lineage else None,
        operation=sidecar.lineage.operation if sidecar.lineage else None,
    )
    expected = {pin.table_key: pin.expected_version for pin in sidecar.tables}
    context.held.require()
    changes = _changes_to_publish(context, judged)
    try:
        done = publish(
            context.coordinator,
            changes,
            lineage,
            expected=expected,
            precondition=_authority(sidecar),
        )
    except (ReadSetChanged, TableVersionConflict, Decided):
        return None
    context.coordinator.unchecked.update(version.key for version in changes.versions)
    _accept_schema(context)
    outcomes = tuple(
        TableOutcome(one.pin.table_key, one.pin.expected_version, one.observed.head) for one in judged
    )
    return Resolution(Decision.ROLL_FORWARD, done.commit.id, outcomes)


def _changes_to_publish(context: RecoveryContext, judged: Iterable[TableJudgement]) -> ManifestChanges:
    """Return the changes to publish; older records name only a part of them."""
    recorded = context.sidecar.published
    if context.sidecar.schema_version >= 3 and recorded.versions:
        return recorded
    observed = [
        TableVersion(one.pin.table_key, one.observed.head, one.pin.table_branch, _row_count(context, one))
        for one in judged  # as it was when they were judged, never a newer head
    ]
    made = [_first_version(context, one) for one in context.sidecar.additional_registrations]
    return replace(recorded, versions=(*observed, *made))


def _first_version(context: RecoveryContext, made: Registration) -> TableVersion:
    table = context.root.tables.tip(context.root.layout.table(made.table_path), branch=made.table_branch)
    return TableVersion(made.table_key, table.version, made.table_branch, table.count())


def _row_count(context: RecoveryContext, one: TableJudgement) -> int:
    place = location_of(context, one.pin, context.coordinator.load().state)
    return context.root.tables.open(place, one.observed.head, branch=one.pin.table_branch).count()


def _authority(sidecar: Sidecar) -> ExactHead | None:
    if sidecar.authority is None:
        return None
    return ExactHead(sidecar.authority.branch_identifier, sidecar.authority.graph_head)


def _accept_schema(context: RecoveryContext) -> None:
    """Promote the schema of a visible write."""
    if context.sidecar.writer_kind == "SchemaApply":
        staged = read_staged_schema(context.root, schema_target(context.sidecar), context.forward_id)
        promote_schema(context.root, context.held, staged)


# --- back ----------------------------------------------------------------------------------------


def roll_back(context: RecoveryContext) -> Resolution:
    """Undo a write: decide, restore, publish what was restored.

    Its own commit may have become visible meanwhile; then it is finished instead.
    """
    if context.sidecar.schema_version < 3:
        return _roll_back_legacy(context)
    try:
        context.held.require()
        publish(
            context.coordinator,
            ManifestChanges(),
            NewCommit(
                context.rollback_id, actor=RECOVERY_ACTOR, rival=context.forward_id, operation=RECOVERY
            ),
        )
    except Decided:
        return finish_forward(context)
    return finish_rollback(context)


def finish_rollback(context: RecoveryContext) -> Resolution:
    """Finish a rollback whose decision is visible."""
    state = context.coordinator.load().state
    _remove_leftovers(context, state)
    if not is_repinned(context):
        restored = _restore_all(context, state)
        failpoints.reach(failpoints.RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH)
        if restored:
            _repin(context, restored, state)
    return Resolution(Decision.ROLL_BACK, context.rollback_id, _restored_tables(context))


def _remove_leftovers(context: RecoveryContext, state: ManifestState) -> None:
    """Remove orphans of the write: new tables, and the files of a new schema."""
    for made in context.sidecar.additional_registrations:
        remove_orphan_table(context.root, context.held, made.table_key, made.table_path, state)
    if context.sidecar.writer_kind == "SchemaApply":
        context.held.require()
        discard_staged_schema(context.root, context.held)
        delete_removal(context.root, context.sidecar.operation_id)
        context.root.objects.delete(context.root.layout.past_schema(context.forward_id))


def _roll_back_legacy(context: RecoveryContext) -> Resolution:
    """Roll back by a record of an older format, which has one commit: restore, then publish."""
    state = context.coordinator.load().state
    _remove_leftovers(context, state)
    restored = _restore_all(context, state)
    failpoints.reach(failpoints.RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH)
    context.held.require()
    publish(
        context.coordinator,
        ManifestChanges(versions=tuple(restored)),
        NewCommit(context.rollback_id, actor=RECOVERY_ACTOR, operation=RECOVERY),
        expected={one.key: state.versions[one.key].version for one in restored},
    )
    return Resolution(Decision.ROLL_BACK, context.rollback_id, _restored_tables(context))


def _restore_all(context: RecoveryContext, state: ManifestState) -> list[TableVersion]:
    found = (_restore_if_written(context, one, state) for one in judge_tables_to_undo(context))
    return [one for one in found if one is not None]


def _restored_tables(context: RecoveryContext) -> tuple[TableOutcome, ...]:
    """Return what was restored, read from the tables: an earlier recovery may have done a part of it."""
    state = context.coordinator.load().state
    outcomes = []
    for pin in context.sidecar.tables:
        tip = open_tip(context, pin, state)
        first = None if tip is None else _first_restore(context, pin, tip, state)
        if first is not None:
            outcomes.append(TableOutcome(pin.table_key, first.version - 1, int(first.properties[RESTORED])))
    return tuple(outcomes)


def _first_restore(
    context: RecoveryContext, pin: Pin, tip: Table, state: ManifestState
) -> TransactionInfo | None:
    """The earliest restore of a table by this recovery, searched from the newest version down.

    The record cannot say where to begin: it may expect a version that the table never had. A restore
    itself says which version it went back to, and nothing of the write is below that.
    """
    first = None
    lowest = min(pin.expected_version, pinned_version(state, pin) - 1)
    for version in range(tip.version, 0, -1):
        if version <= lowest:
            break
        made = read_transaction(tip, version)
        if is_restore_of(made, context.sidecar.operation_id):
            first, lowest = made, int(made.properties[RESTORED])
    return first


def _restore_if_written(
    context: RecoveryContext, one: TableJudgement, state: ManifestState
) -> TableVersion | None:
    """Return the version of a table with the pinned rows restored; None when the write left nothing."""
    pin, observed = one.pin, one.observed
    known = state.versions.get(pin.table_key)
    if known is None:
        return None
    if observed.head < observed.pinned or observed.damage:
        raise _mismatch_error(context, one)
    moved = observed.head > observed.pinned
    if is_foreign(context, one):
        return None
    if not moved:
        return _fence_unmoved(context, pin, known, state)
    if one.compensated:
        return replace(known, version=observed.head, owner=pin.table_branch)
    return _restore(context, pin, known, state)


def _fence_unmoved(
    context: RecoveryContext, pin: Pin, known: TableVersion, state: ManifestState
) -> TableVersion | None:
    """Fence a table that the write has not touched: its writer may have lost its lease and still run."""
    unmade = pin.first_touch is not None and open_tip(context, pin, state) is None
    if context.root.layout.root.is_local:
        if pin.first_touch is not None and known.owner != pin.table_branch and pin.table_branch is not None:
            _drop_fork(context, location_of(context, pin, state), pin.table_branch, unmade=unmade)
        return None
    if unmade and not _make_fork(context, pin, state):
        return None
    return _restore(context, pin, known, state)


def _drop_fork(context: RecoveryContext, place: Location, branch: str, *, unmade: bool) -> None:
    """Remove the complete or partial fork of a write; one of an earlier branch stays.

    The next write that needs its name removes that.
    """
    if unmade and context.root.forks.find(place, branch) is not None:
        return
    context.held.require()
    try:
        remove_fork(context.root, context.held, place, branch)
    except BranchInUse as error:
        # An unpublished fork has no dependants: this one is of an earlier branch.
        _log.info("a fork of an earlier branch '%s' stays: %s is built on it", branch, error.dependants)


def _make_fork(context: RecoveryContext, pin: Pin, state: ManifestState) -> bool:
    """Create the fork that a write did not create, to fence it off; False when the name stays taken."""
    assert pin.table_branch is not None
    assert pin.first_touch is not None
    touch, place = pin.first_touch, location_of(context, pin, state)
    source = context.root.tables.open(place, touch.source_version, branch=touch.source_branch)
    context.held.require()
    try:
        context.root.forks.create(source, pin.table_branch)
    except StorageFailure as failure:
        if failure.kind not in (TableFailureKind.RESIDUE, TableFailureKind.EXISTS):
            raise
        # The writer died while it created the fork, or before it removed that of an earlier branch.
        if not _clear_fork_name(context, ForkPlace(pin.table_key, place, pin.table_branch)):
            return False
        context.root.forks.create(source, pin.table_branch)
    return True


def _clear_fork_name(context: RecoveryContext, there: ForkPlace) -> bool:
    """Remove the fork of that name; False when it is needed."""
    if classify_fork(context.root, there) is ForkStatus.LEGITIMATE:
        return False
    remove_orphans_below(context.root, context.held, there)
    try:
        remove_orphan_fork(context.root, context.held, there)
    except Conflict:
        return False
    return True


def _restore(context: RecoveryContext, pin: Pin, known: TableVersion, state: ManifestState) -> TableVersion:
    tip = open_tip(context, pin, state)
    if tip is None:
        raise RecoveryRequired(
            context.sidecar.operation_id, f"table '{pin.table_key}' has no fork to restore"
        )
    marks = {OPERATION: context.sidecar.operation_id, RESTORED: str(known.version)}
    context.held.require()
    table = commit_staged(stage_restore(tip, known.version).with_properties(marks))
    return replace(known, version=table.version, owner=pin.table_branch)


def _repin(context: RecoveryContext, restored: Sequence[TableVersion], state: ManifestState) -> None:
    """Publish the restored versions, so that the manifest and the tables agree again."""
    commit_id = context.sidecar.restore_commit_id or context.root.new_id()
    lineage = NewCommit(commit_id, actor=RECOVERY_ACTOR, operation=RECOVERY)
    expected: Mapping[str, int] = {one.key: state.versions[one.key].version for one in restored}
    context.held.require()
    publish(context.coordinator, ManifestChanges(versions=tuple(restored)), lineage, expected=expected)


# --- all together --------------------------------------------------------------------------------


def _sync_tables(context: RecoveryContext) -> None:
    """Sync the tables: the writer may have died before its files were on disk."""
    if context.root.tables.access.sync is None:
        return
    loaded = context.coordinator.load()
    loaded.table.make_durable()
    for pin in context.sidecar.tables:
        tip = open_tip(context, pin, loaded.state)
        if tip is not None:
            tip.make_durable()


@in_phase("recovery")
def recover(context: RecoveryContext, *, only_forward: bool) -> Resolution | None:
    """Recover one record and return how it ended; None when it must be undone and `only_forward` is set.

    Failures concern the tables and the branch of the record. `close_record` covers what all records share.
    """
    found = reach_verdict(context)
    if found.decision is Decision.ABORT:
        if only_forward:
            return None
        raise _mismatch_error(
            context, next(one for one in found.judged if one.progress is TableProgress.INVARIANT_VIOLATION)
        )
    _sync_tables(context)
    if found.decision is Decision.ROLL_FORWARD:
        if found.visible:
            return (_finish_legacy if found.judged else finish_forward)(context)
        ended = roll_forward(context, found.judged)
        if ended is not None:
            return ended
    if only_forward:
        return None
    return finish_rollback(context) if found.visible else roll_back(context)


def _mismatch_error(context: RecoveryContext, one: TableJudgement) -> RecoveryRequired:
    key, damage = one.pin.table_key, one.observed.damage
    reason = f"cannot be read: {damage}" if damage else "is not as the write and its manifest say"
    return RecoveryRequired(context.sidecar.operation_id, f"table '{key}' {reason}")
