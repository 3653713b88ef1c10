"""The rows a `match` block finds: try everything, keep what fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from omnigraph.lang.query.resolved import Bind, EdgeDirection, Maybe, NotBlock, Step, Traverse, Where
from tests.query.oracle.graph import Edge, Entity, Graph
from tests.query.oracle.values import Row, Values

REVERSED: dict[EdgeDirection, EdgeDirection] = {"out": "in", "in": "out", "both": "both"}


class Matcher:
    def __init__(self, graph: Graph, values: Values) -> None:
        self._graph = graph
        self._values = values

    def solve(self, steps: Sequence[Step], row: Row) -> list[Row]:
        """The rows that a clause list makes of one row; each `optional` cuts the list in two."""
        rows, waiting = [row], list[Step]()
        for step in steps:
            if isinstance(step, Maybe):
                rows = self._conjunction(waiting, rows)
                rows = [found for each in rows for found in self._optional(step, each)]
                waiting = []
            else:
                waiting.append(step)
        return self._conjunction(waiting, rows)

    def _optional(self, step: Maybe, row: Row) -> list[Row]:
        return self.solve(step.clauses, row) or [{**row, **dict.fromkeys(step.adds)}]

    def _conjunction(self, steps: Sequence[Step], rows: list[Row]) -> list[Row]:
        """Bindings, then traversals, then filters, then negations."""
        for bind in [step for step in steps if isinstance(step, Bind)]:
            rows = [found for row in rows for found in self._bind(bind, row)]
        rows = self._walk_all([step for step in steps if isinstance(step, Traverse)], rows)
        tests = [step.test for step in steps if isinstance(step, Where)]
        rows = [row for row in rows if all(self._values.holds(test, row) for test in tests)]
        for block in [step for step in steps if isinstance(step, NotBlock)]:
            rows = [row for row in rows if not self._solvable(block, row)]
        return rows

    def _solvable(self, block: NotBlock, row: Row) -> bool:
        seen = {var: row[var] for var in block.outer}
        return bool(self.solve(block.clauses, seen))

    def _bind(self, bind: Bind, row: Row) -> Iterator[Row]:
        """All nodes of the type; for a variable that has one already, that one. No node is never one."""
        candidates = [row[bind.var]] if bind.var in row else self._graph.all_of(bind.type_name)
        for entity in candidates:
            found = {**row, bind.var: entity}
            if entity is not None and all(self._values.holds(test, found) for test in bind.tests):
                yield found

    # --- traversals ------------------------------------------------------------------------------

    def _walk_all(self, pending: list[Traverse], rows: list[Row]) -> list[Row]:
        """Each traversal as soon as one of its ends is there, the first of these first."""
        pending = list(pending)
        while pending and rows:
            step = next((step for step in pending if step.left in rows[0] or step.right in rows[0]), None)
            if step is None:  # nothing binds this group: it starts at any node on the left
                step = pending[0]
                rows = [found for row in rows for found in self._bind(Bind(step.left, step.left_type), row)]
            pending.remove(step)
            rows = [found for row in rows for found in self._walk(step, row)]
        return rows

    def _walk(self, step: Traverse, row: Row) -> Iterator[Row]:
        forward = step.left in row
        start, end = (step.left, step.right) if forward else (step.right, step.left)
        end_type = step.right_type if forward else step.left_type
        direction = step.direction if forward else REVERSED[step.direction]
        source = row[start]
        if source is None:
            return
        if step.edge_var is None:
            for id_ in self._reached(step, source.id, direction):
                yield from self._arrive(row, end, self._graph.node(end_type, id_))
            return
        for edge, id_ in self._edges_from(step.edge_type, source.id, direction):
            found = {**row, step.edge_var: Entity(edge.id, edge.props)}
            yield from self._arrive(found, end, self._graph.node(end_type, id_))

    def _arrive(self, row: Row, end: str, node: Entity) -> Iterator[Row]:
        """A walk to a variable that has a node already only tests that it gets there."""
        if end not in row:
            yield {**row, end: node}
        else:
            known = row[end]
            if known is not None and known.id == node.id:
                yield row

    def _edges_from(self, edge_type: str, id_: str, direction: EdgeDirection) -> Iterator[tuple[Edge, str]]:
        """The edges at a node and where each leads; a self-loop leads back once."""
        for edge in self._graph.edges.get(edge_type, []):
            if direction != "in" and edge.src == id_:
                yield edge, edge.dst
            elif direction != "out" and edge.dst == id_:
                yield edge, edge.src

    def _reached(self, step: Traverse, start: str, direction: EdgeDirection) -> list[str]:
        """The nodes first visited at a hop within the bounds, and those a self-loop leads back to then."""
        maximum = step.maximum if step.left_type == step.right_type else min(step.maximum, 1)
        visited, found = {start}, dict[str, None]()
        frontier = [start]
        for hop in range(1, maximum + 1):
            beyond: list[str] = []
            for node in frontier:
                for _, neighbour in self._edges_from(step.edge_type, node, direction):
                    if neighbour != node and neighbour in visited:
                        continue
                    if neighbour != node:
                        visited.add(neighbour)
                        beyond.append(neighbour)
                    if hop >= step.minimum:
                        found[neighbour] = None
            frontier = beyond
        return list(found)
