"""After many small writes reads find what is there, and copy no column for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.query import row_growth, rows
from omnigraph.query.frame import NO_ROW
from omnigraph.query.read_cache import ReadCache, shared_cache
from omnigraph.query.row_growth import GrowingColumn, RowNumbers
from omnigraph.query.rows import Rows
from omnigraph.storage.cache_budget import CACHE_BYTES

SCHEMA = "node P { k: String @key  n: I64?  t: String? }"
POINT = "query q($k: String) { match { $p: P { k: $k } } return { $p.n as n, $p.t as t, $p as id } }"
SCAN = "query q() { match { $p: P } return { $p.k as k, $p.n as n, $p.t as t } }"
COUNT = "query q() { match { $p: P  $p.n < 0 } return { count($p) as n } }"
NODES = 60

State = dict[str, tuple[int, str]]


@contextmanager
def make_cache(monkeypatch: pytest.MonkeyPatch, budget: int) -> Iterator[ReadCache]:
    monkeypatch.setenv(CACHE_BYTES, str(budget))
    shared_cache.cache_clear()
    try:
        yield shared_cache()
    finally:
        shared_cache.cache_clear()


def make_filled(place: Path) -> tuple[Graph, State]:
    state = {f"p{number}": (number, f"text {number}") for number in range(NODES)}
    graph = og.init(place, schema=SCHEMA)
    put(graph, state)
    return graph, state


def put(graph: Graph, rows: Mapping[str, tuple[int, str]]) -> None:
    columns = {
        "k": list(rows),
        "n": [n for n, _ in rows.values()],
        "t": [t for _, t in rows.values()],
    }
    graph.load(pa.table(columns), type="P", mode="merge")


def change(graph: Graph, state: State, random: Random, turn: int) -> None:
    """One small write of any kind, among them updates and deletes of rows that were there from the start."""
    kind = random.choice(["update", "insert", "delete", "come back", "several"])
    if kind == "delete":
        gone = random.choice(sorted(state))
        graph.mutate("query d($k: String) { delete P where k = $k }", {"k": gone})
        del state[gone]
        return
    some = random.sample(range(NODES), 3 if kind == "several" else 1)
    names = [f"new{turn}"] if kind == "insert" else [f"p{number}" for number in some]
    written = dict.fromkeys(names, (turn, f"turn {turn}"))
    put(graph, written)
    state |= written


def check(graph: Graph, state: State, random: Random) -> None:
    asked = [*random.sample(sorted(state), 3), f"p{random.randrange(NODES)}", "missing"]
    for name in asked:
        wanted = [(*state[name], name)] if name in state else []
        assert graph.query(POINT, {"k": name}).tuples() == wanted
    if random.random() < 0.3:
        assert sorted(graph.query(SCAN).tuples()) == sorted((k, *held) for k, held in state.items())


def cached_rows(graph: Graph) -> Rows:
    """The rows of the newest version, as memory has them."""
    version = graph.snapshot().tables["node:P"].version
    kept = [entry.value for entry in shared_cache()._entries.values() if isinstance(entry.value, Rows)]
    (found,) = [each for each in kept if each.table.version == version]
    return found


@pytest.mark.parametrize(
    ("few", "dictionary"),
    [(4, 2), (4096, 2), (4, 10_000)],
    ids=["put together often", "never put together", "by a pass over ids"],
)
def test_many_small_changes_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, dictionary: int
) -> None:
    monkeypatch.setattr(row_growth, "_FEW", few)
    monkeypatch.setattr(rows, "_PASSES", dictionary)
    shared_cache().forget()
    random = Random(few + dictionary)
    graph, state = make_filled(tmp_path / "g")
    with graph:
        graph.query(SCAN)
        ways = set[str]()
        for turn in range(10):
            change(graph, state, random, turn)
            check(graph, state, random)
            ways.add("grown" if cached_rows(graph).growth else "rebuilt")
        assert "grown" in ways


@pytest.mark.parametrize("budget", [0, 22_000, 40_000])
def test_a_small_budget_changes_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    """The first values may be forgotten at any time, and with them what holds on to them."""
    monkeypatch.setattr(rows, "_PASSES", 2)
    random = Random(budget)
    with make_cache(monkeypatch, budget) as memory:
        graph, state = make_filled(tmp_path / "g")
        with graph:
            graph.query(SCAN)
            for turn in range(5):
                change(graph, state, random, turn)
                check(graph, state, random)
                assert memory.used <= budget
                assert memory.used == sum(entry.nbytes for entry in memory._entries.values())


def test_a_point_after_a_write_copies_nothing_and_reads_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in memory of the first version is the very same array, whatever came since."""
    monkeypatch.setattr(rows, "_PASSES", 1)
    shared_cache().forget()
    graph, _ = make_filled(tmp_path / "g")
    with graph:
        graph.query(COUNT)
        graph.query(SCAN)
        graph.query(POINT, {"k": "p1"})
        first = {name: cached_rows(graph).column(name) for name in ("id", "n", "t")}
        places = cached_rows(graph).id_positions()
        assert places is not None
        for turn in range(3):
            put(graph, {f"p{turn}": (-turn, "changed"), f"new{turn}": (turn, "came")})
            graph.mutate("query d($k: String) { delete P where k = $k }", {"k": f"p{turn + 10}"})
            assert graph.query(POINT, {"k": f"p{turn}"}).tuples() == [(-turn, "changed", f"p{turn}")]
            assert graph.query(POINT, {"k": f"p{turn + 10}"}).tuples() == []
            newest = cached_rows(graph)
            for name, column in first.items():
                pieces = newest.cached_column(name)
                assert pieces is not None
                assert pieces.first is column, name
                assert shared_cache().get((*newest.identity, "column", name)) is None, name
            later = newest.id_positions()
            assert later is not None
            assert later.first is places.first
            assert newest.growth is not None
            assert newest.growth.numbers.first is newest._load_row_numbers().first
            assert shared_cache().get((*newest.identity, "alive")) is None
            assert shared_cache().get((*newest.identity, "positions")) is None


