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
from omnigraph.engine.forks import fork_table
from omnigraph.engine.lineage import Commit
from omnigraph.engine.manifest import MAIN, Entry
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.plan import Append, CommitPlan, Effect, Remove, Replace, Upsert
from omnigraph.engine.publish import Changes, ExactHead, Lineage, Publication, publish
from omnigraph.engine.recovery import sidecar
from omnigraph.engine.recovery.drift import settle_drift
from omnigraph.engine.recovery.sidecar import (
    Authority,
    FirstTouch,
    LineageIntent,
    OwnerMark,
    Pin,
    Sidecar,
    Update,
)
from omnigraph.engine.recovery.sweep import recover_branch
from omnigraph.engine.schema_files import schema_hash
from omnigraph.engine.upkeep import compact_manifest
from omnigraph.errors import (
    Conflict,
    LockLost,
    OmnigraphError,
    ReadSetChanged,
    RecoveryRequired,
    StorageFailure,
    TableVersionConflict,
)
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


class BaseMoved(Exception):
    """The base of a plan does not hold any more; nothing was done, and the write may be prepared anew.

    `by_recovery` says that it moved only because what a dead writer left had to be dealt with first: no
    rival was faster, so even a write that read what it replaces begins anew.
    """

    def __init__(self, conflict: OmnigraphError, *, by_recovery: bool = False) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict
        self.by_recovery = by_recovery


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
        _pass_gates(graph, plan, held)
    except LockLost as lost:
        raise BaseMoved(lost) from lost
    receipt = _Passage(graph, plan, held).run(staged)
    compact_manifest(graph.coordinator(plan.branch))
    return receipt


# --- prepare -------------------------------------------------------------------------------------


def _is_first_touch(plan: CommitPlan, entry: Entry) -> bool:
    """Whether the branch has no fork of the table yet: it then inherits another branch's version."""
    return plan.branch not in (MAIN, entry.owner)


def _stage_owned(graph: OpenGraph, plan: CommitPlan) -> dict[str, Staged]:
    """Stage the changes of all tables the branch owns, side by side; forks have to wait for the lock."""
    ready = [key for key in plan.effects if not _is_first_touch(plan, plan.base.entries[key])]

    def one(key: str) -> Staged:
        entry = plan.base.entries[key]
        place = graph.root.layout.table(entry.path)
        return stage(graph.root.tables.open(place, entry.version, branch=entry.owner), plan.effects[key])

    if len(ready) < 2:
        return {key: one(key) for key in ready}
    with ThreadPoolExecutor(min(_PARALLEL_TABLES, len(ready))) as pool:
        return dict(zip(ready, pool.map(one, ready), strict=True))


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


# --- gates ---------------------------------------------------------------------------------------


def _pass_gates(graph: OpenGraph, plan: CommitPlan, held: Held) -> None:
    if recover_branch(graph, plan.branch, held):
        raise _moved_by_recovery(plan, "recovered")
    _check_base(graph, plan)
    _check_heads(graph, plan, held)


def _moved_by_recovery(plan: CommitPlan, actual: str) -> BaseMoved:
    changed = ReadSetChanged(f"graph_head:{plan.branch}", expected=plan.base.head, actual=actual)
    return BaseMoved(changed, by_recovery=True)


def _check_base(graph: OpenGraph, plan: CommitPlan) -> None:
    loaded = graph.coordinator(plan.branch).load()
    entries = loaded.state.entries()
    for key in plan.effects:
        expected, actual = plan.base.entries.get(key), entries.get(key)
        if expected != actual:
            raise BaseMoved(
                TableVersionConflict(
                    key,
                    expected=expected.version if expected else None,
                    actual=actual.version if actual else None,
                )
            )
    head = loaded.state.head.id if loaded.state.head else None
    if (loaded.identity, head) != (plan.base.identity, plan.base.head):
        raise BaseMoved(ReadSetChanged(f"graph_head:{plan.branch}", expected=plan.base.head, actual=head))
    found = schema_hash(graph.root)
    if found != plan.base.schema_hash:
        raise BaseMoved(ReadSetChanged("schema", expected=plan.base.schema_hash, actual=found))


def _check_heads(graph: OpenGraph, plan: CommitPlan, held: Held) -> None:
    """A table must stand where the manifest says; what recovery left above that is settled first."""
    owned = [entry for key in plan.effects if not _is_first_touch(plan, entry := plan.base.entries[key])]
    try:
        settled = settle_drift(graph, plan.branch, held, owned)
    except Conflict:
        # Under a lease somebody may have overtaken us: then the base moved, and nothing is wrong.
        _check_base(graph, plan)
        raise
    if settled:
        raise _moved_by_recovery(plan, "settled")


# --- phases --------------------------------------------------------------------------------------


class _Passage:
    """One plan on its way through the phases, with the branch's lock held."""

    def __init__(self, graph: OpenGraph, plan: CommitPlan, held: Held) -> None:
        self.graph = graph
        self.root = graph.root
        self.plan = plan
        self.held = held

    def run(self, staged: dict[str, Staged]) -> Receipt:
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
        counts = {key: one.counts for key, one in staged.items()}
        return Receipt(published.commit, counts)

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
            phase="Armed",
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
        touch = None
        if staged is None:
            touch = FirstTouch(source_branch=entry.owner, source_version=entry.version)
        return Pin(
            table_key=key,
            table_path=self.root.layout.table(entry.path).uri,
            expected_version=entry.version,
            post_commit_pin=entry.version + 1,
            table_branch=None if self.plan.branch == MAIN else self.plan.branch,
            transaction_uuids=(staged.uuid if staged else new_mark(),),
            first_touch=touch,
        )

    # --- phase B ---------------------------------------------------------------------------------

    def _effects(self, record: Sidecar, staged: dict[str, Staged]) -> Publication:
        """Everything after the record is written; raises `_NoEffect` while nothing has happened yet."""
        landed: dict[str, Table] = {}
        forked = False
        try:
            for pin in record.tables:
                if pin.first_touch is not None:
                    staged[pin.table_key] = self._fork_and_stage(pin)
                    forked = True
            for key in self.plan.effects:
                self.held.require()
                landed[key] = commit_staged(staged[key])
                failpoints.reach(failpoints.MUTATION_POST_TABLE_COMMIT)
        except OmnigraphError as error:
            if landed or forked or not _left_nothing(error):
                raise
            raise _NoEffect(error) from error
        confirmed = self._confirm(record, landed)
        failpoints.reach(failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER)
        return self._publish(confirmed)

    def _fork_and_stage(self, pin: Pin) -> Staged:
        entry = self.plan.base.entries[pin.table_key]
        failpoints.reach(failpoints.MUTATION_POST_SIDECAR_PRE_FORK)
        table = fork_table(self.root, self.held, entry, self.plan.branch, operation_id=self.plan.operation_id)
        failpoints.reach(failpoints.MUTATION_POST_FORK_PRE_COMMIT)
        (uuid,) = pin.transaction_uuids
        return stage(table, self.plan.effects[pin.table_key]).marked(uuid)

    def _confirm(self, record: Sidecar, landed: Mapping[str, Table]) -> Sidecar:
        """The commit point of the record: from here on the write is finished, before it is undone."""
        updates = tuple(
            Update(
                table_key=key, table_version=table.version, table_branch=table.branch, row_count=table.count()
            )
            for key, table in landed.items()
        )
        pins = tuple(
            msgspec.structs.replace(pin, confirmed_version=landed[pin.table_key].version)
            for pin in record.tables
        )
        confirmed = msgspec.structs.replace(record, phase="EffectsConfirmed", tables=pins, updates=updates)
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
