"""What a write is prepared on, and how often it is prepared.

A commit of another writer matters only when it moved a table that this write writes or read. Otherwise the
plan takes effect on the new head as it is. When such a table did move, a write that only adds is prepared
again. One that read what it replaces fails, unless its author asked for retries.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field, replace
from functools import partial
from typing import Protocol
from weakref import WeakKeyDictionary

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.gates import BaseMoved
from omnigraph.engine.commit.plan import (
    USUAL_PHASES,
    CommitPlan,
    Effect,
    NewSchema,
    PhaseFailpoints,
    PlanBase,
    make_base,
    new_plan,
)
from omnigraph.engine.commit.protocol import Receipt, commit
from omnigraph.engine.commit.recovery.sidecar import WriterKind
from omnigraph.engine.commit.recovery.sweep import finish_completed_writes, has_leftovers, recover_branch
from omnigraph.engine.commit.schema_lock import find_lock
from omnigraph.engine.constraints.stored_rows import StoredTables
from omnigraph.engine.graph.coordinator import Coordinator, LoadedBranch, lance_branch
from omnigraph.engine.graph.lineage import Commit, require_actor, require_message
from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.schema_files import LiveSchema, read_schema_hash
from omnigraph.engine.graph.table_forks import ForkPlace, has_fork_files, reclaim_fork
from omnigraph.engine.graph.table_types import TableType
from omnigraph.engine.upkeep.index_upkeep import IndexUpkeep, build_deferred_indexes
from omnigraph.errors import (
    BadRequest,
    BranchNotFound,
    OmnigraphError,
    PreconditionFailed,
    PublishContention,
    ReadSetChanged,
    RecoveryRequired,
    StorageFailure,
    WriterBusy,
)
from omnigraph.storage.concurrency import Together
from omnigraph.storage.index_parts import BuildParts
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.references import Incarnation
from omnigraph.storage.tables import Table

_log = logging.getLogger(__name__)


def require_incarnation(
    graph: OpenGraph,
    branch: str,
    base: PlanBase,
    held: HeldLocks | None = None,
    failure: OmnigraphError | None = None,
) -> None:
    """Raise `BranchNotFound` when the branch of a base is gone, `BaseMoved` when there is another one now.

    `failure` is what the write ran into: where the branch cannot be asked either, that is what counts.
    """
    if lance_branch(branch) is None:
        return
    try:
        incarnation = graph.root.forks.identity(graph.root.layout.manifest, branch)
    except StorageFailure:
        if failure is None:
            raise
        return
    if incarnation is None:
        graph.forget(branch)
        _remove_staged_files(graph, branch, base, held)
        raise BranchNotFound(branch) from failure
    if incarnation != base.identity:
        changed = ReadSetChanged(f"branch:{branch}", expected="the one that was read", actual="recreated")
        raise BaseMoved(changed) from failure


def _remove_staged_files(graph: OpenGraph, branch: str, base: PlanBase, held: HeldLocks | None) -> None:
    """Remove the files that were staged beside tables of a branch after these had gone."""
    root = graph.root
    places = [
        ForkPlace(entry.key, root.layout.table(entry.path), branch)
        for entry in base.entries.values()
        if entry.owner == branch
    ]
    try:
        left = [place for place in places if has_fork_files(root, place.table, branch)]
        if not left:
            return
        holding: AbstractContextManager[HeldLocks] = (
            root.locks.hold([branch]) if held is None else nullcontext(held)
        )
        with holding as own:
            for place in left:
                reclaim_fork(root, own, place, live=graph.branch_names())
    except OmnigraphError as error:
        _log.warning("files of branch '%s', which is gone, are left to cleanup: %s", branch, error)


ATTEMPTS = 32
UNLOCKED_ATTEMPTS = 1
"""Preparing needs no lock and blocks no other writer; a write that lost once takes it first."""


@dataclass(frozen=True, slots=True)
class ReadTables:
    """Tables whose rows were read before the write began: they must not have moved when it takes effect."""

    identity: Incarnation | None
    """The incarnation of the branch; None when they were read on the branch that it is made from."""
    entries: Mapping[str, TableEntry]


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes where, under which condition, and how often after a conflict."""

    branch: str
    actor: str | None = None
    if_commit: str | None = None
    """The head the branch must have."""
    retry: int = 0
    """How often a write that read what it replaces is prepared again when a table it depends on moved."""
    if_tables: ReadTables | None = None
    commit_id: str | None = None
    """The id of the commit, recorded before the write: it takes effect once, however often it is repeated."""
    message: str | None = None
    """What the commit says about itself."""

    def __post_init__(self) -> None:
        if self.actor is not None:
            require_actor(self.actor)
        if self.message is not None:
            require_message(self.message)
        if self.retry < 0:
            raise BadRequest(f"`retry` is a number of attempts, not {self.retry}", remedy="pass 0 or more")

    @property
    def is_conditional(self) -> bool:
        """Whether the write takes effect only under a condition."""
        return self.if_commit is not None or self.if_tables is not None


