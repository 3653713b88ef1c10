"""Changing the accepted schema: one commit on main that carries all tables to it, or nothing.

lock      the locks of main and of the schema; there must be no other branch
plan      the steps from the accepted schema; one unsupported step refuses all of them
check     stored rows against every constraint that they may break
commit    new columns, new and dropped tables, and the schema itself, in one commit
remove    where data loss is allowed, old versions of what was dropped; a record stays until that is done
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.gates import BaseMoved
from omnigraph.engine.commit.plan import (
    CreateTable,
    DropTable,
    Effect,
    NewSchema,
    PhaseFailpoints,
    ReplaceRows,
    new_plan,
)
from omnigraph.engine.commit.protocol import Receipt, commit
from omnigraph.engine.commit.recovery.removals import finish_removals, remove_all_versions
from omnigraph.engine.commit.recovery.sweep import finish_completed_writes
from omnigraph.engine.commit.schema_lock import hold_schema_lock
from omnigraph.engine.commit.schema_staging import upgrade_schema_files
from omnigraph.engine.embedding.provenance import copy_notes, notes_path
from omnigraph.engine.graph.layout import LOCK_BRANCH, table_key
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.schema_files import read_identified_schema, record_accepted_schema, render_files
from omnigraph.engine.schema_apply.check_stored_rows import require_fitting_data
from omnigraph.engine.schema_apply.migration import Migration, TableMigration, plan_migration, rewrite_rows
from omnigraph.engine.upkeep.declared_indexes import PendingIndexes, pending_json
from omnigraph.engine.upkeep.index_upkeep import build_deferred_indexes
from omnigraph.engine.write.transaction import Author, Transaction, begin
from omnigraph.errors import PublishContention, ReadOnlyGraph, SchemaApplyBlocked
from omnigraph.lang.schema import MigrationPlan, compile_schema
from omnigraph.lang.schema.migration_steps import AddConstraint, ChangeLanguage, ChangeMetric, MigrationStep
from omnigraph.lang.source import Source
from omnigraph.storage.locks import HeldLocks

_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """The schema to apply, and whether data may be lost."""

    source: Source
    allow_data_loss: bool = False
    actor: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class SchemaResult:
    """The result of a schema apply."""

    supported: bool
    applied: bool
    """False when the schema was the accepted one already."""
    commit: Commit | None
    manifest_version: int
    """The version of main that shows the schema."""
    steps: tuple[MigrationStep, ...]
    pending_indexes: PendingIndexes = field(default_factory=dict, hash=False)
    """Columns whose declared index is not built yet or lags, by table; reads are right without."""

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
            "pending_indexes": pending_json(self.pending_indexes),
        }


def plan_schema(graph: OpenGraph, request: SchemaRequest) -> MigrationPlan:
    """Return the steps from the schema of main to another one; nothing is changed and no row is read."""
    return _plan_migration(graph, request).plan


def apply_schema(graph: OpenGraph, request: SchemaRequest) -> SchemaResult:
    """Make a schema the accepted one; stored rows are carried over, checked and filled."""
    if graph.read_only:
        raise ReadOnlyGraph(graph.root.uri)
    graph.permissions.require("schema_apply", target=MAIN, actor=request.actor)
    author = Author(MAIN, request.actor, message=request.message)
    compile_schema(request.source)
    finish_completed_writes(graph)
    _refuse_branches(graph)
    operation_id = graph.root.new_id()
    applied, receipt = _apply_locked(graph, request, author, operation_id)
    if receipt is None:
        return applied
    return replace(applied, pending_indexes=build_deferred_indexes(graph, MAIN, receipt.indexes))


def _apply_locked(
    graph: OpenGraph, request: SchemaRequest, author: Author, operation_id: str
) -> tuple[SchemaResult, Receipt | None]:
    with hold_schema_lock(graph, operation_id) as held:
        _refuse_branches(graph)
        for _ in range(_ATTEMPTS):
            try:
                return _try_apply(graph, request, author, held, operation_id)
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


def _try_apply(
    graph: OpenGraph, request: SchemaRequest, author: Author, held: HeldLocks, operation_id: str
) -> tuple[SchemaResult, Receipt | None]:
    upgrade_schema_files(graph.root, held)
    transaction = begin(graph, author)
    wanted = _plan_migration(graph, request)
    wanted.plan.refuse_unsupported()
    if not wanted.plan.steps:
        return SchemaResult(True, False, None, graph.load(MAIN).state.version, ()), None
    require_fitting_data(wanted, transaction.table)
    _record_past(graph, transaction, wanted)
    removals = tuple(remove_all_versions(transaction.base.entries[key]) for key in wanted.reclaimed)
    plan = new_plan(
        graph.root,
        kind="SchemaApply",
        branch=author.branch,
        actor=graph.permissions.actor_of(author.actor),
        base=transaction.base,
        effects=_build_effects(wanted, transaction),
        strict=True,
        operation_id=operation_id,
        schema=NewSchema(wanted.schema.hash, render_files(wanted.schema), removals),
        newly_indexed=_tables_with_new_indexes(wanted),
        phases=PhaseFailpoints(before_effects=failpoints.SCHEMA_APPLY_POST_SIDECAR_PRE_EFFECT),
        message=author.message,
    )
    receipt = commit(graph, plan, held)
    if removals:
        finish_removals(graph, held, [operation_id])
    done = receipt.commit
    return SchemaResult(True, True, done, done.version, wanted.plan.steps), receipt


def _tables_with_new_indexes(wanted: Migration) -> tuple[str, ...]:
    """The tables of types that get an index they did not have, or one of another metric or language."""
    added = {
        table_key(step.type_kind, step.type_name)
        for step in wanted.plan.steps
        if isinstance(step, AddConstraint | ChangeLanguage | ChangeMetric)
        and step.type_kind != "interface"
        and (not isinstance(step, AddConstraint) or "Index" in step.constraint)
    }
    return tuple(sorted(added & {change.target.key for change in wanted.tables}))


def _record_past(graph: OpenGraph, transaction: Transaction, wanted: Migration) -> None:
    """Record the old schema, and the origin of vectors under new names; valid even if the commit fails."""
    commits = graph.load(MAIN).state.commits
    record_accepted_schema(graph.root, commits, transaction.base.head, transaction.schema)
    for change in wanted.tables:
        for before, after in change.renamed_vectors():
            copy_notes(graph.root, notes_path(*before), notes_path(*after))


def _plan_migration(graph: OpenGraph, request: SchemaRequest) -> Migration:
    locations = graph.load(MAIN).state.locations
    live = read_identified_schema(graph.root).schema
    return plan_migration(live, request.source, locations, allow_data_loss=request.allow_data_loss)


def _build_effects(wanted: Migration, transaction: Transaction) -> Mapping[str, Effect]:
    effects: dict[str, Effect] = {key: DropTable() for key in wanted.dropped}
    for change in wanted.tables:
        effect = _build_effect(change, transaction)
        if effect is not None:
            effects[change.target.key] = effect
    return effects


def _build_effect(change: TableMigration, transaction: Transaction) -> Effect | None:
    if change.before is None:
        return CreateTable(change.target.schema.empty_table())
    rows = rewrite_rows(transaction.table(change.before), change)
    if change.is_new:
        return CreateTable(rows, replaces=change.before)
    return ReplaceRows(rows) if change.is_rewritten else None
