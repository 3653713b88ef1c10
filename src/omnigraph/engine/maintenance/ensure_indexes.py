"""Building the indexes that the schema declares, in a normal commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Protocol

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.plan import BuildIndexes, PhaseFailpoints
from omnigraph.engine.commit.protocol import Receipt
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.upkeep.declared_indexes import (
    VECTOR_ROWS,
    IndexKind,
    declared_indexes,
    find_missing_indexes,
)
from omnigraph.engine.upkeep.index_catch_up import count_vectors, find_refusal
from omnigraph.engine.write.transaction import Author, PreparedWrite, Transaction, Write, commit_write
from omnigraph.errors import TableDrift
from omnigraph.storage.index_files import MisplacedIndexes, find_misplaced_indexes
from omnigraph.storage.indexes import IndexCoverage, IndexSpec, RefusedIndex, read_coverage
from omnigraph.storage.tables import Table

_PHASES = PhaseFailpoints(
    before_confirm=failpoints.ENSURE_INDICES_POST_EFFECTS_PRE_CONFIRM,
    before_publish=failpoints.ENSURE_INDICES_POST_PHASE_B_PRE_MANIFEST_COMMIT,
)


class Upkeep(Write, Protocol):
    """A write over many tables that goes on without those in `skipped`."""

    skipped: dict[str, TableDrift]


"""Prepares a write without some tables."""


def write_skipping_drift(
    graph: OpenGraph, author: Author, upkeep: Upkeep
) -> tuple[Receipt | None, Mapping[str, TableDrift]]:
    """Prepare and commit a write without tables that were modified outside omnigraph; return those too.

    Only the commit protocol can detect them: without its lock, another writer may just be changing the table.
    """
    while True:
        try:
            return commit_write(graph, author, upkeep), upkeep.skipped
        except TableDrift as drift:
            if drift.table_key in upkeep.skipped:
                raise
            upkeep.skipped[drift.table_key] = drift


@dataclass(frozen=True, slots=True)
class IndexResult:
    """What was done about missing indexes."""

    commit: Commit | None
    """None when nothing was to be built."""
    built: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The columns, by table."""
    pending: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns that have no value yet to build an index from, by table."""
    refused: Mapping[str, tuple[RefusedIndex, ...]] = field(default_factory=dict)
    """Indexes that cannot be built from the values of their column, by table; searches do without them."""
    skipped: Mapping[str, TableDrift] = field(default_factory=dict)
    """Tables that were skipped, because they were modified outside omnigraph."""


@dataclass(frozen=True, slots=True)
class MissingIndexes:
    """The indexes that a table lacks."""

    build: tuple[IndexSpec, ...] = ()
    pending: tuple[str, ...] = ()
    refused: tuple[RefusedIndex, ...] = ()


def ensure_indices(graph: OpenGraph, author: Author) -> IndexResult:
    """Build every declared index that is missing on a branch, in one commit; none when all are there.

    One whose files are gone is missing, too. A branch gets its own copy of a table that it only inherits,
    if that one lacks an index.
    """
    graph.permissions.require_admin(author.actor)
    upkeep = _BuildMissing()
    receipt, skipped = write_skipping_drift(graph, author, upkeep)
    found = upkeep.found
    return IndexResult(
        receipt.commit if receipt else None,
        {key: tuple(spec.column for spec in work.build) for key, work in found.items() if work.build},
        {key: work.pending for key, work in found.items() if work.pending},
        {key: work.refused for key, work in found.items() if work.refused},
        dict(skipped),
    )


class _BuildMissing:
    """The declared indexes that tables of a branch lack, as of the last attempt."""

    def __init__(self) -> None:
        self.found: dict[str, MissingIndexes] = {}
        self.skipped: dict[str, TableDrift] = {}

    def prepare(self, transaction: Transaction) -> PreparedWrite:
        self.found = _find_missing(transaction, self.skipped)
        effects = {key: BuildIndexes(work.build) for key, work in self.found.items() if work.build}
        return PreparedWrite("EnsureIndices", effects, strict=False, phases=_PHASES)


def _find_missing(transaction: Transaction, left_out: Collection[str]) -> dict[str, MissingIndexes]:
    found = {}
    for key, entry in transaction.base.entries.items():
        if entry.row_count != 0 and key not in left_out:
            table = transaction.table(key)
            found[key] = find_missing_on_table(
                transaction, key, table, usable_indexes(table, find_misplaced_indexes(table))
            )
    return found


def usable_indexes(table: Table, astray: MisplacedIndexes | None) -> dict[str, IndexCoverage]:
    """Return the stored indexes by name, without those whose files are missing."""
    lost = astray.missing if astray else frozenset()
    return {name: index for name, index in read_coverage(table).items() if name not in lost}


def find_missing_on_table(
    transaction: Transaction, key: str, table: Table, stored: Mapping[str, IndexCoverage]
) -> MissingIndexes:
    """Return the declared indexes that a table lacks; a table without rows needs none."""
    if table.count() == 0:
        return MissingIndexes()
    build: list[IndexSpec] = []
    pending: list[str] = []
    refused: list[RefusedIndex] = []
    for wish in find_missing_indexes(declared_indexes(transaction.schema.catalog, key), stored):
        vectors = count_vectors(table, wish)
        if wish.kind is not IndexKind.VECTOR or vectors >= VECTOR_ROWS:
            refusal = find_refusal(table, wish)
            if refusal is None:
                build.append(wish.spec(vectors))
            else:
                refused.append(refusal)
        elif vectors == 0:
            pending.append(wish.column)
    return MissingIndexes(tuple(build), tuple(pending), tuple(refused))
