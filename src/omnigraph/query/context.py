"""The context of one running query: its request, its snapshot's tables, and the table of each variable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.graph.columns import ID
from omnigraph.engine.graph.layout import split_key
from omnigraph.engine.rows.predicate import Bindings
from omnigraph.lang.query.terms import Predicate, Term
from omnigraph.query.expressions.evaluate import evaluate_predicate
from omnigraph.query.frame import Frame, Positions, all_rows
from omnigraph.query.plan_facts import PlanFacts
from omnigraph.query.request import Request
from omnigraph.query.row_slices import RowRange, split_rows
from omnigraph.query.rows import Rows
from omnigraph.query.scope import FrameScope
from omnigraph.query.search.ranking import id_places
from omnigraph.query.search.scores import Scores
from omnigraph.query.sources import SnapshotSources


@dataclass(frozen=True, slots=True)
class QueryContext:
    """What every step of a query shares."""

    request: Request
    sources: SnapshotSources
    scores: Scores
    tables: Mapping[str, str]
    """The key of the table that each variable's rows are in."""
    facts: PlanFacts = field(default_factory=PlanFacts)

    @property
    def bindings(self) -> Bindings:
        """The values of the request, to bind in tests."""
        return self.request.bindings

    def enter_block(self, tables: Mapping[str, str]) -> QueryContext:
        """Return the context inside a block that binds more variables."""
        return replace(self, tables={**self.tables, **tables})

    def key(self, var: str) -> tuple[str, ...]:
        """Return the key properties of a variable's type; empty when it has no key."""
        kind, name = split_key(self.tables[var])
        return self.sources.catalog.nodes[name].key if kind == "node" else ()

    def rows(self, var: str) -> Rows:
        """Return the rows of a variable's type."""
        return self.sources.rows(self.tables[var])

    def scope(self, frame: Frame, *, streaming: bool = False) -> FrameScope:
        """Return what expressions see of these rows; columns of `passing` rows are not cached."""
        return FrameScope(frame, self.rows, self.request, self.scores, streaming=streaming)

    def filter(self, frame: Frame, tests: tuple[Predicate, ...]) -> Frame:
        """Return the rows that pass all tests."""
        for test in tests:
            if frame.length == 0:
                break
            frame = frame.filter(self._test_rows(frame, test))
        return frame

    def id_order(self, var: str, positions: Positions) -> pa.Array:
        """Return values that sort a variable's nodes or edges in id order; null where it has no match."""
        rows = self.rows(var)
        if rows.count == 0 or len(positions) <= rows.count:
            return rows.take(ID, positions)
        return pa.array(id_places(rows, self.sources.memory)[positions], mask=positions < 0)

    def split_rows(self, frame: Frame, terms: Iterable[Term | Predicate]) -> list[RowRange]:
        """Split rows into ranges, each small enough for the values that these terms read."""
        return split_rows(self.rows, self.sources.memory, frame, terms)

    def _test_rows(self, frame: Frame, test: Predicate) -> NDArray[np.bool_]:
        ranges = self.split_rows(frame, (test,))
        if len(ranges) == 1:
            return evaluate_predicate(test, self.scope(frame))
        found = []
        for start, stop in ranges:
            self.request.check()
            found.append(evaluate_predicate(test, self.scope(frame.slice(start, stop))))
        return np.concatenate(found)

    def test_positions(
        self, var: str, positions: NDArray[np.int64], tests: tuple[Predicate, ...]
    ) -> NDArray[np.bool_]:
        """Return which positions of one variable pass all tests."""
        frame = all_rows(var, positions)
        passed = np.ones(len(positions), dtype=np.bool_)
        for test in tests:
            passed &= evaluate_predicate(test, self.scope(frame))
        return passed
