"""Write to a graph by a function that prepares the effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from omnigraph.engine.commit.protocol import Receipt
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.write.transaction import Author, PreparedWrite, Transaction, commit_write


@dataclass(frozen=True)
class PreparedBy:
    """A write whose preparation is a function."""

    function: Callable[[Transaction], PreparedWrite]

    def prepare(self, transaction: Transaction) -> PreparedWrite:
        return self.function(transaction)


def write(
    graph: OpenGraph, author: Author, prepare: Callable[[Transaction], PreparedWrite]
) -> Receipt | None:
    return commit_write(graph, author, PreparedBy(prepare))
