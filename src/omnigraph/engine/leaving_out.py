"""Upkeep of many tables in one commit, which one table that nobody can answer for does not stop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from omnigraph.engine.commit import Receipt
from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.write.transaction import Author, Prepared, Transaction, write
from omnigraph.errors import TableDrift

PrepareRest = Callable[[Transaction, Collection[str]], Prepared]
"""Prepares a write without some tables."""


def write_the_rest(
    graph: OpenGraph, author: Author, prepare: PrepareRest
) -> tuple[Receipt | None, Mapping[str, TableDrift]]:
    """Prepare and commit a write, leaving out tables that were changed past omnigraph; also tells these.

    Only the door can tell: without its lock such a table looks like one that somebody is just writing to.
    """
    left_out: dict[str, TableDrift] = {}
    while True:
        try:
            return write(graph, author, lambda transaction: prepare(transaction, left_out)), left_out
        except TableDrift as drift:
            if drift.table_key in left_out:
                raise
            left_out[drift.table_key] = drift
