"""The values that expressions read from rows inside a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import ID
from omnigraph.lang.query.terms import Distance, Fusion, PathPart, Predicate, Relevance, TextMatch
from omnigraph.lang.values import Stored
from omnigraph.pipeline.query.binding_frame import Slots
from omnigraph.query.expressions.evaluate import evaluate_predicate

Search = Distance | Relevance | TextMatch


@dataclass(frozen=True, slots=True)
class Lookup:
    """The answer of a search, by node id."""

    ids: pa.Array
    values: pa.Array
    otherwise: bool | None = None
    """The value of all other ids."""

    def of(self, ids: pa.Array) -> pa.Array:
        """The value for each id; null for null."""
        places = pc.index_in(ids, value_set=self.ids)
        found = self.values.take(places)
        if self.otherwise is None:
            return found
        others = pa.scalar(self.otherwise, self.values.type)
        known = pc.if_else(places.is_valid(), found, others)
        return pc.if_else(ids.is_valid(), known, pa.scalar(None, self.values.type))


@dataclass(frozen=True, slots=True)
class RequestValues:
    """The values of a request and the answers of its searches; pickled with tasks."""

    parameters: Mapping[str, Stored]
    now: int
    searches: Mapping[Search, Lookup] = field(default_factory=dict)


class BatchScope:
    """The rows of one Arrow batch."""

    def __init__(self, batch: pa.RecordBatch, slots: Slots, given: RequestValues) -> None:
        self._batch = batch
        self._slots = slots
        self._given = given
        self._taken: dict[object, pa.Array] = {}

    @property
    def length(self) -> int:
        """How many rows there are."""
        return self._batch.num_rows  # type: ignore[no-any-return]

    def prop(self, var: str, name: str) -> pa.Array:
        """A property of a variable in every row."""
        key = (var, name)
        if key not in self._taken:
            slot = self._slots[key]
            self._taken[key] = restore_type(self._batch.column(slot.column), slot.type)
        return self._taken[key]

    def entity_id(self, var: str) -> pa.Array:
        """The id of a variable in every row."""
        return self.prop(var, ID)

    def parameter(self, name: str) -> Stored:
        """A parameter of the request."""
        return self._given.parameters[name]

    def now(self) -> int:
        """The moment of the request."""
        return self._given.now

    def score(self, term: Distance | Relevance | Fusion | TextMatch) -> pa.Array:
        """The value of a search in every row: the one it was ranked by, or that of its node."""
        if not isinstance(term, TextMatch) and term in self._slots:
            slot = self._slots[term]
            return restore_type(self._batch.column(slot.column), slot.type)
        assert not isinstance(term, Fusion), "a fusion is returned only where it ranks"
        searched = term.target if isinstance(term, Distance) else term.field
        return self._given.searches[term].of(self.entity_id(searched.var))

    def path(self, term: PathPart) -> pa.Array:
        """What is asked of a path in every row."""
        slot = self._slots[term.path, "edges" if term.fn == "length" else term.fn]
        found = restore_type(self._batch.column(slot.column), slot.type)
        return pc.list_value_length(found).cast(pa.int64()) if term.fn == "length" else found

    def column(self, name: str) -> pa.Array:
        """Rows in flight have no result columns."""
        raise KeyError(name)


def filter_batch(
    batch: pa.RecordBatch, tests: tuple[Predicate, ...], slots: Slots, given: RequestValues
) -> pa.RecordBatch:
    """Return the rows of a batch that pass all tests."""
    for test in tests:
        if batch.num_rows == 0:
            break
        flags = evaluate_predicate(test, BatchScope(batch, slots, given))
        if not flags.all():
            batch = batch.take(pa.array(np.flatnonzero(flags)))
    return batch


def restore_type(column: pa.Array | pa.ChunkedArray, wanted: pa.DataType) -> pa.Array:
    """Convert a column from a type of Spark back to the type that it is stored in."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if column.type.equals(wanted):
        return column
    if kinds.is_fixed_size_list(wanted):
        return _vectors(column, wanted)
    return column.cast(wanted)


def _vectors(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Lists as vectors; a list that is null has no numbers, a vector that is null needs some."""
    valid = column.is_valid()
    places = np.cumsum(valid.to_numpy(zero_copy_only=False)) - 1
    width = wanted.list_size
    numbers = column.drop_null().flatten().cast(wanted.value_type)
    whole = pa.FixedSizeListArray.from_arrays(numbers, width).cast(wanted)
    return whole.take(pa.array(places, mask=~valid.to_numpy(zero_copy_only=False)))
