"""What searches say about nodes, with their queries filled in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.embed.query import EmbeddedProperty
from omnigraph.engine.graph.layout import split_key
from omnigraph.errors import BadRequest
from omnigraph.lang.query.parameters import check_above_zero
from omnigraph.lang.query.terms import Const, Distance, Fusion, ParamRef, Relevance, TextMatch
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.values import Stored
from omnigraph.query.frame import Positions
from omnigraph.query.interrupt import LONG_WORK_ROWS, run_in_worker
from omnigraph.query.read_cache import ReadCache
from omnigraph.query.request import Request
from omnigraph.query.rows import Identity, Rows
from omnigraph.query.search.searches import Searches

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
            return check_above_zero(by.k.name, self._given(by.k))
        return self.number(by.k)

    def number(self, given: Const | ParamRef) -> int:
        """An integer that a search was given."""
        found = self._given(given)
        assert isinstance(found, int)
        return found

    def ranked(
        self, by: Distance | Relevance, rows: Rows, among: NDArray[np.bool_] | None, best: int | None
    ) -> tuple[Positions, NDArray[np.float64]]:
        """The best of some nodes or of all, best first, and what each scores.

        A text ranking has its matches only.
        """
        if isinstance(by, Distance):
            vector = self._vector(by, rows)
            if vector is None:
                return np.empty(0, dtype=np.int64), np.empty(0)
            count = rows.count if best is None else best
            return self._searches.nearest(rows, by.target.name, vector, count, among)
        text = self._text(by)
        if text is None:
            return np.empty(0, dtype=np.int64), np.empty(0)
        return self._searches.relevance(rows, by.field.name, text, best, among)

    def value(self, term: Distance | Relevance | TextMatch, rows: Rows, positions: Positions) -> pa.Array:
        """The value of a search for the nodes at these positions; null where it says nothing."""
        index = pa.array(positions, mask=positions < 0)
        match term:
            case Distance():
                return self._distances(term, rows, positions)
            case Relevance() | TextMatch():
                return self._of_all(term, rows).take(index)

    def _of_all(self, term: Relevance | TextMatch, rows: Rows) -> pa.Array:
        """The value for every node, found once: rows may be looked at in many stretches."""
        key = (rows.identity, term)
        if key not in self._every:
            made = self._relevance(term, rows) if isinstance(term, Relevance) else self._matches(term, rows)
            self._every[key] = made
        return self._every[key]

    def _distances(self, term: Distance, rows: Rows, positions: Positions) -> pa.Array:
        vector = self._vector(term, rows)
        if vector is None:
            return pa.nulls(len(positions), pa.float64())
        return self._searches.distances(rows, term.target.name, vector, positions)

    def _relevance(self, term: Relevance, rows: Rows) -> pa.Array:
        values, missing = np.zeros(rows.count), np.ones(rows.count, dtype=np.bool_)
        text = self._text(term)
        if text is not None:
            found, scores = self._searches.relevance(rows, term.field.name, text)
            values[found], missing[found] = scores, False
        return pa.array(values, mask=missing)

    def _matches(self, term: TextMatch, rows: Rows) -> pa.Array:
        text, edits = self._text(term), DEFAULT_EDITS
        if term.max_edits is not None:
            given = self._given(term.max_edits)
            if given is None:
                text = None
            else:
                edits = self.number(term.max_edits)
        if text is None:
            return pa.nulls(rows.count, pa.bool_())
        matching, unknown = self._searches.matches(rows, term.field.name, text, term.fn, edits)
        return pa.array(matching, mask=unknown)

    # --- queries -----------------------------------------------------------------------------------

    def _given(self, given: Const | ParamRef) -> Stored:
        if isinstance(given, ParamRef):
            return self._request.parameters[given.name]
        return given.value  # type: ignore[return-value]  # items of lists are never null

    def _text(self, term: Relevance | TextMatch) -> str | None:
        """The text to look for; null matches nothing."""
        found = self._given(term.query)
        if found is not None and not isinstance(found, str):
            name = "bm25" if isinstance(term, Relevance) else term.fn
            raise BadRequest(f"{name} query must resolve to a string")
        return found

    def _vector(self, term: Distance, rows: Rows) -> NDArray[np.float32] | None:
        """The vector to compare with; a text is embedded, once."""
        given = self._given(term.query)
        if given is None:
            return None
        key = (rows.key, term.target.name, given)
        if key not in self._vectors:
            self._vectors[key] = self._made(given, rows, term.target.name)
        return self._vectors[key]

    def _made(self, given: Stored, rows: Rows, name: str) -> NDArray[np.float32]:
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
