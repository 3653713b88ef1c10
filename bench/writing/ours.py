"""Omnigraph itself."""

from __future__ import annotations

import time
from pathlib import Path

from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.write.mutate import mutate
from omnigraph.engine.write.transaction import Author
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.storage.location import Location

SCHEMA = "node A { text: String }\nnode B { text: String }\n"
STATEMENTS = {1: 'insert A { text: "x" }', 2: 'insert A { text: "x" }  insert B { text: "x" }'}


class Engine:
    """A graph, made when there is none yet."""

    def __init__(self, place: Path) -> None:
        root = Root.at(Location.parse(place))
        if not place.exists():
            create_graph(root, SCHEMA)
        self._graph = OpenGraph.open(root)
        self._compiled = {tables: self._compile(text) for tables, text in STATEMENTS.items()}

    def grow(self, depth: int) -> None:
        """Insert into both tables until the second has so many rows, each of a commit of its own."""
        for _ in range(depth - self.rows()[1]):
            self.insert(2)

    def insert(self, tables: int) -> float:
        """One row into so many tables, in one commit."""
        begun = time.perf_counter()
        mutate(self._graph, self._compiled[tables], {}, Author("main"))
        return time.perf_counter() - begun

    def rows(self) -> tuple[int, ...]:
        """How many each table has."""
        snapshot = self._graph.snapshot(AtBranch())
        return tuple(open_table(self._graph, snapshot, f"node:{name}").count() for name in ("A", "B"))

    def _compile(self, text: str) -> CompiledMutation:
        compiled = compile_query(f"query q() {{ {text} }}", self._graph.schema().catalog)
        assert isinstance(compiled, CompiledMutation)
        return compiled
