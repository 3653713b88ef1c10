"""Upkeep of many tables in one commit, skipping tables that were modified outside omnigraph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from omnigraph.engine.commit.protocol import Receipt
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.write.transaction import Author, PreparedWrite, Transaction, write
from omnigraph.errors import TableDrift

PrepareWithout = Callable[[Transaction, Collection[str]], PreparedWrite]
"""Prepares a write without some tables."""


def write_skipping_drift(
    graph: OpenGraph, author: Author, prepare: PrepareWithout
) -> tuple[Receipt | None, Mapping[str, TableDrift]]:
    """Prepare and commit a write without tables that were modified outside omnigraph; return those too.

    Only the commit protocol can detect them: without its lock, another writer may just be changing the table.
    """
    skipped: dict[str, TableDrift] = {}
    while True:
        try:
            return write(graph, author, lambda transaction: prepare(transaction, skipped)), skipped
        except TableDrift as drift:
            if drift.table_key in skipped:
                raise
            skipped[drift.table_key] = drift
