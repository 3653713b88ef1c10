"""What tasks do with rows: read them, filter them, make columns of them. All run without Spark, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import SOURCE, TARGET
from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.lang.query.terms import AllOf, Predicate, Term
from omnigraph.pipeline.query.binding_frame import Slot, Slots
from omnigraph.pipeline.query.scope import BatchScope, Lookup, RequestValues, filter_batch, restore_type
from omnigraph.pipeline.table_scan import Fragments, Scan
from omnigraph.query.expressions.evaluate import Scope, evaluate_predicate, evaluate_term, substitute

NEAR, FAR = "near", "far"
"""The ends of an edge, in the direction of a walk."""


@dataclass(frozen=True, slots=True)
class ReadRows:
    """The rows of a table that pass the tests of one variable."""

    scan: Scan
    tests: tuple[Predicate, ...]
    slots: Slots
    """Where the tests find stored columns."""
    given: RequestValues
    kept: Mapping[str, str]
    """The columns that go on, by their stored names."""

    def __call__(self, fragments: Fragments) -> Iterator[pa.RecordBatch]:
        """The rows of some fragments."""
        for batch in self.read(fragments):
            yield batch.select(list(self.kept)).rename_columns(list(self.kept.values()))

    def read(self, fragments: Fragments) -> Iterator[pa.RecordBatch]:
        """The same, as they are stored."""
        for batch in self.scan(fragments):
            yield filter_batch(batch, self.tests, self.slots, self.given)


@dataclass(frozen=True, slots=True)
class ReadLinks:
    """Edges as steps from one end to the other; in both directions a self-loop is one step."""

    edges: ReadRows
    direction: EdgeDirection

    def __call__(self, fragments: Fragments) -> Iterator[pa.RecordBatch]:
        """The steps along the edges of some fragments."""
        for batch in self.edges.read(fragments):
            if self.direction != "in":
                yield self._steps(batch, SOURCE, TARGET)
            if self.direction == "in":
                yield self._steps(batch, TARGET, SOURCE)
            if self.direction == "both":
                apart = pc.not_equal(batch.column(SOURCE), batch.column(TARGET))
                yield self._steps(batch.filter(apart), TARGET, SOURCE)

    def _steps(self, batch: pa.RecordBatch, near: str, far: str) -> pa.RecordBatch:
        columns = {NEAR: batch.column(near), FAR: batch.column(far)}
        kept = {name: batch.column(stored) for stored, name in self.edges.kept.items()}
        return pa.RecordBatch.from_pydict({**columns, **kept})


@dataclass(frozen=True, slots=True)
class FilterRows:
    """Keeps the rows that pass all tests."""

    __test__ = False

    tests: tuple[Predicate, ...]
    slots: Slots
    given: RequestValues

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of a partition that pass."""
        for batch in batches:
            yield filter_batch(batch, self.tests, self.slots, self.given)


@dataclass(frozen=True, slots=True)
class RankRows:
    """Rows of ranked nodes, each with its place and, where one is asked for, its score."""

    ids: str
    places: Lookup
    rank: str
    scores: tuple[str, Lookup] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of a partition that are ranked."""
        for batch in batches:
            places = self.places.of(batch.column(self.ids))
            found = pa.array(np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False)))
            kept = batch.take(found).append_column(self.rank, places.take(found))
            if self.scores is not None:
                name, scores = self.scores
                kept = kept.append_column(name, scores.of(kept.column(self.ids)))
            yield kept


@dataclass(frozen=True, slots=True)
class MadeColumn:
    """A column to be made of a term; `rounded` when a number of it may lose digits on the way to a float."""

    name: str
    term: Term
    type: pa.DataType
    rounded: bool = False


@dataclass(frozen=True, slots=True)
class MakeColumns:
    """Columns made of rows, beside some that go on as they are."""

    columns: tuple[MadeColumn, ...]
    slots: Slots
    given: RequestValues
    kept: tuple[str, ...] = ()
    known: Mapping[Term, Slot] = field(default_factory=dict)
    """Terms whose values are already columns, such as those of a group."""
    tests: tuple[Predicate, ...] = ()
    """What a row must pass, by these values."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The columns of the rows of a partition."""
        for batch in batches:
            yield self._made(batch)

    def _made(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        scope = self._scope(batch)
        if self.tests:
            batch = batch.take(pa.array(np.flatnonzero(evaluate_predicate(AllOf(self.tests), scope))))
            scope = self._scope(batch)
        columns = {name: batch.column(name) for name in self.kept}
        for made in self.columns:
            found = evaluate_term(made.term, scope)
            columns[made.name] = found.cast(made.type, safe=not made.rounded)
        return pa.RecordBatch.from_pydict(columns)

    def _scope(self, batch: pa.RecordBatch) -> Scope:
        there = {
            term: restore_type(batch.column(slot.column), slot.type) for term, slot in self.known.items()
        }
        return substitute(BatchScope(batch, self.slots, self.given), there)
