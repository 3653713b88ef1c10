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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import msgspec

from omnigraph import failpoints
from omnigraph.engine.coordinator import Loaded
from omnigraph.engine.forks import fork_table
from omnigraph.engine.gates import BaseMoved, is_first_touch, pass_gates
from omnigraph.engine.lineage import Commit
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.plan import Append, BuildIndexes, CommitPlan, Effect, Rearrange, Remove, Replace, Upsert
from omnigraph.engine.publish import Changes, ExactHead, Lineage, Publication, publish
from omnigraph.engine.rearrange import rearrange
from omnigraph.engine.recovery import sidecar
from omnigraph.engine.recovery.sidecar import (
    Authority,
    FirstTouch,
    LineageIntent,
    OwnerMark,
    Pin,
    Sidecar,
    Update,
)
from omnigraph.engine.tidy import tidy_tables
from omnigraph.engine.upkeep import FRAGMENT_LIMIT, compact_manifest
from omnigraph.errors import (
    Conflict,
    InternalError,
    LockLost,
    OmnigraphError,
    RecoveryRequired,
    StorageFailure,
)
from omnigraph.storage.indexes import stage_indexes
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.lock_table import THIS_PROCESS
from omnigraph.storage.locks import Held
from omnigraph.storage.staging import (
    BINDING,
    Counts,
    Staged,
    commit_staged,
    new_mark,
    stage_append,
    stage_delete,
    stage_overwrite,
    stage_upsert,
)
from omnigraph.storage.tables import Table

_PARALLEL_TABLES = 8

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
    staged = _stage_owned(graph, plan)
    failpoints.reach(failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE)
    if held is not None:
        return _through(graph, plan, staged, held)
    with graph.root.locks.hold([plan.branch], operation_id=plan.operation_id) as own:
        return _through(graph, plan, staged, own)


def _through(graph: OpenGraph, plan: CommitPlan, staged: dict[str, Staged], held: Held) -> Receipt:
    try:
        base = pass_gates(graph, plan, held)
    except LockLost as lost:
        raise BaseMoved(lost) from lost
    passage = _Passage(graph, plan, held, base)
    published = passage.run(staged)
    receipt = Receipt(published.commit, {key: one.counts for key, one in staged.items()})
    if held.still_held():
        _tidy(graph, receipt, passage, published)
    return receipt


def _tidy(graph: OpenGraph, receipt: Receipt, passage: _Passage, published: Publication) -> None:
    """What is done after a write while its lock is held: nothing of it can fail the write."""
    coordinator = graph.coordinator(passage.plan.branch)
    written = {key: (one.inserted or 0) + (one.updated or 0) for key, one in receipt.counts.items()}
    tidy_tables(coordinator, passage.held, passage.landed, written)
    # The publish itself shows how many fragments there are: in most cases nothing more is asked.
    if published.loaded.table.fragment_count > FRAGMENT_LIMIT:
        compact_manifest(coordinator)


# --- prepare -------------------------------------------------------------------------------------


def _stage_owned(graph: OpenGraph, plan: CommitPlan) -> dict[str, Staged]:
    """Stage the changes of all tables the branch owns, side by side; forks have to wait for the lock."""
    ready = [key for key, effect in plan.effects.items() if _is_staged_early(plan, key, effect)]

    def one(key: str) -> Staged:
        entry = plan.base.entries[key]
        place = graph.root.layout.table(entry.path)
        table = graph.root.tables.open(place, entry.version, branch=entry.owner)
        return stage(table, plan.effects[key])

    if len(ready) < 2:
        return {key: one(key) for key in ready}
    with ThreadPoolExecutor(min(_PARALLEL_TABLES, len(ready))) as pool:
        return dict(zip(ready, pool.map(one, ready), strict=True))


def _is_staged_early(plan: CommitPlan, key: str, effect: Effect) -> bool:
    return not isinstance(effect, Rearrange) and not is_first_touch(plan, plan.base.entries[key])


