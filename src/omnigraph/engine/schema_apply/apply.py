"""Changing the accepted schema: one commit on main that carries all tables to it, or nothing.

lock      main's lock and that of the schema; there must be no other branch
plan      the steps from the accepted schema; a step that is not possible refuses all of it
check     stored rows against every constraint that they may break
commit    new columns, new and dropped tables, and the schema itself, through the one door
reclaim   where data loss is allowed, the past of what was dropped
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omnigraph.engine.commit import commit
from omnigraph.engine.embedding.provenance import carry, notes_of
from omnigraph.engine.gates import BaseMoved
from omnigraph.engine.lineage import Commit
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.plan import Create, Drop, Effect, NewSchema, Replace, new_plan
from omnigraph.engine.recovery.sweep import heal
from omnigraph.engine.schema_apply.lock import LOCK_BRANCH, exclusively
from omnigraph.engine.schema_apply.migration import Migration, TableMigration, migration
from omnigraph.engine.schema_apply.reclaim import reclaim_past
from omnigraph.engine.schema_apply.rows import rewritten
from omnigraph.engine.schema_apply.validate import require_fitting_data
from omnigraph.engine.schema_files import files_of, remember_schema
from omnigraph.engine.write.transaction import Author, Transaction, begin
from omnigraph.errors import PublishContention, ReadOnlyGraph, SchemaApplyBlocked
from omnigraph.lang.schema import MigrationPlan, compile_schema
from omnigraph.lang.schema.steps import Step
from omnigraph.lang.source import Source
from omnigraph.storage.locks import Held

_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """A schema that is wanted, and what may be lost for it."""

    source: Source
    allow_data_loss: bool = False
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaApplied:
    """What became of a wanted schema."""

    supported: bool
    applied: bool
    """False when the schema was the accepted one already."""
    commit: Commit | None
    manifest_version: int
    """The version of main that shows the schema."""
    steps: tuple[Step, ...]

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain values."""
        return {
            "supported": self.supported,
            "applied": self.applied,
            "step_count": len(self.steps),
            "graph_commit_id": self.commit.id if self.commit else None,
            "graph_manifest_version": self.manifest_version,
            "manifest_version": self.manifest_version,
            "steps": [step.to_json() for step in self.steps],
        }


def plan_schema(graph: OpenGraph, request: SchemaRequest) -> MigrationPlan:
    """The steps to a wanted schema, as main is now; nothing is changed, and no row is looked at."""
    return _migration(graph, begin(graph, Author(MAIN)), request).plan


def apply_schema(graph: OpenGraph, request: SchemaRequest) -> SchemaApplied:
    """Make a schema the accepted one; stored rows are carried over, checked and filled."""
    if graph.read_only:
        raise ReadOnlyGraph(graph.root.uri)
    author = Author(MAIN, request.actor)
    compile_schema(request.source)
    heal(graph)
    _refuse_branches(graph)
    operation_id = graph.root.new_id()
    with exclusively(graph, operation_id) as held:
        _refuse_branches(graph)
        for _ in range(_ATTEMPTS):
            try:
                return _attempt(graph, request, author, held, operation_id)
            except BaseMoved as moved:
                if moved.by_rival:
                    raise moved.conflict from moved
    raise PublishContention(MAIN, _ATTEMPTS)


def _refuse_branches(graph: OpenGraph) -> None:
    others = [name for name in graph.branch_names() if name not in (MAIN, LOCK_BRANCH)]
    if others:
        raise SchemaApplyBlocked(
            f"schema apply requires a graph with only main; found non-main branches: {', '.join(others)}",
            branches=others,
            remedy="merge or delete these branches first",
        )


def _attempt(
    graph: OpenGraph, request: SchemaRequest, author: Author, held: Held, operation_id: str
) -> SchemaApplied:
    transaction = begin(graph, author)
    wanted = _migration(graph, transaction, request)
    wanted.plan.refuse_unsupported()
    if not wanted.plan.steps:
        return SchemaApplied(True, False, None, graph.load(MAIN).state.version, ())
    require_fitting_data(wanted, transaction.table)
    _prepare_past(graph, transaction, wanted)
    plan = new_plan(
        graph.root,
        kind="SchemaApply",
        branch=author.branch,
        actor=author.actor,
        base=transaction.base,
        effects=_effects(wanted, transaction),
        strict=True,
        operation_id=operation_id,
        schema=NewSchema(wanted.schema.hash, files_of(wanted.schema)),
    )
    done = commit(graph, plan, held).commit
    reclaim_past(graph, held, transaction.base.entries, wanted.reclaimed)
    return SchemaApplied(True, True, done, done.version, wanted.plan.steps)


def _prepare_past(graph: OpenGraph, transaction: Transaction, wanted: Migration) -> None:
    """What is known so far and told by names that change; it stays true if the change comes to nothing."""
    commits = graph.load(MAIN).state.commits
    remember_schema(graph.root, commits, transaction.base.head, transaction.schema)
    for change in wanted.tables:
        for before, after in change.renamed_vectors():
            carry(graph.root, notes_of(*before), notes_of(*after))


def _migration(graph: OpenGraph, transaction: Transaction, request: SchemaRequest) -> Migration:
    locations = graph.load(MAIN).state.locations
    return migration(transaction.schema, request.source, locations, allow_data_loss=request.allow_data_loss)


def _effects(wanted: Migration, transaction: Transaction) -> Mapping[str, Effect]:
    effects: dict[str, Effect] = {key: Drop() for key in wanted.dropped}
    for change in wanted.tables:
        effect = _effect(change, transaction)
        if effect is not None:
            effects[change.target.key] = effect
    return effects


def _effect(change: TableMigration, transaction: Transaction) -> Effect | None:
    if change.before is None:
        return Create(change.target.schema.empty_table())
    rows = rewritten(transaction.table(change.before), change)
    if change.is_new:
        return Create(rows)
    return Replace(rows) if change.is_rewritten else None
