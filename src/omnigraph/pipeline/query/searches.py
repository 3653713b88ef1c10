"""Searches are answered in this process, by stored indexes where there are some; tasks get ids and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.embed.query import EmbeddedProperty, embed_query
from omnigraph.engine.columns import ID
from omnigraph.lang.query.terms import Const, Distance, ParamRef, Predicate, Relevance, TextMatch
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.pipeline.query.scope import Lookup, Search
from omnigraph.query.keyed import key_tests, keyed
from omnigraph.query.read import Pinned, Reader
from omnigraph.query.reading import Reading
from omnigraph.query.request import Request
from omnigraph.query.scan import candidates
from omnigraph.query.search.scores import Scores
from omnigraph.query.sources import Sources


class Answers:
    """What the searches of one query say about nodes, each asked once."""

    def __init__(self, reader: Reader, request: Request, pinned: Pinned, catalog: Catalog) -> None:
        self._embedder = reader.embedder
        self._sources = Sources(reader.graph, pinned.snapshot, catalog, reader.memory)
        self._scores = Scores(request, catalog, reader.memory, self._embedded)
        self._reading = Reading(request, self._sources, self._scores, {})
        self._known: dict[tuple[str, Search], Lookup] = {}

    def about(self, term: Search, key: str) -> Lookup:
        """The value of a search for the nodes of a table."""
        if (key, term) not in self._known:
            self._known[key, term] = self._asked(term, key)
        return self._known[key, term]

    def _asked(self, term: Search, key: str) -> Lookup:
        rows = self._sources.rows(key)
        positions = rows.positions()
        ids, values = rows.take(ID, positions), self._scores.value(term, rows, positions)
        if not isinstance(term, TextMatch) or values.null_count == len(values):
            return Lookup(ids.filter(values.is_valid()), values.drop_null())
        # Most texts do not match: what is not told is false.
        told = pc.fill_null(values, True)
        return Lookup(ids.filter(told), values.filter(told), otherwise=False)

    def passing(self, var: str, key: str, tests: tuple[Predicate, ...]) -> pa.Array | None:
        """The ids of the nodes of a table that pass the tests of a variable; None is all."""
        if not tests:
            return None
        reading = replace(self._reading, tables={var: key})
        named = keyed(key_tests(tests, var, reading.key(var)), reading.bindings)
        found = candidates(reading, var, tests, named)
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

    def number(self, given: Const | ParamRef) -> int:
        """An integer that a search was given."""
        return self._scores.number(given)

    def settle(self) -> None:
        """Tell the memory what was read."""
        self._sources.settle()

    def _embedded(self, declared: EmbeddedProperty, text: str) -> Sequence[float]:
        return [float(number) for number in embed_query(self._embedder, text, declared)]


def told(answers: Answers, terms: Sequence[Search], tables: Mapping[str, str]) -> dict[Search, Lookup]:
    """What some searches say, for the tasks that need them."""
    return {term: answers.about(term, tables[_variable(term)]) for term in terms}


def _variable(term: Search) -> str:
    return term.target.var if isinstance(term, Distance) else term.field.var
