"""The one door: every change of a graph's content passes here.

    prepare   a plan on a pinned base; its files are staged, nothing is visible
    gates     the branch's lock; recover what a dead writer left; the base must still hold
    phase A   write the record of the operation
    phase B   commit the staged change of every table, then confirm the record
    phase C   publish: one write of the manifest makes all of it visible
    phase D   remove the record

Before phase A a failure changes nothing. After the first effect only recovery may touch what was
done: the caller gets `RecoveryRequired`, and the record says how it ends. Ctrl-C waits for the outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import msgspec

from omnigraph import ctrl_c, failpoints
from omnigraph.engine.coordinator import Loaded
from omnigraph.engine.created import create_table, stage_over
from omnigraph.engine.effects import moving, stage, steps_of, together
from omnigraph.engine.forks import fork_table
from omnigraph.engine.gates import BaseMoved, pass_gates
from omnigraph.engine.lineage import Commit
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.plan import BuildIndexes, CommitPlan, Create, Rearrange
from omnigraph.engine.prepare import Ready, prepare, side_by_side
from omnigraph.engine.publish import ExactHead, Lineage, Publication, publish
from omnigraph.engine.rearrange import rearrange
from omnigraph.engine.recording import achieved_record, armed_record
from omnigraph.engine.recovery import sidecar
from omnigraph.engine.recovery.sidecar import Pin, Sidecar
from omnigraph.engine.schema_staging import Succession, promote_schema, stage_schema
from omnigraph.engine.tidy import tidy_tables
from omnigraph.engine.upkeep import tidy_manifest
from omnigraph.errors import (
    Conflict,
    LockLost,
    OmnigraphError,
    RecoveryRequired,
    StorageFailure,
)
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.locks import Held
from omnigraph.storage.staging import Counts, Staged, commit_staged
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
    """From the gates to the last phase, and what upkeep there is to do while the lock is held."""
    try:
        base = pass_gates(graph, plan, held)
    except LockLost as lost:
        raise BaseMoved(lost) from lost
    passage = _Passage(graph, plan, held, base)
    with _to_its_outcome(plan):
        published = passage.run(ready)
    receipt = Receipt(published.commit, {key: together(found) for key, found in passage.counts.items()})
    if held.still_held():
        _tidy(graph, receipt, passage, published)
    # Last, because from here on readers share these handles.
    for key in moving(plan.effects):
        graph.root.tables.keep(passage.landed[key])
    return receipt


def _to_its_outcome(plan: CommitPlan) -> AbstractContextManager[None]:
    """Ctrl-C waits for the last phase, so that nobody has to wonder how a write ended.

    Where only the storage of rows changes nobody would, and building indexes takes its time.
    """
    return ctrl_c.postponed() if plan.is_confirmed else nullcontext()


def _tidy(graph: OpenGraph, receipt: Receipt, passage: _Passage, published: Publication) -> None:
    """What is done after a write while its lock is held: nothing of it can fail the write."""
    coordinator = graph.coordinator(passage.plan.branch)
    written = {key: (one.inserted or 0) + (one.updated or 0) for key, one in receipt.counts.items()}
    try:
        tidy_tables(coordinator, passage.held, passage.landed, written)
        tidy_manifest(coordinator, published)
    except Exception:  # noqa: BLE001 - the write stands: whoever was told of a failure would write it again
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
        record = armed_record(self.root, self.plan, ready)
        self._store(record)
        try:
            confirmed = self._effects(record, ready)
            published = self._publish(confirmed)
        except _NoEffect as nothing:
            if self._is_only_ours():
                self._remove(record.operation_id)
            if isinstance(nothing.cause, Conflict) and not nothing.cause.retryable:
                raise nothing.cause from nothing  # it stays in the way, however often one begins anew
            raise BaseMoved(nothing.cause) from nothing
        except OmnigraphError as error:
            raise RecoveryRequired(record.operation_id, error.message) from error
        except Exception as error:
            # Whatever it was: the record is there, and the caller has to hear of it.
            reason = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise RecoveryRequired(record.operation_id, reason) from error
        self._remove(record.operation_id)
        return published

    # --- phase A ---------------------------------------------------------------------------------

    def _store(self, record: Sidecar) -> None:
        """Nothing has happened yet, so a record whose put failed is taken back."""
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

    # --- phase B ---------------------------------------------------------------------------------

    def _effects(self, record: Sidecar, ready: Mapping[str, Ready]) -> Sidecar:
        """Move every table, and confirm that; raises `_NoEffect` while nothing has happened yet."""
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
        return self._confirm(achieved_record(record, self.plan, self.landed))

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
        forks = {pin.table_key: self._fork(pin) for pin in record.tables if pin.first_touch is not None}
        marks = {pin.table_key: pin.transaction_uuids[0] for pin in record.tables if pin.transaction_uuids}

        def stage_on_fork(key: str) -> Staged:
            found, first = ready.get(key), steps_of(self.plan.effects[key])[0]
            if isinstance(found, Found):
                return stage_found(forks[key], found).marked(marks[key])
            return stage(self.root.objects, forks[key], first).marked(marks[key])

        staged = dict(zip(forks, side_by_side(stage_on_fork, list(forks)), strict=True))
        return {key: one for key, one in ready.items() if isinstance(one, Staged)} | staged

    def _fork(self, pin: Pin) -> Table:
        """One after the other: as long as there is none, a write that was overtaken simply begins anew."""
        entry = self.plan.base.entries[pin.table_key]
        failpoints.reach(failpoints.MUTATION_POST_SIDECAR_PRE_FORK)
        table = fork_table(self.root, self.held, entry, self.plan.branch, operation_id=self.plan.operation_id)
        self.begun = True
        failpoints.reach(failpoints.MUTATION_POST_FORK_PRE_COMMIT)
        return table

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

    def _confirm(self, achieved: Sidecar) -> Sidecar:
        """The commit point of the record: from here on the write is finished, before it is undone."""
        if not self.plan.is_confirmed:
            return achieved
        confirmed = msgspec.structs.replace(achieved, phase="EffectsConfirmed")
        self.held.require()
        failpoints.reach(failpoints.RECOVERY_SIDECAR_CONFIRM)
        sidecar.rewrite(self.root, confirmed)
        return confirmed

    # --- phases C and D --------------------------------------------------------------------------

    def _publish(self, record: Sidecar) -> Publication:
        """Make all of it visible; a new schema holds from here on."""
        plan, entries = self.plan, self.plan.base.entries
        self._reach_the_publish()
        self.held.require()
        published = publish(
            self.graph.coordinator(plan.branch),
            record.published,
            Lineage(plan.commit_id, plan.actor, plan.merged_parent, rival=plan.rollback_id),
            expected={key: entries[key].version if key in entries else 0 for key in plan.effects},
            precondition=ExactHead(plan.base.identity, plan.base.head),
            base=self.base,
        )
        if self.succession is not None:
            failpoints.reach(failpoints.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT)
            promote_schema(self.root, self.held, self.succession)
        return published

    def _is_only_ours(self) -> bool:
        """Whether nobody else has begun to undo the write: who has needs its record to come to an end."""
        try:
            commits = self.graph.coordinator(self.plan.branch).load().state.commits
        except OmnigraphError:
            return False  # whoever can tell removes it
        return self.held.still_held() and self.plan.rollback_id not in commits

    def _remove(self, operation_id: str) -> None:
        """Best effort: a record that is left behind is dealt with by the next writer of the branch."""
        try:
            failpoints.reach(failpoints.RECOVERY_SIDECAR_DELETE)
            sidecar.remove(self.root, operation_id)
        except OmnigraphError as error:
            _log.warning("the record of operation %s is left behind: %s", operation_id, error)

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
