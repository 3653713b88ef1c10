"""A prepared write as a value: its base and its effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TypeAlias

import pyarrow as pa

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.recovery.removals import TableRemoval
from omnigraph.engine.commit.recovery.sidecar import WriterKind
from omnigraph.engine.graph.coordinator import LoadedBranch
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN, TableEntry
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.schema_files import SchemaFiles
from omnigraph.engine.upkeep.table_rewrite import RewriteTable
from omnigraph.storage.indexes import IndexSpec
from omnigraph.storage.pieces import Pieces
from omnigraph.storage.references import Incarnation

Rows: TypeAlias = pa.Table | Callable[[], pa.RecordBatchReader]
"""Rows in memory, or a stream when there may be too many."""


@dataclass(frozen=True, slots=True)
class AppendRows:
    """Rows whose ids are known to be new."""

    rows: pa.Table | Pieces = field(repr=False)


@dataclass(frozen=True, slots=True)
class UpsertRows:
    """Rows that are added, or replace the stored row with their id; no id is in them twice."""

    rows: pa.Table | Pieces = field(repr=False)
    replaced: pa.Array | None = field(default=None, repr=False)
    """The row ids of the stored rows, null for a row that is added; None when not known yet."""


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Rows to be deleted, by id."""

    ids: pa.Array = field(repr=False)


@dataclass(frozen=True, slots=True)
class ReplaceRows:
    """Rows, and columns, that replace the whole content of a table."""

    rows: Rows | Pieces = field(repr=False)


@dataclass(frozen=True, slots=True)
class BuildIndexes:
    """Indexes over all rows of the table; each replaces a stored one of its name."""

    indexes: tuple[IndexSpec, ...]


@dataclass(frozen=True, slots=True)
class RowSteps:
    """Consecutive row changes of one table, a version each."""

    steps: tuple[AppendRows | UpsertRows | DeleteRows, ...]


@dataclass(frozen=True, slots=True)
class AdoptVersion:
    """An existing version of main's table: the branch points at it, and nothing is written."""

    version: int
    row_count: int


@dataclass(frozen=True, slots=True)
class CreateTable:
    """A new table with these rows, usually none."""

    rows: Rows = field(repr=False)
    replaces: str | None = None
    """The table that held these rows before the type was renamed."""


@dataclass(frozen=True, slots=True)
class DropTable:
    """A table to drop; its past stays readable."""


Effect = (
    AppendRows
    | UpsertRows
    | DeleteRows
    | ReplaceRows
    | BuildIndexes
    | RewriteTable
    | RowSteps
    | AdoptVersion
    | CreateTable
    | DropTable
)


@dataclass(frozen=True, slots=True)
class NewSchema:
    """The schema that a write makes the accepted one."""

    hash: str
    files: SchemaFiles = field(repr=False)
    removals: tuple[TableRemoval, ...] = ()
    """The tables whose versions from before the change are removed after it."""


@dataclass(frozen=True, slots=True)
class PlanBase:
    """The state a write was prepared on; it takes effect only while what it depends on has not moved."""

    identity: Incarnation
    head: str | None
    schema_hash: str
    entries: Mapping[str, TableEntry] = field(repr=False)


@dataclass(frozen=True, slots=True)
class PhaseFailpoints:
    """The failpoints that a writer has between the phases of its commit, by name."""

    before_effects: str | None = None
    before_confirm: str | None = None
    before_publish: str = failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER


USUAL_PHASES = PhaseFailpoints()

OPERATIONS: Mapping[WriterKind, str] = {
    "Mutation": "mutate",
    "Load": "load",
    "SchemaApply": "schema_apply",
    "BranchMerge": "merge",
    "EnsureIndices": "ensure_indices",
    "Optimize": "optimize",
}
"""What the history calls the commits of a kind of write."""


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """A prepared write: nothing of it is visible or committed yet."""

    kind: WriterKind
    branch: str
    actor: str | None
    base: PlanBase
    effects: Mapping[str, Effect]
    """By table key; only tables that will really move."""
    strict: bool
    """Whether the write read what it replaces: then it fails when a table it depends on has moved."""
    operation_id: str
    commit_id: str
    rollback_id: str
    restore_id: str
    merged_parent: str | None = None
    """The other branch's commit that a merge takes in."""
    merged_commits: tuple[Commit, ...] = field(default=(), repr=False)
    """That commit and its ancestors, as far as the branch is to record them."""
    schema: NewSchema | None = None
    reads: frozenset[str] | None = None
    """The tables that the write or its checks read; None when it depends on everything on the branch."""
    newly_indexed: tuple[str, ...] = ()
    """Tables for which the new schema declares more indexes."""
    phases: PhaseFailpoints = USUAL_PHASES
    message: str | None = None
    operation: str | None = None
    """What the history calls the write."""

    @property
    def is_confirmed(self) -> bool:
        """Whether the record is confirmed once all tables are written: until then recovery undoes the write.

        Where only the storage of rows changes, every intermediate version is as good as the last one.
        """
        return self.kind != "Optimize"


def make_base(loaded: LoadedBranch, schema_hash: str) -> PlanBase:
    """Return the current state of a branch as the base of a plan."""
    state = loaded.state
    return PlanBase(loaded.identity, state.head.id if state.head else None, schema_hash, state.entries())


def new_plan(
    root: Root,
    *,
    kind: WriterKind,
    branch: str,
    actor: str | None,
    base: PlanBase,
    effects: Mapping[str, Effect],
    strict: bool,
    operation_id: str | None = None,
    commit_id: str | None = None,
    merged_parent: str | None = None,
    merged_commits: tuple[Commit, ...] = (),
    schema: NewSchema | None = None,
    reads: frozenset[str] | None = None,
    newly_indexed: tuple[str, ...] = (),
    phases: PhaseFailpoints = USUAL_PHASES,
    message: str | None = None,
    operation: str | None = None,
) -> CommitPlan:
    """Return a plan with the ids of all its possible outcomes."""
    return CommitPlan(
        kind=kind,
        branch=branch,
        actor=actor,
        base=base,
        effects=dict(sorted(effects.items())),
        strict=strict,
        operation_id=operation_id or root.new_id(),
        commit_id=commit_id or root.new_id(),
        rollback_id=root.new_id(),
        restore_id=root.new_id(),
        merged_parent=merged_parent,
        merged_commits=merged_commits,
        schema=schema,
        reads=reads,
        newly_indexed=newly_indexed,
        phases=phases,
        message=message,
        operation=operation or OPERATIONS[kind],
    )


def is_first_touch(plan: CommitPlan, entry: TableEntry) -> bool:
    """Whether the branch has no fork of the table yet: it then inherits another branch's version."""
    return plan.branch not in (MAIN, entry.owner)
