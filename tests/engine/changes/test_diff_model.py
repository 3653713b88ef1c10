"""Diffs of random histories against plain dictionaries."""

from __future__ import annotations

import shutil
import struct
from base64 import b64encode
from itertools import pairwise, permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph.engine.changes.comparison import TableComparison, compare_by_tasks
from omnigraph.engine.changes.row_pairs import compare_sides
from omnigraph.engine.changes.table_side import TableSide
from omnigraph.engine.tasks.runner import LocalRunner
from omnigraph.graph import Graph
from omnigraph.lang.dates import format_date, format_datetime
from tests.engine.changes.world import (
    HUBS,
    SCHEMA,
    State,
    apply_changes,
    few_rows_at_once,
    hubs,
    link,
    load,
    order,
    texts,
    thing,
)
from tests.examples import EXAMPLES

KEYS = ("a", "b", "c", "ü")
ZEROS = st.sampled_from([0.0, -0.0])
DAYS = st.integers(-3, 3).map(format_date)
FLOATS = ZEROS | st.floats(allow_nan=False, allow_infinity=False)
SINGLES = ZEROS | st.floats(width=32, allow_nan=False, allow_infinity=False)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "s": st.sampled_from(["", "a", "A", "ü"]),
    "flag": st.booleans(),
    "i": st.integers(-(2**31), 2**31 - 1),
    "l": st.integers(-(2**63), 2**63 - 1),
    "u": st.integers(0, 2**32 - 1),
    "v": st.integers(0, 2**64 - 1),
    "f": SINGLES,
    "d": FLOATS,
    "day": DAYS,
    "at": st.integers(-(10**12), 10**12).map(format_datetime),
    "level": st.sampled_from(["low", "high"]),
    "tags": st.lists(st.sampled_from(["", "a"]), max_size=2),
    "nums": st.lists(ZEROS, max_size=2),
    "days": st.lists(DAYS, max_size=2),
    "vec": st.lists(SINGLES, min_size=2, max_size=2),
    "data": st.binary(max_size=3).map(lambda data: f"base64:{b64encode(data).decode()}"),
}
THINGS = st.dictionaries(
    st.sampled_from(KEYS), st.fixed_dictionaries({}, optional=VALUES), min_size=1, max_size=3
).map(lambda found: {("Thing", key): thing(key, **row) for key, row in found.items()})
ENDS = st.sampled_from(HUBS)
LINKS = st.dictionaries(
    st.sampled_from(["e1", "e2", "e3"]),
    st.builds(link, ENDS, ENDS, st.none() | ZEROS),
    min_size=1,
    max_size=3,
).map(lambda found: {("Link", entity): row for entity, row in found.items()})

BRANCHES = st.sampled_from(["main", "one", "two"])
WRITES = st.one_of(
    st.tuples(st.just("merge"), THINGS | LINKS),
    st.tuples(st.just("overwrite"), THINGS | LINKS),
    st.tuples(st.just("delete"), st.sampled_from(KEYS)),
    st.tuples(st.just("rewrite"), st.none()),
    st.tuples(st.just("optimize"), st.none()),
)
STEPS = st.lists(st.tuples(BRANCHES, WRITES), min_size=2, max_size=8)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("changes") / "graph"
    with omnigraph.init(at, schema=SCHEMA) as graph:
        load(graph, hubs())
    return at


class History:
    """A graph, what its branches have, and every state it ever had."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.states: dict[str, State] = {"main": hubs()}
        self.moments: list[tuple[str, State]] = []
        self.remember("main")

    def remember(self, branch: str) -> None:
        self.moments.append((self.graph.snapshot(branch).id, dict(self.states[branch])))

    def go(self, branch: str, write: str, subject: Any) -> None:
        if branch not in self.states:
            parent = list(self.states)[-1]
            self.graph.branches.create(branch, from_=parent)
            self.states[branch] = dict(self.states[parent])
        getattr(self, write)(branch, subject)
        self.remember(branch)

    def merge(self, branch: str, rows: State) -> None:
        load(self.graph, rows, branch=branch)
        self.states[branch].update(rows)

    def overwrite(self, branch: str, rows: State) -> None:
        load(self.graph, rows, "overwrite", branch)
        (name,) = {name for name, _ in rows}
        kept = {key: row for key, row in self.states[branch].items() if key[0] != name}
        self.states[branch] = {**kept, **rows}

    def delete(self, branch: str, key: str) -> None:
        self.graph.mutate("query q($k: String) { delete Thing where k = $k }", {"k": key}, branch=branch)
        self.states[branch].pop(("Thing", key), None)

    def rewrite(self, branch: str, _: None) -> None:
        load(self.graph, self.states[branch], branch=branch)

    def optimize(self, branch: str, _: None) -> None:
        self.graph.optimize(branch)


@settings(max_examples=max(1, EXAMPLES // 10))
@given(steps=STEPS)
@pytest.mark.fuzz
def test_a_diff_leads_from_any_state_to_any_other(template: Path, steps: list[Any]) -> None:
    with TemporaryDirectory() as folder:
        shutil.copytree(template, Path(folder) / "graph")
        with omnigraph.open(Path(folder) / "graph") as graph:
            history = History(graph)
            for branch, (write, subject) in steps:
                history.go(branch, write, subject)
            for one, other in permutations(history.moments, 2):
                require_right(graph, one, other)
            for (a, _), (b, _) in pairwise(history.moments):
                require_same_by_whole_comparison(graph, a, b)


def require_right(graph: Graph, one: tuple[str, State], other: tuple[str, State]) -> None:
    diff = graph.diff(one[0], other[0])
    changes = list(diff)
    assert texts(apply_changes(one[1], changes)) == texts(other[1])
    assert [order(change) for change in changes] == sorted({order(change) for change in changes})
    assert bool(diff) == bool(changes)
    assert sum(s.inserted + s.updated + s.deleted for s in diff.stat().values()) == len(changes)


def require_same_by_whole_comparison(graph: Graph, a: str, b: str) -> None:
    """The quick way finds what reading everything finds, and so do tasks with a few rows each."""
    diff, opened = graph.diff(a, b), graph._opened
    for key in ("node:Thing", "edge:Link"):
        sides = [TableSide.of(opened, at, key, graph.schema) for at in (diff.before, diff.after)]
        quick, thorough = (compare_sides(*sides, whole=whole).table.to_pylist() for whole in (False, True))
        assert quick == thorough
        with few_rows_at_once():
            found = compare_by_tasks(TableComparison(*sides), LocalRunner())
            streamed = [row for part in found.portions() for row in part.table.to_pylist()]
        assert [_shape(row) for row in streamed] == [_shape(row) for row in thorough]


def _shape(row: dict[str, Any]) -> tuple[str, bool, bool]:
    """An entity and where it is; tasks number rows in another way."""
    return row["id"], row["left"] is None, row["right"] is None


def test_the_model_tells_zeros_apart() -> None:
    assert struct.pack("<d", 0.0) != struct.pack("<d", -0.0)
    assert texts({("a", "b"): {"x": 0.0}}) != texts({("a", "b"): {"x": -0.0}})