@dataclass(frozen=True, slots=True)
class Transaction:
    """A branch at one moment, as a write sees it, and which tables the write has read so far."""

    graph: OpenGraph
    schema: LiveSchema
    base: PlanBase
    targets: Mapping[str, TableType]
    _reads: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    @property
    def stored(self) -> StoredTables:
        """The rows that are stored."""
        return StoredTables(self.table, self.targets)

    @property
    def reads(self) -> frozenset[str]:
        """The tables that were opened through this transaction, by key."""
        return frozenset(self._reads)

    def entry(self, key: str) -> TableEntry:
        """A table as the branch has it, for a caller that reads it by other means; it counts as read."""
        self._reads.add(key)
        return self.base.entries[key]

    def table(self, key: str) -> Table:
        """A table at its pinned version; it counts as read."""
        entry, root = self.entry(key), self.graph.root
        return root.tables.open(root.layout.table(entry.path), entry.version, branch=entry.owner)


@dataclass(frozen=True, slots=True)
class PreparedWrite:
    """The effects of a write, by table."""

    kind: WriterKind
    effects: Mapping[str, Effect]
    strict: bool
    """Whether it read what it replaces."""
    reads: frozenset[str] | None = None
    """The tables that it or its checks read; None when it depends on everything on the branch."""
    merged_parent: str | None = None
    """The commit that a merge takes in; a merge makes a commit even when no row is another."""
    merged_commits: tuple[Commit, ...] = ()
    """That commit and its ancestors, as far as the target is to record them."""
    schema: NewSchema | None = None
    """The schema to be accepted with it; then, too, there is a commit in any case."""
    build: BuildParts | None = field(default=None, repr=False)
    """What builds the indexes that the write leaves behind, if not this process."""
    phases: PhaseFailpoints = USUAL_PHASES
    operation: str | None = None
    """What the history calls it, if not by its kind."""

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.effects and self.merged_parent is None and self.schema is None


def require_schema(transaction: Transaction, expected: str | None) -> None:
    """Refuse a write that was checked against another schema; None when it was checked against none."""
    found = transaction.schema.catalog.fingerprint
    if expected is not None and found != expected:
        raise ReadSetChanged("schema", expected=expected, actual=found)


class Write(Protocol):
    """A write under way; it keeps what its result needs of the attempt that was committed."""

    def prepare(self, transaction: Transaction, /) -> PreparedWrite:
        """Return the effects on one state of the branch; called again when that state has moved."""


def commit_write(
    graph: OpenGraph,
    author: Author,
    write: Write,
    *,
    is_quick: bool = False,
    tables: Collection[str] | None = None,
) -> Receipt | None:
    """Prepare and commit a write, again where that is allowed; None when there was nothing to do.

    `is_quick` says that preparing costs little, so that it may be done on a state that is outdated. `tables`
    are the tables that it can touch, if that is known.
    """
    with running_writes(graph.coordinator(author.branch)).join(tables) as is_apart:
        receipt = _commit_until_done(graph, author, write, is_quick=is_quick, is_apart=is_apart)
    return None if receipt is None else _build_pending_indexes(graph, author, receipt)


def _commit_until_done(
    graph: OpenGraph, author: Author, write: Write, *, is_quick: bool, is_apart: bool
) -> Receipt | None:
    """`is_apart` says that no other write of this process to the branch touches the same tables."""
    retries = author.retry
    for attempt in range(ATTEMPTS + author.retry):
        operation_id = graph.root.new_id()
        try:
            if attempt < UNLOCKED_ATTEMPTS and (is_apart or not graph.root.locks.is_used_here(author.branch)):
                receipt = _commit_on_known_state(graph, author, write) if is_quick else None
                return receipt or _try_commit(graph, author, write, operation_id)
            # Another writer is faster, or is about to be, so unlocked preparation would be wasted:
            # queue for the branch's lock, and prepare while holding it.
            with graph.root.locks.hold([author.branch], operation_id=operation_id) as held:
                recover_branch(graph, author.branch, held)
                return _try_commit(graph, author, write, operation_id, held)
        except BaseMoved:
            continue
        except _StrictConflict as lost:
            if not retries:
                raise lost.conflict from lost
            retries -= 1
            continue
    raise PublishContention(author.branch, ATTEMPTS + author.retry)


class CommitPresent(Exception):
    """The branch has the commit of this write already; an earlier attempt took effect."""

    def __init__(self, present: Commit) -> None:
        super().__init__(present.id)
        self.commit = present


