"""The commit protocol: every change of a graph's content runs through it.

    prepare   a plan on a pinned base; its files are staged, nothing is visible
    gates     take the branch's lock; recover interrupted writes; the base must still hold
    phase A   write the record of the operation
    phase B   commit the staged change of every table; confirm the record, unless the tables prove it complete
    phase C   publish: one write of the manifest makes all of it visible
    phase D   remove the record

Before phase A a failure changes nothing. After the first effect only recovery may touch what was
done: the caller gets `RecoveryRequired`, and the record decides the outcome. Ctrl-C waits for it.

In a bucket each request takes long and costs no time of this process, so what does not depend on each other
is done at the same time: staging and taking the lock; what the gates read and storing the record; the commits
of the tables and staging the publish.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import field, replace
from functools import partial

import msgspec

from omnigraph import ctrl_c, failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.effects import (
    PreparedStep,
    authority_of,
    build_record,
    complete_record,
    count_rows,
    create_table,
    foresee_completion,
    moving_tables,
    prepare,
    stage_over_leftover,
    stage_step,
    steps_of,
    sum_counts,
)
from omnigraph.engine.commit.gates import (
    BaseMoved,
    InterruptedWrites,
    check_gates,
    find_conflict,
    moved_by_recovery,
    rebase_plan,
)
from omnigraph.engine.commit.plan import BuildIndexes, CommitPlan, CreateTable, Effect, ReplaceRows
from omnigraph.engine.commit.recovery import sidecar
from omnigraph.engine.commit.recovery.removals import DataRemoval, store_removal
from omnigraph.engine.commit.recovery.sidecar import CONFIRMED, Pin, Sidecar
from omnigraph.engine.commit.recovery.sweep import recover_branch
from omnigraph.engine.commit.schema_staging import StagedSchema, promote_schema, stage_schema
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.publish import (
    ExactHead,
    NewCommit,
    Publication,
    StagedPublication,
    publish,
    stage_publication,
)
from omnigraph.engine.graph.schema_files import record_past_schema
from omnigraph.engine.graph.table_forks import fork_table
from omnigraph.engine.upkeep.after_write import WrittenTables, run_table_upkeep
from omnigraph.engine.upkeep.index_upkeep import IndexUpkeep, expects_indexes
from omnigraph.engine.upkeep.manifest_upkeep import run_manifest_upkeep
from omnigraph.engine.upkeep.table_rewrite import RewriteTable, rewrite_table
from omnigraph.errors import (
    Conflict,
    LockLost,
    OmnigraphError,
    RecoveryRequired,
    StorageFailure,
)
from omnigraph.phases import in_phase
from omnigraph.storage.concurrency import Together, run_per_table
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.staging import Counts, Staged, commit_staged
from omnigraph.storage.tables import Table
from omnigraph.storage.upsert import UpsertPlan, stage_planned_upsert

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Receipt:
    """A write that took effect."""

    commit: Commit
    counts: Mapping[str, Counts]
    """By table key."""
    indexes: IndexUpkeep = field(default_factory=IndexUpkeep)
    """Deferred index work; `build_deferred_indexes` does it once the lock is free."""
    saw_others: bool = False
    """Whether there were records of other branches, of running or interrupted writes."""


def commit(graph: OpenGraph, plan: CommitPlan, held: HeldLocks | None = None) -> Receipt:
    """Carry out a plan; raises `BaseMoved` when it has to be prepared again.

    `held` is the branch's lock, where the caller took it before it prepared the plan.
    """
    if held is not None:
        return _run_locked(graph, plan, _stage(graph, plan), held, releases=False)
    with ExitStack() as stack:
        if _may_stage_under_lock(graph, plan):
            with Together(graph.root.layout.root) as calls:
                ready = calls.add(partial(_stage, graph, plan))
                own = calls.add(partial(_take_lock, graph, plan, stack))
            return _run_locked(graph, plan, ready.answer, own.answer, releases=True)
        staged = _stage(graph, plan)
        return _run_locked(graph, plan, staged, _take_lock(graph, plan, stack), releases=True)


def _stage(graph: OpenGraph, plan: CommitPlan) -> Mapping[str, PreparedStep]:
    ready = in_phase("commit.prepare")(prepare)(graph, plan)
    failpoints.reach(failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE)
    return ready


def _take_lock(graph: OpenGraph, plan: CommitPlan, stack: ExitStack) -> HeldLocks:
    return stack.enter_context(graph.root.locks.hold([plan.branch], operation_id=plan.operation_id))


_FEW_ROWS = 10_000
"""Staging so many rows takes about as long as taking the lock of a branch in a bucket."""


def _may_stage_under_lock(graph: OpenGraph, plan: CommitPlan) -> bool:
    """Whether to take the lock while staging: not where another writer would wait for rows to be written."""
    root = graph.root
    is_free = not root.layout.root.is_local and not root.locks.is_used_here(plan.branch)
    return is_free and count_rows(plan) <= _FEW_ROWS


def _run_locked(
    graph: OpenGraph,
    plan: CommitPlan,
    ready: Mapping[str, PreparedStep],
    held: HeldLocks,
    *,
    releases: bool,
) -> Receipt:
    """Run the gates, the phases, and upkeep, with the lock held; `releases` gives it back."""
    run = _CommitRun(graph, plan, held)
    with sidecar.run_operation(plan.operation_id):
        try:
            with _delay_ctrl_c(plan):
                published = run.run(ready)
            counts = {key: sum_counts(found) for key, found in run.counts.items()}
            receipt = Receipt(published.commit, counts, saw_others=run.saw_others)
            if held.still_held():
                receipt = replace(receipt, indexes=_run_upkeep(graph, receipt, run, published))
        finally:
            run.close(releases=releases)
    # Last, because from here on readers share these handles.
    for key in moving_tables(plan.effects):
        graph.root.tables.keep(run.tables[key])
    return receipt


def _delay_ctrl_c(plan: CommitPlan) -> AbstractContextManager[None]:
    """Delay Ctrl-C until the last phase, so that the outcome of a write is known.

    Not where only the storage of rows changes: the outcome does not matter, and building indexes takes long.
    """
    return ctrl_c.postpone_ctrl_c() if plan.is_confirmed else nullcontext()


@in_phase("commit.upkeep")
def _run_upkeep(graph: OpenGraph, receipt: Receipt, run: _CommitRun, published: Publication) -> IndexUpkeep:
    """Run upkeep after a write while its lock is held; a failure never fails the write."""
    coordinator = graph.coordinator(run.plan.branch)
    try:
        touched = _written_tables(graph, receipt, run, published)
        left = run_table_upkeep(graph, run.plan.branch, published.loaded.state, run.held, touched)
        run_manifest_upkeep(coordinator, published)
    except Exception:  # noqa: BLE001 - the write took effect: a caller that gets an error would repeat it
        _log.exception("upkeep on branch '%s' failed", coordinator.branch)
        return IndexUpkeep()
    return left


def _written_tables(
    graph: OpenGraph, receipt: Receipt, run: _CommitRun, published: Publication
) -> WrittenTables:
    """Return the tables that upkeep checks after a commit."""
    plan, coordinator = run.plan, graph.coordinator(run.plan.branch)
    entries = published.loaded.state.entries()
    recovered = coordinator.unchecked & entries.keys()
    coordinator.unchecked.clear()
    others = {key for key in (*plan.newly_indexed, *recovered) if key not in run.tables}
    tables = run.tables | {key: _open(graph, entries[key]) for key in others}
    sources = {key: _source(key, effect) for key, effect in plan.effects.items()}
    sources |= {key: key for key in plan.newly_indexed}
    base = plan.base.entries
    rewritten = [
        key
        for key, source in sources.items()
        if source is not None
        and source in base
        and key in tables
        and expects_indexes(graph.root, run.base.state, source, _open(graph, base[source]))
    ]
    written = {key: (one.inserted or 0) + (one.updated or 0) for key, one in receipt.counts.items()}
    return WrittenTables(tables, written, rewritten, recovered)


def _source(key: str, effect: Effect) -> str | None:
    """Return the table whose rows an effect rewrites without its indexes."""
    match effect:
        case ReplaceRows():
            return key
        case CreateTable(replaces=source):
            return source
        case _:
            return None


def _open(graph: OpenGraph, entry: TableEntry) -> Table:
    return graph.root.tables.open(graph.root.layout.table(entry.path), entry.version, branch=entry.owner)


# --- phases --------------------------------------------------------------------------------------


class _CommitRun:
    """One run of the phases, with the branch's lock held."""

    def __init__(self, graph: OpenGraph, plan: CommitPlan, held: HeldLocks) -> None:
        self.graph = graph
        self.root = graph.root
        self.is_far = not graph.root.layout.root.is_local
        """Whether each call takes so long that calls are made at the same time."""
        self.plan = plan
        """On the branch as the gates found it, once they have looked."""
        self.held = held
        self.tables: dict[str, Table] = {}
        """The tables that were written or created, at their new versions."""
        self.counts: dict[str, list[Counts]] = {}
        """What each change did."""
        self.staged_schema: StagedSchema | None = None
        """The new schema, once its files are staged."""
        self.has_effects = False
        """Whether any effect may have taken place."""
        self.staged_publication: StagedPublication | None = None
        """The publish of the foreseen record, once its files are written."""
        self.saw_others = False
        self.record_to_remove: str | None = None
        """The record of a write that is visible, until it is removed."""

    def run(self, ready: Mapping[str, PreparedStep]) -> Publication:
        """Run the gates and all phases; `ready` is what was prepared before the lock was taken."""
        record = self._store_after_gates(ready) if not self.is_far else self._store_with_gates(ready)
        try:
            confirmed = self._effects(record, ready)
            published = self._publish(confirmed)
        except _NoEffect as nothing:
            if self._may_remove_record():
                self._remove(record.operation_id)
            if isinstance(nothing.cause, Conflict) and not nothing.cause.retryable:
                raise nothing.cause from nothing  # preparing again would not help
            raise BaseMoved(nothing.cause) from nothing
        except OmnigraphError as error:
            raise RecoveryRequired(record.operation_id, error.message) from error
        except Exception as error:
            # The record exists, so the caller must learn of it.
            reason = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise RecoveryRequired(record.operation_id, reason) from error
        self.record_to_remove = record.operation_id
        if not self.is_far:
            self.close(releases=False)
        return published

    def close(self, *, releases: bool) -> None:
        """Remove the record of a write that is visible; `releases` gives the lock back after that.

        Nothing is raised: the write took effect, and a caller that gets an error would repeat it.
        """
        done, self.record_to_remove = self.record_to_remove, None
        if done is not None:
            self._remove(done)
        if releases:
            try:
                self.held.release()
            except OmnigraphError as error:
                _log.warning("the lock of branch '%s' was not given back: %s", self.plan.branch, error)

    # --- gates and phase A -----------------------------------------------------------------------

    def _build_record(self, plan: CommitPlan, ready: Mapping[str, PreparedStep]) -> Sidecar:
        return foresee_completion(build_record(self.root, plan, ready), plan, ready)

    def _store_after_gates(self, ready: Mapping[str, PreparedStep]) -> Sidecar:
        self._check_gates()
        record = self._build_record(self.plan, ready)
        self._store(record)
        return record

    def _store_with_gates(self, ready: Mapping[str, PreparedStep]) -> Sidecar:
        """Store the record while the gates read; it is removed if they do not let the write pass.

        Until then no table moves, so recovery would undo it.
        """
        likely = self._plan_on_known_base()
        record = self._build_record(likely, ready)
        try:
            self._check_gates(partial(self._store, record))
            if record.authority != authority_of(self.plan):
                record = msgspec.structs.replace(record, authority=authority_of(self.plan))
                self.held.require()
                sidecar.rewrite(self.root, record)
        except InterruptedWrites as found:
            # Their recovery may die: then no record of this write must be among theirs.
            self._take_record_back(record.operation_id)
            raise self._recover(found.names) from found
        except LockLost as lost:
            self._take_record_back(record.operation_id)
            raise BaseMoved(lost) from lost
        except BaseException:
            self._take_record_back(record.operation_id)
            raise
        return record

    def _recover(self, names: Sequence[str]) -> BaseMoved:
        """Recover the interrupted writes to the branch; the write is prepared again on what they left."""
        try:
            recover_branch(self.graph, self.plan.branch, self.held, names)
        except LockLost as lost:
            return BaseMoved(lost)
        return moved_by_recovery(self.plan, "recovered")

    def _plan_on_known_base(self) -> CommitPlan:
        """Return the plan on the newest state that this process knows: mostly there is no newer one."""
        known = self.graph.coordinator(self.plan.branch).known
        if known is None or find_conflict(self.plan, known) is not None:
            return self.plan
        return rebase_plan(self.plan, known)

    @in_phase("commit.gates")
    def _check_gates(self, beside: Callable[[], None] | None = None) -> None:
        """Check the gates; the plan is on the branch as they found it then."""
        try:
            passed = check_gates(self.graph, self.plan, self.held, beside)
        except LockLost as lost:
            raise BaseMoved(lost) from lost
        self.plan, self.base, self.saw_others = passed.plan, passed.base, passed.saw_others

    @in_phase("commit.record")
    def _store(self, record: Sidecar) -> None:
        """Store the record; nothing has happened yet, so it is removed if the put failed."""
        try:
            self.held.require()
            failpoints.reach(failpoints.RECOVERY_SIDECAR_WRITE)
            sidecar.store_new(self.root, record)
        except LockLost as lost:
            raise BaseMoved(lost) from lost
        except StorageFailure:
            # It may be stored although the answer was lost.
            self._remove(record.operation_id)
            raise

    def _take_record_back(self, operation_id: str) -> None:
        if self._may_remove_record():
            self._remove(operation_id)

    # --- phase B ---------------------------------------------------------------------------------

    @in_phase("commit.effects")
    def _effects(self, record: Sidecar, ready: Mapping[str, PreparedStep]) -> Sidecar:
        """Write every table and confirm the record; raises `_NoEffect` while nothing has happened yet."""
        try:
            _reach(self.plan.phases.before_effects)
            self._create_tables()
            first = self._stage_first(record, ready)
            self._write_tables(record, first)
            self._stage_schema()
        except OmnigraphError as error:
            if self.has_effects or not _changed_nothing(error):
                raise
            raise _NoEffect(error) from error
        _reach(self.plan.phases.before_confirm)
        achieved = complete_record(record, self.plan, self.tables)
        if achieved == record and record.phase == CONFIRMED:
            return record
        self.staged_publication = None
        return self._confirm(achieved)

    def _write_tables(self, record: Sidecar, first: Mapping[str, Staged]) -> None:
        """Apply the effects on all tables; where they are foreseen, stage the publish at the same time."""
        if not self.is_far or record.phase != CONFIRMED:
            for pin in record.tables:
                self._write_table(pin, first.get(pin.table_key))
            return
        with Together(self.root.layout.root) as calls:
            for pin in record.tables:
                calls.add(partial(self._write_table, pin, first.get(pin.table_key)))
            calls.add(partial(self._stage_publication, record))

    def _write_table(self, pin: Pin, first: Staged | None) -> None:
        self.tables[pin.table_key] = self._apply_effect(pin, first)
        failpoints.reach(failpoints.MUTATION_POST_TABLE_COMMIT)

    def _stage_publication(self, record: Sidecar) -> None:
        """Write the files of the publish; if that fails, the publish itself tries again."""
        coordinator, entries = self.graph.coordinator(self.plan.branch), self.plan.base.entries
        try:
            self.staged_publication = stage_publication(
                coordinator,
                record.published,
                self._new_commit(),
                expected={key: entries[key].version for key in self.plan.effects},
                precondition=ExactHead(self.plan.base.identity, self.plan.base.head),
                base=self.base,
            )
        except OmnigraphError as error:
            _log.info("the publish of operation %s was not staged: %s", record.operation_id, error)

    def _create_tables(self) -> None:
        for key, effect in self.plan.effects.items():
            if isinstance(effect, CreateTable):
                self.has_effects = True
                self.tables[key] = self._create_table(key, effect)
                self.counts[key] = [Counts(inserted=self.tables[key].count())]

    def _create_table(self, key: str, effect: CreateTable) -> Table:
        made = create_table(self.root, self.held, key, effect, self.base.state)
        if made is not None:
            return made
        coordinator = self.graph.coordinator(self.plan.branch)
        return commit_staged(
            stage_over_leftover(self.root, self.held, key, effect, lambda: coordinator.load().state)
        )

    def _stage_first(self, record: Sidecar, ready: Mapping[str, PreparedStep]) -> dict[str, Staged]:
        """Stage the first change of every table, after forking tables that the branch does not own yet."""
        forks = {pin.table_key: self._fork(pin) for pin in record.tables if pin.first_touch is not None}
        marks = {pin.table_key: pin.transaction_uuids[0] for pin in record.tables if pin.transaction_uuids}

        def stage_on_fork(key: str) -> Staged:
            found, first = ready.get(key), steps_of(self.plan.effects[key])[0]
            if isinstance(found, UpsertPlan):
                return stage_planned_upsert(forks[key], found).with_uuid(marks[key])
            return stage_step(self.root.objects, forks[key], first).with_uuid(marks[key])

        staged = dict(zip(forks, run_per_table(stage_on_fork, list(forks)), strict=True))
        return {key: one for key, one in ready.items() if isinstance(one, Staged)} | staged

    def _fork(self, pin: Pin) -> Table:
        """Fork one table at a time: until the first fork exists, a write that lost a race can start again."""
        entry = self.plan.base.entries[pin.table_key]
        failpoints.reach(failpoints.MUTATION_POST_SIDECAR_PRE_FORK)
        table = fork_table(self.root, self.held, entry, self.plan.branch, operation_id=self.plan.operation_id)
        self.has_effects = True
        failpoints.reach(failpoints.MUTATION_POST_FORK_PRE_COMMIT)
        return table

    def _apply_effect(self, pin: Pin, first: Staged | None) -> Table:
        """Apply the effect on one table, whose first change is staged."""
        effect = self.plan.effects[pin.table_key]
        self.held.require()
        if isinstance(effect, RewriteTable):
            self.has_effects = True
            return rewrite_table(effect, self.held)
        if isinstance(effect, BuildIndexes):
            failpoints.reach(failpoints.ENSURE_INDICES_POST_STAGE_PRE_COMMIT_BTREE)
        assert first is not None
        # The gates have found an owned table at its published version, and a fork was just made at it.
        table, marks = self._commit(pin.table_key, first), pin.transaction_uuids[1:]
        if first.second_phase is not None:
            failpoints.reach(failpoints.MUTATION_BETWEEN_TABLE_VERSIONS)
            self.held.require()
            table = self._commit(pin.table_key, first.second_phase(table).with_uuid(marks[0]))
            marks = marks[1:]
        for step, mark in zip(steps_of(effect)[1:], marks, strict=True):
            failpoints.reach(failpoints.BRANCH_MERGE_ADOPT_AFTER_UPSERT_PRE_DELETE)
            self.held.require()
            table = self._commit(pin.table_key, stage_step(self.root.objects, table, step).with_uuid(mark))
        return table

    def _commit(self, key: str, staged: Staged) -> Table:
        try:
            table = commit_staged(staged, is_newest=self.is_far)
        except BaseException as error:
            # The commit of another table, at the same time, may report that nothing changed.
            if not isinstance(error, OmnigraphError) or not _changed_nothing(error):
                self.has_effects = True
            raise
        self.has_effects = True
        self.counts.setdefault(key, []).append(staged.counts)
        return table

    def _stage_schema(self) -> None:
        """Write the staged files of a new schema, and its text for reads of the past."""
        schema = self.plan.schema
        if schema is None:
            return
        failpoints.reach(failpoints.SCHEMA_APPLY_BEFORE_STAGING_WRITE)
        self.has_effects = True
        self.held.require()
        self.staged_schema = stage_schema(self.root, schema.files)
        if schema.removals:
            plan = self.plan
            owed = DataRemoval(
                operation_id=plan.operation_id, graph_commit_id=plan.commit_id, tables=schema.removals
            )
            store_removal(self.root, owed)
        record_past_schema(self.root, self.plan.commit_id, schema.files.source, if_absent=False)
        failpoints.reach(failpoints.SCHEMA_APPLY_AFTER_STAGING_WRITE)

    def _confirm(self, achieved: Sidecar) -> Sidecar:
        """Confirm the record: from here on recovery rolls forward."""
        if not self.plan.is_confirmed:
            return achieved
        confirmed = msgspec.structs.replace(achieved, phase=CONFIRMED)
        self.held.require()
        failpoints.reach(failpoints.RECOVERY_SIDECAR_CONFIRM)
        sidecar.rewrite(self.root, confirmed)
        return confirmed

    # --- phases C and D --------------------------------------------------------------------------

    @in_phase("commit.publish")
    def _publish(self, record: Sidecar) -> Publication:
        """Publish the write; a new schema is accepted with it."""
        plan, entries = self.plan, self.plan.base.entries
        _reach(self.plan.phases.before_publish)
        self.held.require()
        published = publish(
            self.graph.coordinator(plan.branch),
            record.published,
            self._new_commit(),
            expected={key: entries[key].version if key in entries else 0 for key in plan.effects},
            precondition=ExactHead(plan.base.identity, plan.base.head),
            base=self.base,
            staged=self.staged_publication,
        )
        if self.staged_schema is not None:
            failpoints.reach(failpoints.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT)
            promote_schema(self.root, self.held, self.staged_schema)
        return published

    def _new_commit(self) -> NewCommit:
        plan = self.plan
        return NewCommit(
            plan.commit_id,
            plan.actor,
            plan.merged_parent,
            plan.merged_commits,
            rival=plan.rollback_id,
            message=plan.message,
            operation=plan.operation,
        )

    def _may_remove_record(self) -> bool:
        """Whether no recovery has begun to undo the write: a recovery needs the record to finish."""
        try:
            commits = self.graph.coordinator(self.plan.branch).load().state.commits
        except OmnigraphError:
            return False  # recovery removes it
        return self.held.still_held() and self.plan.rollback_id not in commits

    @in_phase("commit.remove_record")
    def _remove(self, operation_id: str) -> None:
        """Best effort: the next writer of the branch recovers a record that stays."""
        try:
            failpoints.reach(failpoints.RECOVERY_SIDECAR_DELETE)
            sidecar.remove(self.root, operation_id)
        except OmnigraphError as error:
            _log.warning("the record of operation %s was not removed: %s", operation_id, error)


def _reach(point: str | None) -> None:
    if point is not None:
        failpoints.reach(point)


class _NoEffect(Exception):
    """A commit run ended before its first effect."""

    def __init__(self, cause: OmnigraphError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def _changed_nothing(error: OmnigraphError) -> bool:
    """Whether a failed first effect is known to have changed nothing."""
    if isinstance(error, StorageFailure):
        return error.kind in (TableFailureKind.MOVED, TableFailureKind.CONFLICT)
    return isinstance(error, LockLost | Conflict)
