"""The context of one running query: its request, its snapshot's tables, and the table of each variable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import split_key, table_key
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.rows.predicate import Bindings
from omnigraph.lang.query.ast import PathFn
from omnigraph.lang.query.terms import (
    Distance,
    EntityId,
    Fusion,
    PathPart,
    Predicate,
    Prop,
    Relevance,
    ShortestPath,
    Term,
    TextMatch,
    walk,
)
from omnigraph.lang.values import Stored
from omnigraph.query.expressions.evaluate import evaluate_predicate
from omnigraph.query.frame import Frame, Positions, all_rows
from omnigraph.query.interrupt import LONG_WORK_ROWS, run_in_worker
from omnigraph.query.pattern import PlanFacts
from omnigraph.query.read_cache import ReadCache
from omnigraph.query.request import Request
from omnigraph.query.rows import SMALL, Rows
from omnigraph.query.search.ranking import id_places
from omnigraph.query.search.searches import Scores
from omnigraph.query.sources import SnapshotSources
from omnigraph.query.topology.adjacency import split_runs
from omnigraph.query.topology.linked_topology import LinkedTopology
from omnigraph.query.topology.paths import FoundPaths, find_path_edges, find_paths

MOST_BYTES = 128 << 20
"""About how many bytes the values of a range may take."""
_FEW = 256
"""So few rows are never split."""
_ROW_BYTES = 128  # that a row counts for at least, whatever is looked at
_NUMBER_BYTES = 8
_OFFSET_BYTES = 4  # of each text in a list
_UNKNOWN_BYTES = 1024  # of a value in a column that is not in memory

RowRange = tuple[int, int]


def split_rows(
    rows_of: Callable[[str], Rows], memory: ReadCache, frame: Frame, terms: Iterable[Term | Predicate]
) -> list[RowRange]:
    """Return ranges of rows, at least one, each small enough for the values that these terms read."""
    if frame.length <= _FEW:
        return [(0, frame.length)]
    looked_at = {part for term in terms for part in walk(term) if isinstance(part, Prop | EntityId)}
    copied = [part for part in looked_at if not rows_of(part.var).are_all(frame.variables[part.var])]
    if not copied:
        return [(0, frame.length)]
    weights = [_estimate_bytes(rows_of(part.var), memory, frame, part) for part in copied]
    same = _ROW_BYTES + sum(weight for weight in weights if isinstance(weight, int))
    single = [weight for weight in weights if not isinstance(weight, int)]
    if single:
        return list(split_runs(sum(single, np.full(frame.length, same)), MOST_BYTES))
    step = max(1, MOST_BYTES // same)
    return [(start, min(start + step, frame.length)) for start in range(0, frame.length, step)]


def _estimate_bytes(
    rows: Rows, memory: ReadCache, frame: Frame, part: Prop | EntityId
) -> NDArray[np.int64] | int:
    """Estimate how many bytes a value takes in each row, or in any row."""
    if isinstance(part, Prop) and part.type.is_numeric:
        return _NUMBER_BYTES  # known without reading the column
    name = ID if isinstance(part, EntityId) else part.name
    if rows.count > SMALL and not rows.is_cached(name):
        return _UNKNOWN_BYTES
    column = rows.column(name)
    if not _is_text(column.type) and not _is_list(column.type):
        return _average_bytes(column)
    widest = memory.get_or_make(
        (*rows.identity, "widest", name),
        lambda: int(_measure_values(column).max(initial=0)),
        lambda _: _ROW_BYTES,
    )
    if widest * frame.length <= MOST_BYTES:
        return 0
    found: NDArray[np.int64] = np.append(_measure_values(column), 0)[frame.variables[part.var]]
    return found


def _measure_values(column: pa.Array) -> NDArray[np.int64]:
    """How many bytes each text or list has."""
    if _is_list(column.type):
        items, ends, each = column.values, column.offsets.to_numpy(), 1
        if _is_text(items.type):
            ends = np.append(0, np.cumsum(_measure_values(items) + _OFFSET_BYTES))[ends]
        else:
            each = _average_bytes(items)
        found: NDArray[np.int64] = np.diff(ends).astype(np.int64) * each
        return found
    lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return np.asarray(lengths, dtype=np.int64)


def _average_bytes(column: pa.Array) -> int:
    """How many bytes a value has; each of them, where they are alike."""
    return int(-(-column.nbytes // max(1, len(column))))


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


class FrameScope:
    """The rows of a frame: each property is taken at the positions of its variable, once."""

    def __init__(
        self,
        frame: Frame,
        rows: Callable[[str], Rows],
        request: Request,
        scores: Scores,
        paths: Callable[[ShortestPath, Frame], PathColumns],
        *,
        streaming: bool = False,
    ) -> None:
        self._paths = paths
        self._found: dict[ShortestPath, PathColumns] = {}
        self._frame = frame
        self._streaming = streaming
        self._rows = rows
        self._request = request
        self._scores = scores
        self._taken: dict[tuple[str, str], pa.Array] = {}

    @property
    def length(self) -> int:
        """How many rows there are."""
        return self._frame.length

    def prop(self, var: str, name: str) -> pa.Array:
        """A property of a variable in every row."""
        found = self._taken.get((var, name))
        if found is None:
            rows, positions = self._rows(var), self._frame.variables[var]
            # All rows of a table in its own order need no taking.
            whole = not self._streaming and rows.are_all(positions)
            found = rows.column(name) if whole else rows.take(name, positions, streaming=self._streaming)
            self._taken[var, name] = found
        return found

    def entity_id(self, var: str) -> pa.Array:
        """The id of a variable in every row."""
        return self.prop(var, ID)

    def parameter(self, name: str) -> Stored:
        """A parameter of the request."""
        return self._request.parameters[name]

    def now(self) -> int:
        """The moment of the request."""
        return self._request.now

    def score(self, term: Distance | Relevance | Fusion | TextMatch) -> pa.Array:
        """The value of a search in every row: the one it was ranked by, or that of its node."""
        ranked = self._frame.scores.get(term)
        if ranked is not None:
            return ranked
        assert not isinstance(term, Fusion), "a fusion is returned only where it ranks"
        field = term.target if isinstance(term, Distance) else term.field
        return self._scores.value(term, self._rows(field.var), self._frame.variables[field.var])

    def path(self, term: PathPart) -> pa.Array:
        """What is asked of the path between two nodes of every row."""
        found = self._found.get(term.path)
        if found is None:
            found = self._found[term.path] = self._paths(term.path, self._frame)
        return found.part(term.fn)

    def column(self, name: str) -> pa.Array:
        """Rows in flight have no result columns."""
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class PathColumns:
    """The paths of rows as columns."""

    path: ShortestPath
    linked: LinkedTopology
    found: FoundPaths
    nodes: Rows
    ends: Rows
    edges: Rows

    def part(self, fn: PathFn) -> pa.Array:
        """What is asked of them."""
        missing = self.found.lengths < 0
        match fn:
            case "length":
                return pa.array(self.found.lengths, mask=missing)
            case "nodes":
                return _make_lists(self._node_ids(), self.found.lengths + 1, missing)
            case "edges":
                ids = find_path_edges(
                    self.linked, self.found, self.path.direction, partial(self.edges.take, ID)
                )
                return _make_lists(ids, np.maximum(self.found.lengths, 0), missing)

    def _node_ids(self) -> pa.Array:
        if self.linked.shared:
            return self.nodes.take(ID, self.found.nodes)
        # Between two types there is one edge, so the nodes come in pairs.
        starts, ends = (self.found.nodes[side::2] for side in (0, 1))
        both = pa.concat_arrays([self.nodes.take(ID, starts), self.ends.take(ID, ends)])
        return both.take(pa.array(np.arange(2 * len(starts)).reshape(2, -1).T.reshape(-1)))


def _make_lists(items: pa.Array, counts: NDArray[np.int64], missing: NDArray[np.bool_]) -> pa.Array:
    offsets = np.append(0, np.cumsum(counts)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), items, mask=pa.array(missing))


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
        return FrameScope(frame, self.rows, self.request, self.scores, self._find_paths, streaming=streaming)

    def _find_paths(self, path: ShortestPath, frame: Frame) -> PathColumns:
        """Return the path between two nodes of every row."""
        linked, nodes = self.sources.linked(path.edge_type), self.rows(path.start.var)
        starts, ends = frame.variables[path.start.var], frame.variables[path.end.var]
        found = run_in_worker(
            LONG_WORK_ROWS,
            lambda: find_paths(
                linked,
                starts,
                ends,
                path.direction,
                path.maximum,
                partial(nodes.take, ID),
                self.request.check,
            ),
        )
        edges = self.sources.rows(table_key("edge", path.edge_type))
        return PathColumns(path, linked, found, nodes, self.rows(path.end.var), edges)

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