class _StrictConflict(Exception):
    """A table that a strict write depends on has moved; nothing was written."""

    def __init__(self, conflict: OmnigraphError) -> None:
        super().__init__(str(conflict))
        self.conflict = conflict


def _build_pending_indexes(graph: OpenGraph, author: Author, receipt: Receipt) -> Receipt:
    """The write, after the indexes that it left behind were built; the lock is free by now."""
    if not receipt.indexes.deferred:
        return receipt
    left = build_deferred_indexes(graph, author.branch, receipt.indexes)
    return replace(receipt, indexes=IndexUpkeep(left))


def _commit_on_known_state(graph: OpenGraph, author: Author, write: Write) -> Receipt | None:
    """Commit a write on the state of the branch that this process knows; None if that is not possible.

    In a bucket this saves reading the state before the gates read it. They let the write pass only if nothing
    that it depends on has moved since. Whatever else comes of it may rest on an outdated state, so nothing is
    reported: the write is prepared again on the current one.
    """
    transaction = _begin_on_known_state(graph, author)
    if transaction is None:
        return None
    try:
        prepared = write.prepare(transaction)
    except Exception as error:  # noqa: BLE001 - on the current state it fails again, or not
        _log.info("a write to branch '%s' is prepared again: %s", author.branch, error)
        return None
    if prepared.is_nothing:
        return None
    try:
        plan = _build_plan(transaction, author, prepared, graph.root.new_id())
        receipt = commit(graph, plan)
    except (RecoveryRequired, WriterBusy):
        raise
    except OmnigraphError as error:
        require_incarnation(graph, author.branch, transaction.base, None, error)
        _log.info("a write to branch '%s' is prepared again: %s", author.branch, error)
        return None
    except BaseMoved:
        return None
    if receipt.saw_others:
        _finish_completed_later(graph, author.branch)
    return replace(receipt, indexes=replace(receipt.indexes, build=prepared.build))


def _finish_completed_later(graph: OpenGraph, branch: str) -> None:
    """Publish completed writes to other branches after a write, which took effect whatever comes of it."""
    try:
        finish_completed_writes(graph)
    except OmnigraphError as error:
        _log.warning("interrupted writes were not looked at after a write to '%s': %s", branch, error)


def _begin_on_known_state(graph: OpenGraph, author: Author) -> Transaction | None:
    schema, known = graph.last_schema, graph.coordinator(author.branch).known
    if schema is None or known is None or graph.root.layout.root.is_local or author.commit_id is not None:
        return None
    try:
        return _begin_on(graph, author, schema, known)
    except OmnigraphError:
        return None


def _try_commit(
    graph: OpenGraph,
    author: Author,
    write: Write,
    operation_id: str,
    held: HeldLocks | None = None,
) -> Receipt | None:
    transaction = None
    try:
        transaction = begin(graph, author) if held is not None else _begin_unlocked(graph, author)
        return _commit_prepared(transaction, author, write.prepare(transaction), operation_id, held)
    except RecoveryRequired:
        raise
    except OmnigraphError as error:
        if transaction is not None:
            require_incarnation(graph, author.branch, transaction.base, held, error)
        if held is None and _may_have_mixed_schemas(graph, transaction, error):
            raise BaseMoved(error, by_rival=False) from error
        raise


def _commit_prepared(
    transaction: Transaction,
    author: Author,
    prepared: PreparedWrite,
    operation_id: str,
    held: HeldLocks | None,
) -> Receipt | None:
    graph = transaction.graph
    if prepared.is_nothing:
        failpoints.reach(failpoints.MUTATION_POST_NO_EFFECT_PRE_GATE)
        if author.is_conditional:
            # That there is nothing to do was found on a head which may be the head no more.
            _check_condition(begin(graph, author).base, author)
        if held is None:
            require_incarnation(graph, author.branch, transaction.base)
        return None
    try:
        receipt = commit(graph, _build_plan(transaction, author, prepared, operation_id), held)
        return replace(receipt, indexes=replace(receipt.indexes, build=prepared.build))
    except BaseMoved as moved:
        if author.is_conditional:
            _check_condition(begin(graph, author).base, author)
        if prepared.strict and moved.by_rival:
            raise _StrictConflict(moved.conflict) from moved
        raise


def _may_have_mixed_schemas(graph: OpenGraph, transaction: Transaction | None, error: OmnigraphError) -> bool:
    """Whether a write may have had the schema of one moment and the tables of another.

    A new schema is visible a little before its files are in place, and nothing keeps both together for
    a reader without the lock.
    """
    if isinstance(error, ReadSetChanged) and error.member == "schema":
        return True
    if find_lock(graph.root) is not None:
        return True
    return transaction is not None and read_schema_hash(graph.root) != transaction.schema.hash


