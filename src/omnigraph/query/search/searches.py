"""The searches of a query: distances, relevance and text matches of nodes.

`Scores` fills in the parameters of a query, `Searches` answers by position. Which index answers never changes
which rows match. Vectors are compared exactly as long as that is fast; beyond, a stored index chooses the
rows that are compared. Texts are looked up in a stored index while that is known to be right, else in one
built in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.embed.providers import EmbeddedProperty
from omnigraph.engine.graph.layout import split_key
from omnigraph.errors import BadRequest
from omnigraph.lang.query.ast import TextFn
from omnigraph.lang.query.parameters import check_above_zero
from omnigraph.lang.query.terms import Const, Distance, Fusion, ParamRef, Relevance, TextMatch
from omnigraph.lang.schema.catalog import Catalog, Metric
from omnigraph.lang.values import Stored
from omnigraph.query.frame import Positions
from omnigraph.query.interrupt import LONG_WORK_ROWS, run_in_worker
from omnigraph.query.read_cache import ReadCache
from omnigraph.query.request import Request
from omnigraph.query.rows import Identity, Rows
from omnigraph.query.search.ranking import round_scores, sort_best_first
from omnigraph.query.search.text_index import Check, Mask, never_stop
from omnigraph.query.search.text_lookup import TextColumn, TextLookup
from omnigraph.query.search.vectors import (
    Distances,
    Vector,
    Vectors,
    are_exact_enough,
    compute_distances,
    find_nearest,
)
from omnigraph.storage.search import StoredIndex, find_vector_index, search_vectors

EXACT_BYTES = 256 << 20
"""Up to so many bytes of vectors, all are compared; a stored index is not faster below."""

_FEW = 4096
"""So few candidates are fetched alone."""
_UNINDEXED_SHARE = 10
"""A vector index must know all but one row in so many."""
_SPARE = 32
_MOST_HITS = 1000
"""A vector index is asked for so many rows at most."""

Value = TypeVar("Value")


class Searches:
    """What is searched for in one request; each search is done once."""

    def __init__(
        self, memory: ReadCache, *, check: Check = never_stop, exact_bytes: int | None = None
    ) -> None:
        self._memory = memory
        self._exact_bytes = EXACT_BYTES if exact_bytes is None else exact_bytes
        self._texts = TextLookup(memory, check)
        self._done: dict[Hashable, object] = {}
        self.how = ""
        """Which way the last ranking went, for `explain`."""

    # --- vectors -----------------------------------------------------------------------------------

    def distances(
        self,
        rows: Rows,
        name: str,
        vector: Vector,
        positions: Positions | None = None,
        metric: Metric = "l2",
    ) -> pa.DoubleArray:
        """The distance at each position, of all or of these; null where there is no vector."""
        if positions is not None and len(positions) <= rows.count // 2:
            return _compute_nullable_distances(Vectors.of(rows.take(name, positions)), vector, metric)
        every = self._search_once(
            ("distances", rows.identity, name, vector.tobytes(), metric),
            lambda: _compute_nullable_distances(Vectors.of(rows.column(name)), vector, metric),
        )
        return every if positions is None else every.take(pa.array(positions, mask=positions < 0))

    def nearest(
        self,
        rows: Rows,
        name: str,
        vector: Vector,
        count: int,
        among: Positions | Mask | None = None,
        metric: Metric = "l2",
    ) -> tuple[Positions, Distances]:
        """The nearest `count` positions of those in `among` and their distances, the nearest first.

        Equal distances are in the order of ids. Positions without a vector are never among them.
        """
        if count <= 0:
            return np.empty(0, np.int64), np.empty(0)
        chosen = _live_positions(rows, among)
        found = self._ask_index(rows, name, vector, count, chosen, metric)
        self.how = "vectors compared" if found is None else "stored index"
        if found is None:
            found = self._compare_all(rows, name, vector, count, chosen, metric)
        return sort_best_first(rows, self._memory, *found, count, ascending=True)

    def _compare_all(
        self, rows: Rows, name: str, vector: Vector, count: int, chosen: Positions | None, metric: Metric
    ) -> tuple[Positions, Distances]:
        """All vectors of the choice compared."""
        if chosen is not None and len(chosen) <= _FEW:
            taken = Vectors.of(rows.take(name, chosen))
            places, near = find_nearest(taken, None, vector, count, None, metric)
            return chosen[places], near
        vectors = Vectors.of(rows.column(name))
        squares = self._memory.get_or_make(
            (*rows.identity, "squares", name), vectors.squares, lambda made: int(made.nbytes)
        )
        return find_nearest(vectors, squares, vector, count, chosen, metric)

    def _ask_index(
        self, rows: Rows, name: str, vector: Vector, count: int, chosen: Positions | None, metric: Metric
    ) -> tuple[Positions, Distances] | None:
        """What a stored index chooses; None when comparing all is better or the index found too little."""
        size = rows.live_count if chosen is None else len(chosen)
        large = size * vector.nbytes > self._exact_bytes
        index = self._vector_index(rows, name, metric) if large else None
        if index is None or index.unindexed_rows * _UNINDEXED_SHARE > rows.live_count:
            return None
        # Twice as many as the share of the choice demands: its rows may be rarer among the near ones.
        wanted = count + _SPARE if chosen is None else 2 * count * rows.live_count // size + _SPARE
        if wanted > _MOST_HITS:
            return None
        hits = search_vectors(rows.table, index, name, vector, wanted, metric)
        if hits is None:
            return None
        row_ids, vectors = hits
        positions = rows.positions_of(row_ids)
        kept = positions >= 0
        if chosen is not None:
            kept &= np.isin(positions, chosen)
        if np.count_nonzero(kept) < count:
            return None
        near = compute_distances(vector, Vectors.of(vectors).values, metric)
        exact = are_exact_enough(near, kept, count, metric, len(vector))
        return (positions[kept], near[kept]) if exact else None

    def _vector_index(self, rows: Rows, name: str, metric: Metric) -> StoredIndex | None:
        key = ("vector index", rows.identity, name, metric)
        return self._search_once(key, lambda: find_vector_index(rows.table, name, metric))

    # --- texts -------------------------------------------------------------------------------------

    def matches(self, column: TextColumn, text: str, fn: TextFn, edits: int = 2) -> tuple[Mask, Mask]:
        """Which positions match a text, and for which that is unknown because a text is null.

        `search` and `match_text` want a token in common, `fuzzy` one within so many edits.
        """
        allowed = edits if fn == "fuzzy" else 0
        hits = self._search_once(
            ("matches", column.key("text"), text, allowed),
            lambda: self._texts.matches(column, text, allowed),
        )
        return hits, self._search_once(("unknown", column.key("text")), lambda: self._texts.unknown(column))

    def relevance(
        self,
        column: TextColumn,
        text: str,
        count: int | None = None,
        among: Positions | Mask | None = None,
    ) -> tuple[Positions, NDArray[np.float64]]:
        """The positions that share a token with a text and their relevance, the most relevant first.

        Equal relevance is in the order of ids.
        """
        if count is not None and count <= 0:
            return np.empty(0, np.int64), np.empty(0)
        rows = column.rows
        chosen = None if among is None else _live_mask(rows, among)
        if chosen is not None and np.count_nonzero(chosen) == rows.live_count:
            chosen = None
        limit = count if chosen is None else None
        positions, scores = self._search_once(
            ("relevance", column.key("text"), text, limit),
            lambda: self._texts.relevance(column, text, limit),
        )
        self.how = self._texts.how
        if chosen is not None:
            kept = chosen[positions]
            positions, scores = positions[kept], scores[kept]
        return sort_best_first(rows, self._memory, positions, round_scores(scores), count, ascending=False)

    def _search_once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        if key not in self._done:
            self._done[key] = make()
        found: Value = self._done[key]  # type: ignore[assignment]  # each kind of key has its own type
        return found


def _live_positions(rows: Rows, among: Positions | Mask | None) -> Positions | None:
    """The live positions of a choice, ascending; None when these are all positions."""
    if among is None:
        return None if rows.alive is None else rows.positions()
    chosen = np.flatnonzero(_live_mask(rows, among))
    return None if len(chosen) == rows.count else chosen


def _live_mask(rows: Rows, among: Positions | Mask) -> Mask:
    """A choice without dead positions, as a mask."""
    mask = np.zeros(rows.count, dtype=np.bool_)
    mask[among if among.dtype == np.bool_ else among[among >= 0]] = True
    return mask if rows.alive is None else mask & rows.alive


def _compute_nullable_distances(vectors: Vectors, query: Vector, metric: Metric) -> pa.DoubleArray:
    found = compute_distances(query, vectors.values, metric)
    return pa.array(found, mask=None if vectors.known is None else ~vectors.known)


def _column_of(term: Relevance | TextMatch, rows: Rows) -> TextColumn:
    return TextColumn(rows, term.field.name, term.language)


DEFAULT_EDITS = 2
"""The edits that `fuzzy` allows by default."""

Embed = Callable[[EmbeddedProperty, str], Sequence[float]]
"""The vector of a text, to be compared with a property."""


class Scores:
    """The searches of one query."""

    def __init__(self, request: Request, catalog: Catalog, memory: ReadCache, embed: Embed) -> None:
        self._request = request
        self._catalog = catalog
        self._memory = memory
        self._embed = embed

    @cached_property
    def _searches(self) -> Searches:
        return Searches(self._memory, check=self._request.check)

    @cached_property
    def _every(self) -> dict[tuple[Identity, Relevance | TextMatch], pa.Array]:
        return {}

    @cached_property
    def _vectors(self) -> dict[tuple[str, str, Stored], NDArray[np.float32]]:
        return {}

    @property
    def how(self) -> str:
        """Which way the last ranking went."""
        return self._searches.how

    def fusion_constant(self, by: Fusion) -> int:
        """The `k` of a fusion; a constant was checked when the query was compiled."""
        if isinstance(by.k, ParamRef):
            return check_above_zero(by.k.name, self._resolve_value(by.k))
        return self.number(by.k)

    def number(self, given: Const | ParamRef) -> int:
        """An integer that a search was given."""
        found = self._resolve_value(given)
        assert isinstance(found, int)
        return found

    def ranked(
        self, by: Distance | Relevance, rows: Rows, among: NDArray[np.bool_] | None, best: int | None
    ) -> tuple[Positions, NDArray[np.float64]]:
        """The best of some nodes or of all, best first, and what each scores.

        A text ranking has its matches only.
        """
        if isinstance(by, Distance):
            vector = self._query_vector(by, rows)
            if vector is None:
                return np.empty(0, dtype=np.int64), np.empty(0)
            count = rows.count if best is None else best
            return self._searches.nearest(rows, by.target.name, vector, count, among, by.metric)
        text = self._query_text(by)
        if text is None:
            return np.empty(0, dtype=np.int64), np.empty(0)
        return self._searches.relevance(_column_of(by, rows), text, best, among)

    def value(self, term: Distance | Relevance | TextMatch, rows: Rows, positions: Positions) -> pa.Array:
        """The value of a search for the nodes at these positions; null where it says nothing."""
        index = pa.array(positions, mask=positions < 0)
        match term:
            case Distance():
                return self._measure_distances(term, rows, positions)
            case Relevance() | TextMatch():
                return self._of_all(term, rows).take(index)

    def _of_all(self, term: Relevance | TextMatch, rows: Rows) -> pa.Array:
        """The value for every node, found once: rows may be looked at in many stretches."""
        key = (rows.identity, term)
        if key not in self._every:
            made = (
                self._score_relevance(term, rows)
                if isinstance(term, Relevance)
                else self._match_texts(term, rows)
            )
            self._every[key] = made
        return self._every[key]

    def _measure_distances(self, term: Distance, rows: Rows, positions: Positions) -> pa.Array:
        vector = self._query_vector(term, rows)
        if vector is None:
            return pa.nulls(len(positions), pa.float64())
        return self._searches.distances(rows, term.target.name, vector, positions, term.metric)

    def _score_relevance(self, term: Relevance, rows: Rows) -> pa.Array:
        values, missing = np.zeros(rows.count), np.ones(rows.count, dtype=np.bool_)
        text = self._query_text(term)
        if text is not None:
            found, scores = self._searches.relevance(_column_of(term, rows), text)
            values[found], missing[found] = scores, False
        return pa.array(values, mask=missing)

    def _match_texts(self, term: TextMatch, rows: Rows) -> pa.Array:
        text, edits = self._query_text(term), DEFAULT_EDITS
        if term.max_edits is not None:
            given = self._resolve_value(term.max_edits)
            if given is None:
                text = None
            else:
                edits = self.number(term.max_edits)
        if text is None:
            return pa.nulls(rows.count, pa.bool_())
        matching, unknown = self._searches.matches(_column_of(term, rows), text, term.fn, edits)
        return pa.array(matching, mask=unknown)

    # --- queries -----------------------------------------------------------------------------------

    def _resolve_value(self, given: Const | ParamRef) -> Stored:
        if isinstance(given, ParamRef):
            return self._request.parameters[given.name]
        return given.value  # type: ignore[return-value]  # items of lists are never null

    def _query_text(self, term: Relevance | TextMatch) -> str | None:
        """The text to look for; null matches nothing."""
        found = self._resolve_value(term.query)
        if found is not None and not isinstance(found, str):
            name = "bm25" if isinstance(term, Relevance) else term.fn
            raise BadRequest(f"{name} query must resolve to a string")
        return found

    def _query_vector(self, term: Distance, rows: Rows) -> NDArray[np.float32] | None:
        """The vector to compare with; a text is embedded, once."""
        given = self._resolve_value(term.query)
        if given is None:
            return None
        key = (rows.key, term.target.name, given)
        if key not in self._vectors:
            self._vectors[key] = self._make_vector(given, rows, term.target.name)
        return self._vectors[key]

    def _make_vector(self, given: Stored, rows: Rows, name: str) -> NDArray[np.float32]:
        if isinstance(given, str):
            kind, type_name = split_key(rows.key)
            owner = self._catalog.nodes[type_name] if kind == "node" else self._catalog.edges[type_name]
            text, declared = given, EmbeddedProperty.of(type_name, owner.properties[name])
            # The embedding provider may be remote and slow: do it in a worker thread.
            given = run_in_worker(LONG_WORK_ROWS, lambda: tuple(self._embed(declared, text)))
        if not isinstance(given, tuple):
            raise BadRequest("nearest query must be a string or list of floats")
        with np.errstate(over="ignore"):  # beyond 32 bits a number is infinitely far
            return np.asarray(given, dtype=np.float64).astype(np.float32)
