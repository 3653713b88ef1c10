"""What a write is prepared on, and how often it is prepared.

A write that only adds may be prepared again when somebody else was faster; one that read what it
replaces may not, because what it read no longer holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from omnigraph import failpoints
from omnigraph.engine.commit import Receipt, commit
from omnigraph.engine.gates import BaseMoved
from omnigraph.engine.lineage import require_actor
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.plan import Base, CommitPlan, Effect, NewSchema, base_of, new_plan
from omnigraph.engine.recovery.sidecar import WriterKind
from omnigraph.engine.recovery.sweep import heal, recover_branch
from omnigraph.engine.schema_apply.lock import find_lock
from omnigraph.engine.schema_files import LiveSchema, schema_hash
from omnigraph.engine.write.lost_branch import require_life
from omnigraph.engine.write.stored import StoredTables
from omnigraph.engine.write.target import Target
from omnigraph.errors import (
    BadRequest,
    OmnigraphError,
    PreconditionFailed,
    PublishContention,
    ReadSetChanged,
    RecoveryRequired,
)
from omnigraph.storage.locks import Held
from omnigraph.storage.tables import Table

ATTEMPTS = 32
UNLOCKED_ATTEMPTS = 1
"""Preparing needs no lock and so keeps nobody waiting; a write that lost once takes it first."""


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes where, and under which condition."""

    branch: str
    actor: str | None = None
    if_commit: str | None = None
    """The head the branch must have."""

    def __post_init__(self) -> None:
        if self.actor is not None:
            require_actor(self.actor)
        given: object = self.if_commit
        if not isinstance(given, str | None):
            told = f"`if_commit` is the id of a commit, not {type(given).__name__}"
            raise BadRequest(told, remedy="give its `id`")


@dataclass(frozen=True, slots=True)
class Transaction:
    """A branch at one moment, as a write sees it."""

    graph: OpenGraph
    schema: LiveSchema
    base: Base
    targets: Mapping[str, Target]

    @property
    def stored(self) -> StoredTables:
        """The rows that are stored."""
        return StoredTables(self.table, self.targets)

    def table(self, key: str) -> Table:
        """A table at its pinned version."""
        entry, root = self.base.entries[key], self.graph.root
        return root.tables.open(root.layout.table(entry.path), entry.version, branch=entry.owner)


@dataclass(frozen=True, slots=True)
class Prepared:
    """The effects of a write, by table."""

    kind: WriterKind
    effects: Mapping[str, Effect]
    strict: bool
    merged_parent: str | None = None
    """The commit that a merge takes in; a merge makes a commit even when no row is another."""
    schema: NewSchema | None = None
    """The schema to be accepted with it; then, too, there is a commit in any case."""

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.effects and self.merged_parent is None and self.schema is None


def write(graph: OpenGraph, author: Author, prepare: Callable[[Transaction], Prepared]) -> Receipt | None:
    """Prepare and commit a write, again where that is allowed; None when there was nothing to do."""
    for attempt in range(ATTEMPTS):
        operation_id = graph.root.new_id()
        try:
            if attempt < UNLOCKED_ATTEMPTS and not graph.root.locks.taken_here(author.branch):
                heal(graph, author.branch)
                return _attempt(graph, author, prepare, operation_id)
            # Somebody is faster, or is about to be, and what is prepared beside him would be in vain:
            # queue, and prepare with the branch's lock in hand, so that nobody can be.
            with graph.root.locks.hold([author.branch], operation_id=operation_id) as held:
                recover_branch(graph, author.branch, held)
                return _attempt(graph, author, prepare, operation_id, held)
        except BaseMoved:
            continue
    raise PublishContention(author.branch, ATTEMPTS)


def _attempt(
    graph: OpenGraph,
    author: Author,
    prepare: Callable[[Transaction], Prepared],
    operation_id: str,
    held: Held | None = None,
) -> Receipt | None:
    transaction = None
    try:
        transaction = begin(graph, author)
        return _carried_out(transaction, author, prepare(transaction), operation_id, held)
    except RecoveryRequired:
        raise
    except OmnigraphError as error:
        if transaction is not None:
            require_life(graph, author.branch, transaction.base, held, error)
        if held is None and _schema_is_changing(graph, transaction, error):
            raise BaseMoved(error, by_rival=False) from error
        raise


def _carried_out(
    transaction: Transaction, author: Author, prepared: Prepared, operation_id: str, held: Held | None
) -> Receipt | None:
    graph = transaction.graph
    if prepared.is_nothing:
        failpoints.reach(failpoints.MUTATION_POST_NO_EFFECT_PRE_GATE)
        if author.if_commit is not None:
            # That there is nothing to do was found on a head which may be the head no more.
            _check_condition(begin(graph, author).base, author)
        if held is None:
            require_life(graph, author.branch, transaction.base)
        return None
    try:
        return commit(graph, _plan(transaction, author, prepared, operation_id), held)
    except BaseMoved as moved:
        if author.if_commit is not None:
            _check_condition(begin(graph, author).base, author)
        if prepared.strict and moved.by_rival:
            raise moved.conflict from moved
        raise


def _schema_is_changing(graph: OpenGraph, transaction: Transaction | None, error: OmnigraphError) -> bool:
    """Whether a write may have had the schema of one moment and the tables of another.

    A new schema is visible a little before its files are in place, and nothing keeps both together for
    whoever looks without the lock.
    """
    if isinstance(error, ReadSetChanged) and error.member == "schema":
        return True
    if find_lock(graph.root) is not None:
        return True
    return transaction is not None and schema_hash(graph.root) != transaction.schema.hash


def begin(graph: OpenGraph, author: Author) -> Transaction:
    """The branch as it is now."""
    schema = graph.schema()
    base = base_of(graph.load(author.branch), schema.hash)
    _check_condition(base, author)
    if missing := schema.targets.keys() - base.entries.keys():
        # A schema is visible a little before its files are in place.
        raise ReadSetChanged("schema", expected=min(missing), actual=None)
    return Transaction(graph, schema, base, schema.targets)


def _check_condition(base: Base, author: Author) -> None:
    if author.if_commit is not None and base.head != author.if_commit:
        raise PreconditionFailed(author.branch, expected=author.if_commit, actual=base.head)


def _plan(transaction: Transaction, author: Author, prepared: Prepared, operation_id: str) -> CommitPlan:
    return new_plan(
        transaction.graph.root,
        kind=prepared.kind,
        branch=author.branch,
        actor=author.actor,
        base=transaction.base,
        effects=prepared.effects,
        strict=prepared.strict,
        operation_id=operation_id,
        merged_parent=prepared.merged_parent,
        schema=prepared.schema,
    )
