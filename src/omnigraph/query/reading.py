"""One query being run: its request, its snapshot's tables, and the table of each variable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.columns import ID
from omnigraph.engine.layout import split_key
from omnigraph.engine.write.predicate import Bindings
from omnigraph.lang.query.terms import Predicate, Term
from omnigraph.query.expressions.evaluate import mask
from omnigraph.query.frame import Frame, Positions, all_rows
from omnigraph.query.outline import Outline
from omnigraph.query.request import Request
from omnigraph.query.rows import Rows
from omnigraph.query.scope import FrameScope
from omnigraph.query.search.ranking import id_places
from omnigraph.query.search.scores import Scores
from omnigraph.query.sources import Sources
from omnigraph.query.stretches import Stretch, stretches


@dataclass(frozen=True, slots=True)
class Reading:
    """What every step of a query needs to know."""

    request: Request
    sources: Sources
    scores: Scores
    tables: Mapping[str, str]
    """The key of the table that each variable's rows are in."""
    outline: Outline = field(default_factory=Outline)

    @property
    def bindings(self) -> Bindings:
        """The values of the request, for tests that are settled against them."""
        return self.request.bindings

    def inside(self, tables: Mapping[str, str]) -> Reading:
        """The same query inside a block that binds more variables."""
        return replace(self, tables={**self.tables, **tables})

    def key(self, var: str) -> tuple[str, ...]:
        """The properties that are the key of a variable's type, if it has one."""
        kind, name = split_key(self.tables[var])
        return self.sources.catalog.nodes[name].key if kind == "node" else ()

    def rows(self, var: str) -> Rows:
        """The rows of a variable's type."""
        return self.sources.rows(self.tables[var])

    def scope(self, frame: Frame, *, passing: bool = False) -> FrameScope:
        """What expressions see of these rows; of `passing` ones nothing is kept in memory."""
        return FrameScope(frame, self.rows, self.request, self.scores, passing=passing)

    def passing(self, frame: Frame, tests: tuple[Predicate, ...]) -> Frame:
        """The rows that pass all tests."""
        for test in tests:
            if frame.length == 0:
                break
            frame = frame.filter(self._flags(frame, test))
        return frame

    def id_order(self, var: str, positions: Positions) -> pa.Array:
        """Values that sort nodes or edges of a variable as their ids do; null where it has none."""
        rows = self.rows(var)
        if rows.count == 0 or len(positions) <= rows.count:
            return rows.take(ID, positions)
        return pa.array(id_places(rows, self.sources.memory)[positions], mask=positions < 0)

    def stretches(self, frame: Frame, terms: Iterable[Term | Predicate]) -> list[Stretch]:
        """The rows in stretches that are not too much for what these terms look at."""
        return stretches(self.rows, self.sources.memory, frame, terms)

    def _flags(self, frame: Frame, test: Predicate) -> NDArray[np.bool_]:
        cut = self.stretches(frame, (test,))
        if len(cut) == 1:
            return mask(test, self.scope(frame))
        found = []
        for start, stop in cut:
            self.request.check()
            found.append(mask(test, self.scope(frame.slice(start, stop))))
        return np.concatenate(found)

    def flags(
        self, var: str, positions: NDArray[np.int64], tests: tuple[Predicate, ...]
    ) -> NDArray[np.bool_]:
        """Which positions of one variable pass all tests."""
        frame = all_rows(var, positions)
        passed = np.ones(len(positions), dtype=np.bool_)
        for test in tests:
            passed &= mask(test, self.scope(frame))
        return passed
