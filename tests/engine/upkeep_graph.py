"""A graph for the tests of indexes and upkeep: one type with every kind of index, and looks at its tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.commit.plan import AppendRows
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN, TableEntry
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.write.transaction import Author, PreparedWrite, Transaction
from omnigraph.storage.indexes import IndexCoverage, read_coverage
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Observer
from omnigraph.storage.tables import Table
from tests.engine.crash.world import change
from tests.engine.graphs import new_graph
from tests.engine.writing import write

SCHEMA = """
node Doc {
    slug: String @key
    text: String? @index
    level: enum(low, high)? @index
    score: I64? @index
    place: Vector(4)? @index
}
node Log { msg: String }
edge Cites: Doc -> Doc
"""
DOC, LOG, CITES = "node:Doc", "node:Log", "edge:Cites"


def docs_graph(at: Location, observe: Observer | None = None) -> OpenGraph:
    """A graph without any rows."""
    return new_graph(at, SCHEMA, observe)


def add_docs(graph: OpenGraph, numbers: Iterable[int], *, vectors: bool = False, branch: str = MAIN) -> None:
    """Many documents in one commit, faster than by a query."""
    chosen = list(numbers)

    def prepare(transaction: Transaction) -> PreparedWrite:
        rows = _docs(transaction.table(DOC).schema, chosen, vectors)
        return PreparedWrite("Load", {DOC: AppendRows(rows)}, strict=False)

    write(graph, Author(branch), prepare)


def _docs(schema: pa.Schema, numbers: Sequence[int], vectors: bool) -> pa.Table:
    count = len(numbers)
    names = [f"d{number}" for number in numbers]
    values = np.random.default_rng(7).random(4 * count, dtype=np.float32)
    places = pa.FixedSizeListArray.from_arrays(pa.array(values), 4) if vectors else pa.nulls(count, pa.null())
    columns: dict[str, Any] = {
        "id": names,
        "slug": names,
        "text": [f"walking number {number}" for number in numbers],
        "level": ["low", "high"] * (count // 2) + ["low"] * (count % 2),
        "score": list(numbers),
        "place": places.cast(schema.field("place").type),
    }
    return pa.table([pa.array(columns[f.name], f.type) for f in schema], schema=schema)


def log(graph: OpenGraph, times: int = 1, branch: str = MAIN) -> None:
    """One row at a time."""
    for _ in range(times):
        change(graph, 'insert Log { msg: "x" }', branch)


def entry_of(graph: OpenGraph, key: str, branch: str = MAIN) -> TableEntry:
    return graph.load(branch).state.entries()[key]


def table_of(graph: OpenGraph, key: str, branch: str = MAIN) -> Table:
    """A table as its branch shows it."""
    entry = entry_of(graph, key, branch)
    return graph.root.tables.open(graph.root.layout.table(entry.path), entry.version, branch=entry.owner)


def indexes_of(graph: OpenGraph, key: str, branch: str = MAIN) -> dict[str, IndexCoverage]:
    return read_coverage(table_of(graph, key, branch))


def commits_of(graph: OpenGraph, branch: str = MAIN) -> list[Commit]:
    return sorted(graph.load(branch).state.commits.values(), key=lambda commit: commit.order)


def plan_of(table: Table, where: str) -> str:
    """How Lance would look for rows."""
    return str(table.native.scanner(filter=where).explain_plan(verbose=True))


def texts_with(table: Table, word: str) -> set[str]:
    """The ids of documents with a word, by full text."""
    found = table.native.to_table(columns=["id"], full_text_query=word)
    return set(found.column("id").to_pylist())
