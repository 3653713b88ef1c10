"""Building the indexes that a schema asks for, as a write like any other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from omnigraph.engine.index_intent import VECTOR_ROWS, Kind, Wish, missing, wishes
from omnigraph.engine.leaving_out import write_the_rest
from omnigraph.engine.lineage import Commit
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.plan import BuildIndexes
from omnigraph.engine.write.sql import quoted
from omnigraph.engine.write.transaction import Author, Prepared, Transaction
from omnigraph.errors import TableDrift
from omnigraph.storage.index_files import Astray, find_astray
from omnigraph.storage.indexes import IndexCoverage, IndexSpec, coverage
from omnigraph.storage.tables import Table


@dataclass(frozen=True, slots=True)
class IndexResult:
    """What became of the indexes that were missing."""

    commit: Commit | None
    """None when nothing was to be built."""
    built: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The columns, by table."""
    pending: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns that have no value yet to build an index from, by table."""
    skipped: Mapping[str, TableDrift] = field(default_factory=dict)
    """Tables that were left out, because something else has written to them."""


@dataclass(frozen=True, slots=True)
class IndexWork:
    """The indexes that a table lacks."""

    build: tuple[IndexSpec, ...] = ()
    pending: tuple[str, ...] = ()


def ensure_indices(graph: OpenGraph, author: Author) -> IndexResult:
    """Build every declared index that is missing on a branch, in one commit; none when all are there.

    One whose files are gone is missing, too. A branch gets its own copy of a table that it only inherits,
    if that one lacks an index.
    """
    found: dict[str, IndexWork] = {}

    def prepare(transaction: Transaction, left_out: Collection[str]) -> Prepared:
        found.clear()
        found.update(_work(transaction, left_out))
        effects = {key: BuildIndexes(work.build) for key, work in found.items() if work.build}
        return Prepared("EnsureIndices", effects, strict=False)

    receipt, skipped = write_the_rest(graph, author, prepare)
    return IndexResult(
        receipt.commit if receipt else None,
        {key: tuple(spec.column for spec in work.build) for key, work in found.items() if work.build},
        {key: work.pending for key, work in found.items() if work.pending},
        dict(skipped),
    )


def _work(transaction: Transaction, left_out: Collection[str]) -> dict[str, IndexWork]:
    found = {}
    for key, entry in transaction.base.entries.items():
        if entry.row_count != 0 and key not in left_out:
            table = transaction.table(key)
            found[key] = lacking(transaction, key, table, usable(table, find_astray(table)))
    return found


def usable(table: Table, astray: Astray | None) -> dict[str, IndexCoverage]:
    """The stored indexes by name, without those whose files are nowhere."""
    lost = astray.lost if astray else frozenset()
    return {name: index for name, index in coverage(table).items() if name not in lost}


def lacking(
    transaction: Transaction, key: str, table: Table, stored: Mapping[str, IndexCoverage]
) -> IndexWork:
    """The indexes a table is to have and has not; a table without rows needs none."""
    if table.count() == 0:
        return IndexWork()
    build, pending = [], []
    for wish in missing(wishes(transaction.schema.catalog, key), stored):
        vectors = vectors_in(table, wish)
        if vectors == 0:
            pending.append(wish.column)
        elif vectors is None or vectors >= VECTOR_ROWS:
            build.append(wish.spec(vectors or 0))
    return IndexWork(tuple(build), tuple(pending))


def vectors_in(table: Table, wish: Wish) -> int | None:
    """How many values there are to learn from; None where that does not matter."""
    return table.count(f"{quoted(wish.column)} IS NOT NULL") if wish.kind is Kind.VECTOR else None
