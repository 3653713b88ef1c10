"""Omnigraph itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import omnigraph
from bench import aging, social
from bench.social_queries import OMNIGRAPH, Followed
from bench.worker import Drained

VERSION = omnigraph.__version__


def make(data: Path, place: Path) -> None:
    """Load all records, and build what a user would build after a large load."""
    with omnigraph.init(place, schema=social.SCHEMA) as graph:
        graph.load(data / "records.jsonl", mode="append")
        graph.optimize()


def age(data: Path, place: Path, commits: int) -> None:
    """Rewrite persons, and let persons come who follow somebody and go again."""
    person = {
        "name": "Passing",
        "gender": "male",
        "birthday": date(1990, 1, 1),
        "age": 34,
        "isMarried": False,
    }
    with omnigraph.open(place) as graph:
        rows = {"Person": pq.read_table(data / "Person.parquet")}
        aging.age(graph, commits, rows, ("Person", person, "Follows", "0"))


class Engine:
    """A graph that is open."""

    def __init__(self, place: Path) -> None:
        self._graph = omnigraph.open(place)

    def ask(self, question: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """All rows as tuples."""
        text = OMNIGRAPH[question]
        if isinstance(text, str):
            return self._graph.query(text, parameters).tuples()
        first = self._graph.query(text.first).tuples()[0]
        return [(*first, *self._graph.query(text.second, {"number": first[0]}).tuples()[0])]

    def ask_arrow(self, question: str, parameters: Mapping[str, Any]) -> Any:
        """The result as Arrow table."""
        text = OMNIGRAPH[question]
        assert not isinstance(text, Followed)
        return self._graph.query(text, parameters).to_arrow()

    def ask_stream(self, question: str, parameters: Mapping[str, Any]) -> Drained:
        """The size of a result that is read batch by batch."""
        text = OMNIGRAPH[question]
        assert not isinstance(text, Followed)
        rows = nbytes = 0
        with self._graph.stream(text, parameters) as reader:
            for batch in reader:
                rows, nbytes = rows + batch.num_rows, nbytes + batch.nbytes
        return Drained(rows, nbytes)

    def explain(self, question: str, parameters: Mapping[str, Any]) -> str:
        """How a question is answered."""
        text = OMNIGRAPH[question]
        return self._graph.explain(text if isinstance(text, str) else text.first, parameters).text()
