"""Building the indexes that the schema declares, in a normal commit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from omnigraph.engine.commit.plan import BuildIndexes
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.maintenance.partial_upkeep import write_skipping_drift
from omnigraph.engine.upkeep.declared_indexes import (
    VECTOR_ROWS,
    IndexKind,
    declared_indexes,
    find_missing_indexes,
)
from omnigraph.engine.upkeep.index_catch_up import count_vectors, find_refusal
from omnigraph.engine.write.transaction import Author, PreparedWrite, Transaction
from omnigraph.errors import TableDrift
from omnigraph.storage.index_files import MisplacedIndexes, find_misplaced_indexes
from omnigraph.storage.indexes import IndexCoverage, IndexSpec, RefusedIndex, read_coverage
from omnigraph.storage.tables import Table


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
    found: dict[str, MissingIndexes] = {}

    def prepare(transaction: Transaction, left_out: Collection[str]) -> PreparedWrite:
        found.clear()
        found.update(_find_missing(transaction, left_out))
        effects = {key: BuildIndexes(work.build) for key, work in found.items() if work.build}
        return PreparedWrite("EnsureIndices", effects, strict=False)

    receipt, skipped = write_skipping_drift(graph, author, prepare)
    return IndexResult(
        receipt.commit if receipt else None,
        {key: tuple(spec.column for spec in work.build) for key, work in found.items() if work.build},
        {key: work.pending for key, work in found.items() if work.pending},
        {key: work.refused for key, work in found.items() if work.refused},
        dict(skipped),
    )


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
