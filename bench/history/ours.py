"""Omnigraph itself."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import omnigraph
from bench import aging
from bench.history.people import SCHEMA, Edit

VERSION = omnigraph.__version__
WORK = "work"
_TOTALS = "query totals() { match { $p: Person } return { count($p) as people, sum($p.age) as ages } }"


def make(data: Path, place: Path) -> None:
    """Load the people, and build what a user would build after a large load."""
    with omnigraph.init(place, schema=SCHEMA) as graph:
        graph.load(data / "Person.parquet", mode="append", engine="local")
        graph.optimize()


def age(data: Path, place: Path, commits: int) -> None:
    """Rewrite people in small commits."""
    with omnigraph.open(place) as graph:
        aging.age(graph, commits, {"Person": pq.read_table(data / "Person.parquet")})


class Engine:
    """A graph that is open."""

    def __init__(self, place: Path) -> None:
        self._graph = omnigraph.open(place)

    def change(self, edit: Edit, branch: str = "main") -> None:
        """Change some people, in one commit."""
        self._graph.load(edit.rows(), type="Person", mode="merge", branch=branch, engine="local")

    def part(self) -> None:
        """Make a branch."""
        self._graph.branches.create(WORK)

    def drop(self) -> None:
        """Delete the branch."""
        self._graph.branches.delete(WORK)

    def merge(self) -> float:
        """The seconds that taking the branch into main takes."""
        begun = time.perf_counter()
        merged = self._graph.merge(WORK)
        took = time.perf_counter() - begun
        assert merged.commit is not None, "there must be something to merge"
        return took

    def last_change(self) -> tuple[float, list[tuple[int, int]]]:
        """The seconds that showing the last commit takes, and the ages before and after in it."""
        newest = self._graph.commits.list(limit=1)[0]
        assert newest.parent is not None
        return self._difference(newest.parent, newest.id)

    def branch_changes(self) -> tuple[float, list[tuple[int, int]]]:
        """The same for main and the branch."""
        return self._difference("main", WORK)

    def _difference(self, before: str, after: str) -> tuple[float, list[tuple[int, int]]]:
        begun = time.perf_counter()
        changes = list(self._graph.diff(before, after))
        took = time.perf_counter() - begun
        return took, [(_age(one.before), _age(one.after)) for one in changes]

    def totals(self) -> tuple[int, int]:
        """How many people there are, and the sum of their ages."""
        row: tuple[Any, ...] = self._graph.query(_TOTALS).tuples()[0]
        return row[0], row[1]


def _age(image: Any) -> int:
    age: int = image.properties["age"]
    return age