# --- by themselves -------------------------------------------------------------------------------


def test_numbers_of_rows_that_grew_tell_the_last_place_of_each() -> None:
    first = np.array([5, 3, 9, 7], dtype=np.uint64)
    numbers = RowNumbers.of(first, np.arange(4), "kept")
    for added in ([11, 3], [3, 12], [5]):
        numbers = numbers.grow(np.array(added, dtype=np.uint64))
    dead = np.array([0, 1, 2, 5])
    asked = np.array([5, 3, 9, 7, 11, 12, 4], dtype=np.uint64)
    assert numbers.positions_of(asked, dead).tolist() == [8, 6, NO_ROW, 3, 4, 7, NO_ROW]
    assert numbers.all().tolist() == [5, 3, 9, 7, 11, 3, 3, 12, 5]
    places = np.array([8, 0, 4, 3])
    assert numbers.at(places).tolist() == numbers.all()[places].tolist()
    assert numbers.first is first


def test_numbers_of_nothing_grow_too() -> None:
    nothing = RowNumbers.of(np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64), "kept")
    nowhere = np.empty(0, dtype=np.int64)
    assert nothing.positions_of(np.array([1], dtype=np.uint64), nowhere).tolist() == [NO_ROW]
    some = nothing.grow(np.array([4, 2], dtype=np.uint64))
    assert some.positions_of(np.array([2, 4], dtype=np.uint64), nowhere).tolist() == [1, 0]
    assert some.at(np.array([1, 0])).tolist() == [2, 4]


@pytest.mark.parametrize("places", [[0, 1], [3, 4], [4, 0, 3, 3, 1], []])
def test_pieces_are_taken_as_the_whole_is(places: list[int]) -> None:
    pieces = GrowingColumn(pa.array(["a", None, "c"]), "kept").grow(pa.array(["d"]))
    assert pieces is not None
    pieces = pieces.grow(pa.array([None], pa.string()))
    assert pieces is not None
    whole = pa.array(["a", None, "c", "d", None])
    assert pieces.whole().equals(whole)
    index = np.array(places, dtype=np.int64)
    assert pieces.take(index).equals(whole.take(pa.array(index)))
    assert [pieces.cell(place).to_pylist() for place in places] == [
        [whole[place].as_py()] for place in places
    ]


def test_values_behind_a_wider_column_are_made_as_wide() -> None:
    pieces = GrowingColumn(pa.array(["a"], pa.large_string()), "kept").grow(pa.array(["b"]))
    assert pieces is not None
    assert pieces.whole().equals(pa.array(["a", "b"], pa.large_string()))
