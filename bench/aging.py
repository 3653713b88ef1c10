"""What a graph goes through in use: rows rewritten in small commits, nodes that come and go with edges.

In the end it has the rows it had, so that it answers as a fresh one does.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

import omnigraph

ROWS = 50
"""How many rows one commit rewrites."""
PASSING = 1_000_000_000
"""The first number of the nodes that go again."""


def age(
    graph: omnigraph.Graph,
    commits: int,
    rows: Mapping[str, pa.Table],
    passing: tuple[str, Mapping[str, object], str, str] | None = None,
) -> None:
    """Make so many commits that leave everything as it is.

    `rows` are some of the nodes of each type. `passing` is a type, what its nodes have besides their number,
    an edge type and the node where an edge from each of them ends.
    """
    before = len(graph.commits.list())
    for turn in range(commits):
        if passing is not None and turn % 3 == 1:
            _come(graph, turn, *passing)
        elif passing is not None and turn % 3 == 2:
            _go(graph, turn - 1, passing[0])
        else:
            for type_, table in rows.items():
                first = turn * ROWS % max(len(table) - ROWS, 1)
                graph.load(table.slice(first, ROWS), type=type_, mode="merge", engine="local")
    if passing is not None and commits % 3 == 2:
        _go(graph, commits - 1, passing[0])
    after = len(graph.commits.list())
    assert after - before >= commits, "an aged graph must have a past"


def _come(
    graph: omnigraph.Graph, turn: int, type_: str, properties: Mapping[str, object], edge: str, to: str
) -> None:
    with graph.write() as tx:
        tx.insert(type_, number=PASSING + turn, **properties)
        tx.insert_edge(edge, str(PASSING + turn), to)


def _go(graph: omnigraph.Graph, turn: int, type_: str) -> None:
    with graph.write() as tx:
        tx.delete(type_, ("number", "=", PASSING + turn))