def _begin_unlocked(graph: OpenGraph, author: Author) -> Transaction:
    """The branch as it is now, after completed writes that were interrupted were published."""
    with Together(graph.root.layout.root) as calls:
        leftovers = calls.add(partial(has_leftovers, graph.root))
        begun = calls.add(partial(_begin_or_fail, graph, author))
    if leftovers.answer:
        finish_completed_writes(graph, author.branch)
        return begin(graph, author)
    if isinstance(begun.answer, Exception):
        raise begun.answer
    return begun.answer


def _begin_or_fail(graph: OpenGraph, author: Author) -> Transaction | OmnigraphError | CommitPresent:
    """Return the branch as it is now, or why not: an interrupted write may be the reason."""
    try:
        return begin(graph, author)
    except (OmnigraphError, CommitPresent) as failure:
        return failure


def begin(graph: OpenGraph, author: Author) -> Transaction:
    """The branch as it is now; raises `CommitPresent` if it has the commit of the write."""
    with Together(graph.root.layout.root) as calls:
        schema = calls.add(graph.schema)
        loaded = calls.add(partial(graph.load, author.branch))
    return _begin_on(graph, author, schema.answer, loaded.answer)


def _begin_on(graph: OpenGraph, author: Author, schema: LiveSchema, loaded: LoadedBranch) -> Transaction:
    if author.commit_id is not None and author.commit_id in loaded.state.commits:
        raise CommitPresent(loaded.state.commits[author.commit_id])
    base = make_base(loaded, schema.hash)
    _check_condition(base, author)
    if missing := schema.targets.keys() - base.entries.keys():
        # A schema is visible a little before its files are in place.
        raise ReadSetChanged("schema", expected=min(missing), actual=None)
    return Transaction(graph, schema, base, schema.targets)


def _check_condition(base: PlanBase, author: Author) -> None:
    if author.if_commit is not None and base.head != author.if_commit:
        raise PreconditionFailed(author.branch, expected=author.if_commit, actual=base.head)
    if author.if_tables is not None:
        _check_tables(base, author.if_tables)


def _check_tables(base: PlanBase, expected: ReadTables) -> None:
    if expected.identity not in (None, base.identity):
        raise ReadSetChanged("branch", expected=str(expected.identity), actual=str(base.identity))
    for key, entry in expected.entries.items():
        found = base.entries.get(key)
        if found != entry:
            actual = None if found is None else str(found.version)
            raise ReadSetChanged(key, expected=str(entry.version), actual=actual)


def _build_plan(
    transaction: Transaction, author: Author, prepared: PreparedWrite, operation_id: str
) -> CommitPlan:
    return new_plan(
        transaction.graph.root,
        kind=prepared.kind,
        branch=author.branch,
        actor=transaction.graph.permissions.actor_of(author.actor),
        base=transaction.base,
        effects=prepared.effects,
        strict=prepared.strict,
        operation_id=operation_id,
        commit_id=author.commit_id,
        merged_parent=prepared.merged_parent,
        merged_commits=prepared.merged_commits,
        schema=prepared.schema,
        reads=_read_set(prepared, author),
        phases=prepared.phases,
        message=author.message,
        operation=prepared.operation,
    )


def _read_set(prepared: PreparedWrite, author: Author) -> frozenset[str] | None:
    if prepared.reads is None or author.if_commit is not None:
        return None  # with a condition on the head every commit counts
    before = author.if_tables.entries.keys() if author.if_tables is not None else ()
    return prepared.reads.union(before)


# --- writes of this process at the same time -------------------------------------------------------


class RunningWrites:
    """The tables that the writes to one branch touch, as far as they are known ahead.

    It only decides what is prepared early. The gates decide what takes effect.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[object, Collection[str] | None] = {}

    @contextmanager
    def join(self, tables: Collection[str] | None) -> Iterator[bool]:
        """Count a write as running; whether there are others, and none of them touches one of its tables.

        `tables` is None for a write that may touch any. Without others nothing is known about who has the
        lock of the branch, if it is held.
        """
        me = object()
        with self._lock:
            others = list(self._tables.values())
            self._tables[me] = tables
        try:
            yield bool(others) and all(
                tables is not None and other is not None and set(other).isdisjoint(tables) for other in others
            )
        finally:
            with self._lock:
                del self._tables[me]


_by_branch: WeakKeyDictionary[Coordinator, RunningWrites] = WeakKeyDictionary()
_by_branch_lock = threading.Lock()


def running_writes(coordinator: Coordinator) -> RunningWrites:
    """Return the running writes to a branch."""
    with _by_branch_lock:
        return _by_branch.setdefault(coordinator, RunningWrites())