def stage(table: Table, effect: Effect) -> Staged:
    """Write the files of one table's change; the table does not move."""
    match effect:
        case Append(rows=rows):
            return stage_append(table, rows)
        case Upsert(rows=rows):
            return stage_upsert(table, rows)
        case Remove(ids=ids):
            return stage_delete(table, ids)
        case Replace(rows=rows):
            return stage_overwrite(table, rows)
        case BuildIndexes(indexes=indexes):
            return stage_indexes(table, indexes)
        case Rearrange():
            raise InternalError("a table is rearranged in several steps, none of which can be staged alone")


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
        """The tables that have moved, as the write left them."""

    def run(self, staged: dict[str, Staged]) -> Publication:
        """All phases; `staged` gets what is staged on the way."""
        record = self._armed(staged)
        self._store(record)
        try:
            published = self._effects(record, staged)
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

    def _armed(self, staged: Mapping[str, Staged]) -> Sidecar:
        plan, base = self.plan, self.plan.base
        owner = THIS_PROCESS.owner
        return Sidecar(
            schema_version=sidecar.CURRENT,
            operation_id=plan.operation_id,
            started_at=str(self.root.clock()),
            writer_kind=plan.kind,
            branch=None if plan.branch == MAIN else plan.branch,
            actor_id=plan.actor,
            tables=tuple(self._pin(key, staged.get(key)) for key in plan.effects),
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
        )

    def _pin(self, key: str, staged: Staged | None) -> Pin:
        entry = self.plan.base.entries[key]
        touch, marks = None, () if staged is None else (staged.uuid,)
        if is_first_touch(self.plan, entry):
            touch = FirstTouch(source_branch=entry.owner, source_version=entry.version)
            marks = (new_mark(),)
        return Pin(
            table_key=key,
            table_path=self.root.layout.table(entry.path).uri,
            expected_version=entry.version,
            post_commit_pin=entry.version + 1,
            table_branch=None if self.plan.branch == MAIN else self.plan.branch,
            transaction_uuids=marks,
            first_touch=touch,
        )

    # --- phase B ---------------------------------------------------------------------------------

    def _effects(self, record: Sidecar, staged: dict[str, Staged]) -> Publication:
        """Everything after the record is written; raises `_NoEffect` while nothing has happened yet."""
        begun = False
        try:
            for pin in record.tables:
                if pin.first_touch is not None:
                    staged[pin.table_key] = self._fork_and_stage(pin)
                    begun = True
            for key, effect in self.plan.effects.items():
                self.held.require()
                begun = begun or isinstance(effect, Rearrange)
                self.landed[key] = self._land(effect, staged.get(key))
                failpoints.reach(failpoints.MUTATION_POST_TABLE_COMMIT)
        except OmnigraphError as error:
            if self.landed or begun or not _left_nothing(error):
                raise
            raise _NoEffect(error) from error
        if self.plan.kind == "EnsureIndices":
            failpoints.reach(failpoints.ENSURE_INDICES_POST_EFFECTS_PRE_CONFIRM)
        confirmed = self._confirm(self._achieved(record))
        self._reach_the_publish()
        return self._publish(confirmed)

    def _reach_the_publish(self) -> None:
        match self.plan.kind:
            case "EnsureIndices":
                failpoints.reach(failpoints.ENSURE_INDICES_POST_PHASE_B_PRE_MANIFEST_COMMIT)
            case "Optimize":
                failpoints.reach(failpoints.OPTIMIZE_POST_PHASE_B_PRE_MANIFEST_COMMIT)
            case _:
                failpoints.reach(failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER)

    def _land(self, effect: Effect, staged: Staged | None) -> Table:
        if isinstance(effect, Rearrange):
            return rearrange(effect, self.held)
        if isinstance(effect, BuildIndexes):
            failpoints.reach(failpoints.ENSURE_INDICES_POST_STAGE_PRE_COMMIT_BTREE)
        assert staged is not None
        return commit_staged(staged)

    def _fork_and_stage(self, pin: Pin) -> Staged:
        entry = self.plan.base.entries[pin.table_key]
        failpoints.reach(failpoints.MUTATION_POST_SIDECAR_PRE_FORK)
        table = fork_table(self.root, self.held, entry, self.plan.branch, operation_id=self.plan.operation_id)
        failpoints.reach(failpoints.MUTATION_POST_FORK_PRE_COMMIT)
        (uuid,) = pin.transaction_uuids
        return stage(table, self.plan.effects[pin.table_key]).marked(uuid)

    def _achieved(self, record: Sidecar) -> Sidecar:
        """The record with the versions that the tables have reached."""
        updates = tuple(
            Update(
                table_key=key, table_version=table.version, table_branch=table.branch, row_count=table.count()
            )
            for key, table in self.landed.items()
        )
        pins = tuple(
            msgspec.structs.replace(pin, confirmed_version=self.landed[pin.table_key].version)
            for pin in record.tables
        )
        return msgspec.structs.replace(record, tables=pins, updates=updates)

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
        plan = self.plan
        self.held.require()
        return publish(
            self.graph.coordinator(plan.branch),
            Changes(versions=tuple(update.published() for update in record.updates)),
            Lineage(plan.commit_id, plan.actor, plan.merged_parent, rival=plan.rollback_id),
            expected={key: plan.base.entries[key].version for key in plan.effects},
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
