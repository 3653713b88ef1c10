"""Reads answer the same however little memory they may keep, and never keep more."""

from __future__ import annotations

import gc
import os
import shutil
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import Random

import pytest

import omnigraph as og
from omnigraph.errors import InvalidValue
from omnigraph.query.read_cache import ReadCache, shared_cache
from omnigraph.storage.cache_budget import CACHE_BYTES
from tests.query.moving import QUERIES, moving
from tests.query.small_limits import other_ways


@contextmanager
def make_cache(monkeypatch: pytest.MonkeyPatch, given: str) -> Iterator[ReadCache]:
    """The memory of a process with this setting."""
    monkeypatch.setenv(CACHE_BYTES, given)
    shared_cache.cache_clear()
    try:
        yield shared_cache()
    finally:
        shared_cache.cache_clear()


@pytest.mark.parametrize("ways", ["few rows", "as for many rows"])
@pytest.mark.parametrize("limit", [0, 40_000, 300_000, 5_000_000])
def test_a_small_memory_changes_no_answer(limit: int, ways: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is forgotten in whatever order, what stays must still fit together."""
    random = Random(limit)
    with (
        make_cache(monkeypatch, str(limit)) as memory,
        nullcontext() if ways == "few rows" else other_ways(),
        moving() as graph,
    ):
        for _ in range(3):
            graph.step(
                random.choice(["update nodes", "merge edges", "delete edges", "fork"]),
                random.randrange(2**16),
            )
            for query in random.sample(QUERIES, 8):
                graph.check([query])
                assert memory.used <= limit


def test_whatever_is_forgotten_the_rest_still_fits_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that grew may be forgotten before their columns, and are then renumbered."""
    asked = [query for query in QUERIES if any(part in query.text for part in ("$e:knows", "$a.day"))]
    with make_cache(monkeypatch, "5000000") as memory, moving() as graph:
        for kind, seed in (("update nodes", 1), ("delete edges", 5), ("merge edges", 6)):
            graph.step(kind, seed)
        (old, _), (newest, state) = graph.past[0], graph.past[-1]

        def warm() -> None:
            memory.forget()
            for commit in (old, newest):
                for query in asked:
                    graph.graph.query(query.text, commit=commit)

        warm()
        sizes = [entry.nbytes for entry in memory._entries.values()]
        for forgotten in range(len(sizes)):
            warm()
            memory.keep("filler", b"", memory.limit - memory.used + sum(sizes[:forgotten]))
            for query in asked:
                graph.require(query, state, commit=newest)


def test_readers_side_by_side_keep_the_account_right(monkeypatch: pytest.MonkeyPatch) -> None:
    with make_cache(monkeypatch, "150000") as memory, moving() as graph:
        graph.step("update nodes", 1)
        state = graph.states["main"]

        def read(seed: int) -> int:
            most = 0
            for query in Random(seed).sample(QUERIES, 10):
                graph.require(query, state)
                most = max(most, memory.used)
            return most

        with ThreadPoolExecutor(4) as threads:
            assert max(threads.map(read, range(8))) <= memory.limit
        assert memory.used == sum(entry.nbytes for entry in memory._entries.values())


# --- the memory by itself ------------------------------------------------------------------------


def test_the_least_recently_used_goes_first() -> None:
    memory = ReadCache(100)
    for name in "abc":
        memory.keep(name, name, 30)
    assert memory.get("a") == "a"
    memory.keep("d", "d", 30)
    assert [memory.get(name) for name in "abcd"] == ["a", None, "c", "d"]
    assert memory.used == 90


def test_what_grew_beyond_the_budget_is_let_go() -> None:
    """Adjacencies grow with use: a value that was small enough once may not be any more."""
    memory = ReadCache(100)
    memory.keep("links", "small", 10)
    assert memory.keep("links", "large", 101) == "large"
    assert memory.get("links") is None
    assert memory.used == 0


def test_without_a_budget_nothing_is_kept_not_even_what_takes_no_room() -> None:
    memory = ReadCache(0)
    memory.keep("empty", "value", 0)
    assert memory.get("empty") is None


def test_threads_that_keep_and_forget_at_once_agree_on_what_is_used() -> None:
    memory = ReadCache(1_000)

    def work(seed: int) -> None:
        random = Random(seed)
        for _ in range(2_000):
            key, size = random.randrange(50), random.randrange(1, 120)
            memory.get_or_make(key, lambda size=size: size, lambda made: made)  # type: ignore[misc]
            memory.keep(key, size, size)
            assert memory.used <= memory.limit

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert memory.used == sum(entry.nbytes for entry in memory._entries.values())
    memory.forget()
    assert memory.used == 0


@pytest.mark.parametrize("limit", [0, 100])
def test_of_threads_that_miss_a_value_at_one_time_one_makes_it(limit: int) -> None:
    memory, made = ReadCache(limit), []

    def make() -> object:
        while memory._turns["value"].threads < 4:
            os.sched_yield()
        made.append(object())
        return memory.keep("value", made[-1], 1)

    with ThreadPoolExecutor(4) as threads:
        found = [threads.submit(memory.make_once, "value", make) for _ in range(4)]
        assert {id(one.result()) for one in found} == {id(one) for one in made}
    assert len(made) == 1
    assert not memory._turns


def test_a_value_whose_making_failed_is_made_by_the_next_thread() -> None:
    memory, failures = ReadCache(100), [ValueError("first")]

    def make() -> str:
        while memory._turns["value"].threads < 2 and failures:
            os.sched_yield()
        if failures:
            raise failures.pop()
        return memory.keep("value", "made", 1)

    with ThreadPoolExecutor(2) as threads:
        found = [threads.submit(memory.make_once, "value", make) for _ in range(2)]
        assert sorted(str(one.exception() or one.result()) for one in found) == ["first", "made"]
    assert memory.make_once("value", make) == "made"


@pytest.mark.parametrize("given", ["", "-1", "1.5", "2GB", "lots", " 5", "\u0665", "9" * 5000])
def test_a_setting_that_is_no_number_of_bytes_is_reported(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pytest.raises(InvalidValue, match=f"{CACHE_BYTES} must be a number of bytes"),
        make_cache(monkeypatch, given),
    ):
        pass


def test_a_wrong_setting_is_reported_by_a_query_and_the_handle_works_once_it_is_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with moving() as graph:
        monkeypatch.setenv(CACHE_BYTES, "much")
        shared_cache.cache_clear()
        with pytest.raises(InvalidValue, match="got 'much'"):
            graph.graph.query(QUERIES[0].text)
        with make_cache(monkeypatch, "1000000"):
            graph.check(QUERIES[:3])


def test_a_refresh_forgets_what_another_graph_in_this_place_had(tmp_path: Path) -> None:
    place, other = tmp_path / "g", tmp_path / "other"
    question = "query q() { match { $p: P } return { $p.k as k } }"
    with og.init(place, schema="node P { k: String @key }") as graph:
        with graph.write() as tx:
            tx.insert("P", k="old")
        assert graph.query(question).rows() == [{"k": "old"}]
        with og.init(other, schema="node P { k: String @key }") as copy, copy.write() as tx:
            tx.insert("P", k="new")
        shutil.rmtree(place)
        shutil.copytree(other, place)
        graph.refresh()
        assert graph.query(question).rows() == [{"k": "new"}]


def test_what_holds_on_to_a_forgotten_value_goes_with_it() -> None:
    memory = ReadCache(100)
    memory.keep("base", "b", 50)
    memory.keep("user", "u", 20, depends_on="base")
    memory.keep("user of the user", "v", 10, depends_on="user")
    memory.keep("other", "o", 30)
    assert memory.used == 30
    assert [memory.get(key) for key in ("base", "user", "user of the user", "other")] == [
        None,
        None,
        None,
        "o",
    ]


def test_what_holds_on_to_a_value_that_is_not_kept_is_not_kept_either() -> None:
    memory = ReadCache(100)
    memory.keep("base", "b", 101)
    memory.keep("user", "u", 20, depends_on="base")
    assert (memory.get("user"), memory.used) == (None, 0)


def test_a_value_that_is_no_longer_kept_takes_along_what_holds_on_to_it() -> None:
    memory = ReadCache(100)
    memory.keep("base", "b", 10)
    memory.keep("user", "u", 20, depends_on="base")
    memory.keep("base", "other", 10, depends_on="forgotten meanwhile")
    assert (memory.get("base"), memory.get("user"), memory.used) == (None, None, 0)


def test_a_value_that_is_kept_again_keeps_what_goes_with_it() -> None:
    memory = ReadCache(100)
    memory.keep("base", "b", 10)
    memory.keep("user", "u", 20, depends_on="base")
    memory.keep("base", "b", 60)
    assert (memory.get("user"), memory.used) == ("u", 80)
    memory.keep("base", "b", 101)
    assert (memory.get("user"), memory.used) == (None, 0)


def test_a_topology_that_is_forgotten_is_held_by_no_link(tmp_path: Path) -> None:
    schema = "node P { k: String @key }\nedge E: P -> P"
    text = "query q() { match { $a: P  $a e $b } return { $a.k as a, $b.k as b } }"
    shared_cache().forget()
    with og.init(tmp_path / "g", schema=schema) as graph:
        with graph.write() as tx:
            tx.insert("P", k="a")
            tx.insert_edge("E", "a", "a")
        graph.query(text)
        (topology,) = [
            key for key in shared_cache()._entries if isinstance(key, tuple) and key[-1] == "topology"
        ]
        kept = weakref.ref(shared_cache().get(topology))
        shared_cache().keep(topology, None, shared_cache().limit + 1)
        gc.collect()
        assert kept() is None
        assert len(graph.query(text)) == 1
    shared_cache().forget()


def test_a_value_that_grew_is_not_the_one_that_is_known() -> None:
    memory = ReadCache(100)
    value, other = [1], [1]
    memory.keep("a", value, 10)
    memory.keep("b", other, 10)
    assert memory.knows("a", value, 10)
    assert not memory.knows("a", other, 10)
    assert not memory.knows("a", value, 11)
    assert not memory.knows("c", value, 10)
    memory.keep("c", [2], 85)
    assert memory.get("a") is value, "it was asked about after the other one"
    assert memory.get("b") is None
