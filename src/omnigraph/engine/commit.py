"""The one door: every change of a graph's content passes here.

    prepare   a plan on a pinned base; its files are staged, nothing is visible
    gates     the branch's lock; recover what a dead writer left; the base must still hold
    phase A   write the record of the operation
    phase B   commit the staged change of every table, then confirm the record
    phase C   publish: one write of the manifest makes all of it visible
    phase D   remove the record

Before phase A a failure changes nothing. After the first effect only recovery may touch what was
done: the caller gets `RecoveryRequired`, and the record says how it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from omnigraph import failpoints
from omnigraph.engine.coordinator import Loaded
from omnigraph.engine.created import create_table, path_of, stage_over
from omnigraph.engine.effects import moving, stage, steps_of, together
from omnigraph.engine.forks import fork_table
from omnigraph.engine.gates import BaseMoved, is_first_touch, pass_gates
from omnigraph.engine.lineage import Commit
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.plan import Adopt, BuildIndexes, CommitPlan, Create, Drop, Effect, Rearrange
from omnigraph.engine.prepare import Ready, prepare
from omnigraph.engine.publish import ExactHead, Lineage, Publication, publish
from omnigraph.engine.rearrange import rearrange
from omnigraph.engine.recovery import sidecar
from omnigraph.engine.recovery.sidecar import (
    Authority,
    FirstTouch,
    LineageIntent,
    OwnerMark,
    Pin,
    Registration,
    SchemaTarget,
    Sidecar,
    Tombstone,
    Update,
)
from omnigraph.engine.schema_staging import Succession, promote_schema, stage_schema
from omnigraph.engine.tidy import tidy_tables
from omnigraph.engine.upkeep import FRAGMENT_LIMIT, compact_manifest
from omnigraph.errors import (
    Conflict,
    LockLost,
    OmnigraphError,
    RecoveryRequired,
    StorageFailure,
)
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.lock_table import THIS_PROCESS
from omnigraph.storage.locks import Held
from omnigraph.storage.staging import BINDING, Counts, Staged, commit_staged, new_mark
from omnigraph.storage.tables import Table
from omnigraph.storage.upserting import Found, stage_found

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Receipt:
    """A write that took effect."""

    commit: Commit
    counts: Mapping[str, Counts]
    """By table key."""


def commit(graph: OpenGraph, plan: CommitPlan, held: Held | None = None) -> Receipt:
    """Carry out a plan; raises `BaseMoved` when it has to be prepared again.

    `held` is the branch's lock, where the caller took it before it prepared the plan.
    """
    ready = prepare(graph, plan)
    failpoints.reach(failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE)
    if held is not None:
        return _through(graph, plan, ready, held)
    with graph.root.locks.hold([plan.branch], operation_id=plan.operation_id) as own:
        return _through(graph, plan, ready, own)


def _through(graph: OpenGraph, plan: CommitPlan, ready: Mapping[str, Ready], held: Held) -> Receipt:
    try:
        base = pass_gates(graph, plan, held)
    except LockLost as lost:
        raise BaseMoved(lost) from lost
    passage = _Passage(graph, plan, held, base)
    published = passage.run(ready)
    receipt = Receipt(published.commit, {key: together(found) for key, found in passage.counts.items()})
    if held.still_held():
        _tidy(graph, receipt, passage, published)
    # Last, because from here on readers share these handles.
    for key in moving(plan.effects):
        graph.root.tables.keep(passage.landed[key])
    return receipt


def _tidy(graph: OpenGraph, receipt: Receipt, passage: _Passage, published: Publication) -> None:
    """What is done after a write while its lock is held: nothing of it can fail the write."""
    coordinator = graph.coordinator(passage.plan.branch)
    written = {key: (one.inserted or 0) + (one.updated or 0) for key, one in receipt.counts.items()}
    try:
        tidy_tables(coordinator, passage.held, passage.landed, written)
        # The publish itself shows how many fragments there are: in most cases nothing more is asked.
        if published.loaded.table.fragment_count > FRAGMENT_LIMIT:
            compact_manifest(coordinator)
    except Exception:  # noqa: BLE001 - a mistake of ours, and who is told of it would write once more
        _log.exception("upkeep on branch '%s' broke off", coordinator.branch)


# --- phases --------------------------------------------------------------------------------------


class _Passage:
    """One plan on its way through the phases, with the branch's lock held."""

    def __init__(self, graph: OpenGraph, plan: CommitPlan, held: Held, base: Loaded) -> None:
        self.graph = graph
        self.root = graph.root
        self.plan = plan
        self.held = held
        self.base = base
        """The branch as the gates found it."""
        self.landed: dict[str, Table] = {}
        """The tables that have moved or were made, as the write left them."""
        self.counts: dict[str, list[Counts]] = {}
        """What each change did."""
        self.succession: Succession | None = None
        """The new schema, once its files wait."""
        self.begun = False
        """Whether anything may have happened that somebody has to know of."""

    def run(self, ready: Mapping[str, Ready]) -> Publication:
        """All phases; `ready` is what was prepared before the lock was taken."""
        record = self._armed(ready)
        self._store(record)
        try:
            published = self._effects(record, ready)
        except _NoEffect as nothing:
            sidecar.remove(self.root, record.operation_id)
            raise BaseMoved(nothing.cause) from nothing
        except OmnigraphError as error:
            raise RecoveryRequired(record.operation_id, error.message) from error
        self._remove(record.operation_id)
        return published

    def _store(self, record: Sidecar) -> None:
        """Phase A. Nothing has happened yet, so a record whose put failed is taken back."""
        try:
            self.held.require()
            failpoints.reach(failpoints.RECOVERY_SIDECAR_WRITE)
            sidecar.store_new(self.root, record)
        except LockLost as lost:
            raise BaseMoved(lost) from lost
        except StorageFailure:
            # It may have landed although its answer was lost.
            self._remove(record.operation_id)
            raise

    def _armed(self, ready: Mapping[str, Ready]) -> Sidecar:
        plan, base = self.plan, self.plan.base
        owner = THIS_PROCESS.owner
        return Sidecar(
            schema_version=sidecar.CURRENT,
            operation_id=plan.operation_id,
            started_at=str(self.root.clock()),
            writer_kind=plan.kind,
            branch=None if plan.branch == MAIN else plan.branch,
            actor_id=plan.actor,
            tables=tuple(self._pin(key, ready.get(key)) for key in moving(plan.effects)),
            additional_registrations=tuple(
                Registration(table_key=key, table_path=path_of(key)) for key in self._of(Create)
            ),
            tombstones=tuple(
                Tombstone(table_key=key, tombstone_version=base.entries[key].version + 1)
                for key in self._of(Drop)
            ),
            phase="Armed" if plan.is_confirmed else None,
            lineage=LineageIntent(graph_commit_id=plan.commit_id, merged_parent_commit_id=plan.merged_parent),
            merge_source_commit_id=plan.merged_parent,
            rollback_commit_id=plan.rollback_id,
            restore_commit_id=plan.restore_id,
            owner=OwnerMark(host=owner.host, pid=owner.pid, token=owner.token),
            lance_version=BINDING,
            authority=Authority(
                branch_identifier=base.identity, graph_head=base.head, schema_ir_hash=base.schema_hash
            ),
            schema_target=SchemaTarget(schema_ir_hash=plan.schema.hash) if plan.schema else None,
        )

    def _of(self, kind: type[Effect]) -> list[str]:
        return [key for key, effect in self.plan.effects.items() if isinstance(effect, kind)]

    def _pin(self, key: str, ready: Ready | None) -> Pin:
        entry, steps = self.plan.base.entries[key], steps_of(self.plan.effects[key])
        touch, marks = None, [new_mark() for _ in steps]
        if is_first_touch(self.plan, entry):
            touch = FirstTouch(source_branch=entry.owner, source_version=entry.version)
        if isinstance(ready, Staged):
            marks[0] = ready.uuid
        if ready is not None and ready.in_two:
            marks.insert(1, new_mark())
        return Pin(
            table_key=key,
            table_path=self.root.layout.table(entry.path).uri,
            expected_version=entry.version,
            post_commit_pin=entry.version + max(1, len(marks)),
            table_branch=None if self.plan.branch == MAIN else self.plan.branch,
            transaction_uuids=tuple(marks),
            first_touch=touch,
        )

    # --- phase B ---------------------------------------------------------------------------------

    def _effects(self, record: Sidecar, ready: Mapping[str, Ready]) -> Publication:
        """Everything after the record is written; raises `_NoEffect` while nothing has happened yet."""
        try:
            self._reach_the_effects()
            self._make_tables()
            first = self._first(record, ready)
            for pin in record.tables:
                self.landed[pin.table_key] = self._land(pin, first.get(pin.table_key))
                failpoints.reach(failpoints.MUTATION_POST_TABLE_COMMIT)
            self._stage_schema()
        except OmnigraphError as error:
            if self.begun or not _left_nothing(error):
                raise
            raise _NoEffect(error) from error
        self._reach_the_confirmation()
        confirmed = self._confirm(self._achieved(record))
        self._reach_the_publish()
        published = self._publish(confirmed)
        if self.succession is not None:
            failpoints.reach(failpoints.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT)
            promote_schema(self.root, self.held, self.succession)
        return published

    def _make_tables(self) -> None:
        for key, effect in self.plan.effects.items():
            if isinstance(effect, Create):
                self.begun = True
                self.landed[key] = self._make_table(key, effect)
                self.counts[key] = [Counts(inserted=self.landed[key].count())]

    def _make_table(self, key: str, effect: Create) -> Table:
        made = create_table(self.root, self.held, key, effect, self.base.state)
        if made is not None:
            return made
        coordinator = self.graph.coordinator(self.plan.branch)
        return commit_staged(stage_over(self.root, self.held, key, effect, lambda: coordinator.load().state))

    def _first(self, record: Sidecar, ready: Mapping[str, Ready]) -> dict[str, Staged]:
        """The first change of every table; those that the branch does not have of its own yet are forked."""
        found = {key: one for key, one in ready.items() if isinstance(one, Staged)}
        for pin in record.tables:
            if pin.first_touch is not None:
                found[pin.table_key] = self._fork_and_stage(pin, ready.get(pin.table_key))
                self.begun = True
        return found

    def _fork_and_stage(self, pin: Pin, ready: Ready | None) -> Staged:
        entry = self.plan.base.entries[pin.table_key]
        failpoints.reach(failpoints.MUTATION_POST_SIDECAR_PRE_FORK)
        table = fork_table(self.root, self.held, entry, self.plan.branch, operation_id=self.plan.operation_id)
        failpoints.reach(failpoints.MUTATION_POST_FORK_PRE_COMMIT)
        first, *_ = steps_of(self.plan.effects[pin.table_key])
        if isinstance(ready, Found):
            return stage_found(table, ready).marked(pin.transaction_uuids[0])
        return stage(self.root.objects, table, first).marked(pin.transaction_uuids[0])

    def _land(self, pin: Pin, first: Staged | None) -> Table:
        """Carry out the effect on one table, whose first change is staged."""
        effect = self.plan.effects[pin.table_key]
        self.held.require()
        if isinstance(effect, Rearrange):
            self.begun = True
            return rearrange(effect, self.held)
        if isinstance(effect, BuildIndexes):
            failpoints.reach(failpoints.ENSURE_INDICES_POST_STAGE_PRE_COMMIT_BTREE)
        assert first is not None
        table, marks = self._commit(pin.table_key, first), pin.transaction_uuids[1:]
        if first.then is not None:
            failpoints.reach(failpoints.MUTATION_BETWEEN_TABLE_VERSIONS)
            self.held.require()
            table = self._commit(pin.table_key, first.then(table).marked(marks[0]))
            marks = marks[1:]
        for step, mark in zip(steps_of(effect)[1:], marks, strict=True):
            failpoints.reach(failpoints.BRANCH_MERGE_ADOPT_AFTER_UPSERT_PRE_DELETE)
            self.held.require()
            table = self._commit(pin.table_key, stage(self.root.objects, table, step).marked(mark))
        return table

    def _commit(self, key: str, staged: Staged) -> Table:
        table = commit_staged(staged)
        self.begun = True
        self.counts.setdefault(key, []).append(staged.counts)
        return table

    def _stage_schema(self) -> None:
        """The files of a new schema, and its text for whoever reads the past; nobody looks at them yet."""
        schema = self.plan.schema
        if schema is None:
            return
        failpoints.reach(failpoints.SCHEMA_APPLY_BEFORE_STAGING_WRITE)
        self.begun = True
        self.held.require()
        self.succession = stage_schema(self.root, schema.files)
        self.root.objects.write_text(self.root.layout.past_schema(self.plan.commit_id), schema.files.source)
        failpoints.reach(failpoints.SCHEMA_APPLY_AFTER_STAGING_WRITE)

    def _achieved(self, record: Sidecar) -> Sidecar:
        """The record with the versions that the tables have reached."""
        reached = [
            Update(
                table_key=key, table_version=table.version, table_branch=table.branch, row_count=table.count()
            )
            for key, table in self.landed.items()
        ]
        adopted = [
            Update(table_key=key, table_version=effect.version, row_count=effect.row_count)
            for key, effect in self.plan.effects.items()
            if isinstance(effect, Adopt)
        ]
        pins = tuple(
            msgspec.structs.replace(pin, confirmed_version=self.landed[pin.table_key].version)
            for pin in record.tables
        )
        return msgspec.structs.replace(record, tables=pins, updates=(*reached, *adopted))

    def _confirm(self, achieved: Sidecar) -> Sidecar:
        """The commit point of the record: from here on the write is finished, before it is undone."""
        if not self.plan.is_confirmed:
            return achieved
        confirmed = msgspec.structs.replace(achieved, phase="EffectsConfirmed")
        self.held.require()
        failpoints.reach(failpoints.RECOVERY_SIDECAR_CONFIRM)
        sidecar.rewrite(self.root, confirmed)
        return confirmed

    # --- points where tests step in --------------------------------------------------------------

    def _reach_the_effects(self) -> None:
        if self.plan.kind == "SchemaApply":
            failpoints.reach(failpoints.SCHEMA_APPLY_POST_SIDECAR_PRE_EFFECT)

    def _reach_the_confirmation(self) -> None:
        match self.plan.kind:
            case "EnsureIndices":
                failpoints.reach(failpoints.ENSURE_INDICES_POST_EFFECTS_PRE_CONFIRM)
            case "BranchMerge":
                failpoints.reach(failpoints.BRANCH_MERGE_POST_EFFECTS_PRE_CONFIRM)

    def _reach_the_publish(self) -> None:
        match self.plan.kind:
            case "EnsureIndices":
                failpoints.reach(failpoints.ENSURE_INDICES_POST_PHASE_B_PRE_MANIFEST_COMMIT)
            case "Optimize":
                failpoints.reach(failpoints.OPTIMIZE_POST_PHASE_B_PRE_MANIFEST_COMMIT)
            case "BranchMerge":
                failpoints.reach(failpoints.BRANCH_MERGE_POST_PHASE_B_PRE_MANIFEST_COMMIT)
            case _:
                failpoints.reach(failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER)

    # --- phases C and D --------------------------------------------------------------------------

    def _publish(self, record: Sidecar) -> Publication:
        plan, entries = self.plan, self.plan.base.entries
        self.held.require()
        return publish(
            self.graph.coordinator(plan.branch),
            record.published,
            Lineage(plan.commit_id, plan.actor, plan.merged_parent, rival=plan.rollback_id),
            expected={key: entries[key].version if key in entries else 0 for key in plan.effects},
            precondition=ExactHead(plan.base.identity, plan.base.head),
            base=self.base,
        )

    def _remove(self, operation_id: str) -> None:
        """Best effort: a record that is left behind is dealt with by the next writer of the branch."""
        try:
            failpoints.reach(failpoints.RECOVERY_SIDECAR_DELETE)
            sidecar.remove(self.root, operation_id)
        except OmnigraphError as error:
            _log.warning("the record of operation %s is left behind: %s", operation_id, error)


class _NoEffect(Exception):
    """A passage ended before anything happened."""

    def __init__(self, cause: OmnigraphError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _left_nothing(error: OmnigraphError) -> bool:
    """Whether a failed first effect is known to have changed nothing."""
    if isinstance(error, StorageFailure):
        return error.kind in (Trouble.MOVED, Trouble.CONFLICT)
    return isinstance(error, LockLost | Conflict)
