"""What a write is going to do, as a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from omnigraph.engine.catching_up import Lagging
from omnigraph.engine.coordinator import Loaded
from omnigraph.engine.manifest import Entry
from omnigraph.engine.recovery.sidecar import WriterKind
from omnigraph.engine.root import Root
from omnigraph.engine.schema_files import SchemaFiles
from omnigraph.storage.index_parts import BuildParts
from omnigraph.storage.indexes import IndexSpec
from omnigraph.storage.pieces import Pieces
from omnigraph.storage.references import Identity
from omnigraph.storage.tables import Table
from omnigraph.storage.upkeep import Rewritten

Rows: TypeAlias = pa.Table | Callable[[], pa.RecordBatchReader]
"""Rows at hand, or made on the way when there may be too many of them."""


@dataclass(frozen=True, slots=True)
class Append:
    """Rows whose ids are known to be new."""

    rows: pa.Table | Pieces = field(repr=False)


@dataclass(frozen=True, slots=True)
class Upsert:
    """Rows that are added, or replace the stored row with their id; no id is in them twice."""

    rows: pa.Table | Pieces = field(repr=False)
    replaced: pa.Array | None = field(default=None, repr=False)
    """The row ids of the stored rows, null for a row that is added; None where nobody knows them yet."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Rows to be deleted, by id."""

    ids: pa.Array = field(repr=False)


@dataclass(frozen=True, slots=True)
class Replace:
    """Rows, and columns, that are all the table is to hold."""

    rows: Rows | Pieces = field(repr=False)


@dataclass(frozen=True, slots=True)
class BuildIndexes:
    """Indexes over all rows of the table, each in the place of a stored one of its name."""

    indexes: tuple[IndexSpec, ...]


@dataclass(frozen=True, slots=True)
class Rearrange:
    """The rows of a table in fewer fragments, then all of them under indexes; they stay the same rows."""

    table: Table
    rewritten: Rewritten | None
    """The new files, written beforehand; None when there is nothing to put together."""
    indexes: tuple[IndexSpec, ...] = ()
    """Those that are built over the whole table."""
    lagging: tuple[Lagging, ...] = ()
    """Those that are brought up to date."""
    build: BuildParts | None = field(default=None, repr=False)
    """Who builds these, if not the process that commits."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose indexes are built or brought up to date."""
        return (*(one.wish.column for one in self.lagging), *(spec.column for spec in self.indexes))


@dataclass(frozen=True, slots=True)
class Steps:
    """Changes of rows that one table goes through one after another, a version each."""

    steps: tuple[Append | Upsert | Remove, ...]


@dataclass(frozen=True, slots=True)
class Adopt:
    """A version that main's table has already: the branch points at it, and no table moves."""

    version: int
    row_count: int


@dataclass(frozen=True, slots=True)
class Create:
    """A new table with these rows, mostly none."""

    rows: Rows = field(repr=False)


@dataclass(frozen=True, slots=True)
class Drop:
    """A table that the graph has no longer; its past stays readable."""


Effect = Append | Upsert | Remove | Replace | BuildIndexes | Rearrange | Steps | Adopt | Create | Drop


@dataclass(frozen=True, slots=True)
class NewSchema:
    """The schema that a write makes the accepted one."""

    hash: str
    files: SchemaFiles = field(repr=False)


@dataclass(frozen=True, slots=True)
class Base:
    """What a write was prepared on; it takes effect only while all of it still holds."""

    identity: Identity
    head: str | None
    schema_hash: str
    entries: Mapping[str, Entry] = field(repr=False)


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """A prepared write: nothing of it is visible, and no table has moved."""

    kind: WriterKind
    branch: str
    actor: str | None
    base: Base
    effects: Mapping[str, Effect]
    """By table key; only tables that will really move."""
    strict: bool
    """A write that read what it replaces: it is never repeated on another base by itself."""
    operation_id: str
    commit_id: str
    rollback_id: str
    restore_id: str
    merged_parent: str | None = None
    """The other branch's commit that a merge takes in."""
    schema: NewSchema | None = None

    @property
    def is_confirmed(self) -> bool:
        """Whether the record tells when all tables have moved: until then such a write is undone.

        Where only the storage of rows changes, every version on the way is as good as the last one.
        """
        return self.kind != "Optimize"


def base_of(loaded: Loaded, schema_hash: str) -> Base:
    """What a branch is at this moment, for a write to be prepared on."""
    state = loaded.state
    return Base(loaded.identity, state.head.id if state.head else None, schema_hash, state.entries())


def new_plan(
    root: Root,
    *,
    kind: WriterKind,
    branch: str,
    actor: str | None,
    base: Base,
    effects: Mapping[str, Effect],
    strict: bool,
    operation_id: str | None = None,
    merged_parent: str | None = None,
    schema: NewSchema | None = None,
) -> CommitPlan:
    """A plan with the ids of everything it can end in fixed from the start."""
    return CommitPlan(
        kind=kind,
        branch=branch,
        actor=actor,
        base=base,
        effects=dict(sorted(effects.items())),
        strict=strict,
        operation_id=operation_id or root.new_id(),
        commit_id=root.new_id(),
        rollback_id=root.new_id(),
        restore_id=root.new_id(),
        merged_parent=merged_parent,
        schema=schema,
    )
