"""Runs searches in this process, by stored indexes if there are any; tasks get the ids and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.embed.providers import EmbeddedProperty, embed_query
from omnigraph.engine.graph.table_types import ID
from omnigraph.lang.query.terms import Distance, Fusion, Predicate, Relevance, TextMatch
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.pipeline.query.scope import Lookup, Search
from omnigraph.query.context import QueryContext
from omnigraph.query.key_lookup import find_key_lookup, find_key_tests
from omnigraph.query.reader import PinnedTarget, Reader
from omnigraph.query.request import Request
from omnigraph.query.scan import find_candidates
from omnigraph.query.search.searches import Scores
from omnigraph.query.sources import SnapshotSources


class SearchAnswers:
    """The answers to the searches of one query, each run once."""

    def __init__(self, reader: Reader, request: Request, pinned: PinnedTarget, catalog: Catalog) -> None:
        self._embedder = reader.embedder
        self._sources = SnapshotSources(reader.graph, pinned.snapshot, catalog, reader.memory)
        self._scores = Scores(request, catalog, reader.memory, self._embedded)
        self._reading = QueryContext(request, self._sources, self._scores, {})
        self._known: dict[tuple[str, Search], Lookup] = {}

    def about(self, term: Search, key: str) -> Lookup:
        """Return the value of a search for the nodes of a table."""
        if (key, term) not in self._known:
            self._known[key, term] = self._run_search(term, key)
        return self._known[key, term]

    def _run_search(self, term: Search, key: str) -> Lookup:
        rows = self._sources.rows(key)
        positions = rows.positions()
        ids, values = rows.take(ID, positions), self._scores.value(term, rows, positions)
        if not isinstance(term, TextMatch) or values.null_count == len(values):
            return Lookup(ids.filter(values.is_valid()), values.drop_null())
        # Most texts do not match: ids that are not listed are false.
        listed = pc.fill_null(values, True)
        return Lookup(ids.filter(listed), values.filter(listed), otherwise=False)

    def passing(self, var: str, key: str, tests: tuple[Predicate, ...]) -> pa.Array | None:
        """The ids of the nodes of a table that pass the tests of a variable; None is all."""
        if not tests:
            return None
        reading = replace(self._reading, tables={var: key})
        named = find_key_lookup(find_key_tests(tests, var, reading.key(var)), reading.bindings)
        found = find_candidates(reading, var, tests, named)
        return self._sources.rows(key).take(ID, found.positions)

    def ranked(
        self, by: Distance | Relevance, key: str, among: pa.Array | None, best: int | None
    ) -> tuple[Lookup, Lookup]:
        """The places of the best of some nodes of a table, or of all, and their scores."""
        rows = self._sources.rows(key)
        chosen = None
        if among is not None:
            positions = rows.find(among)
            chosen = np.zeros(rows.count, dtype=np.bool_)
            chosen[positions[positions >= 0]] = True
        found, scores = self._scores.ranked(by, rows, chosen, best)
        ids = rows.take(ID, found)
        return Lookup(ids, pa.array(np.arange(len(found)))), Lookup(ids, pa.array(scores, pa.float64()))

    def fusion_constant(self, by: Fusion) -> int:
        """The `k` of a fusion."""
        return self._scores.fusion_constant(by)

    def update_cache(self) -> None:
        """Update the read cache after the searches."""
        self._sources.settle()

    def _embedded(self, declared: EmbeddedProperty, text: str) -> Sequence[float]:
        return [float(number) for number in embed_query(self._embedder(), text, declared)]


def answer_searches(
    answers: SearchAnswers, terms: Sequence[Search], tables: Mapping[str, str]
) -> dict[Search, Lookup]:
    """Return the answers of some searches, for the tasks that need them."""
    return {term: answers.about(term, tables[_variable(term)]) for term in terms}


def _variable(term: Search) -> str:
    return term.target.var if isinstance(term, Distance) else term.field.var
