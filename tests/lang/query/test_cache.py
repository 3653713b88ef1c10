"""The cache of compiled queries."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from omnigraph.errors import QueryNotFound, TypeCheckError
from omnigraph.lang.query.compile import CompiledQuery, QueryCache, compile_query
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.catalog import Catalog

TWO = """
query names() { match { $p: P } return { $p.k as k } }
query count() { match { $p: P } return { count($p) as n } }
"""
ONE = "query names() { match { $p: P } return { $p.k as k } }"
CATALOG = compile_schema("node P { k: String @key }")
REORDERED = compile_schema("// the same\nnode P { k: String @key }")
WIDER = compile_schema("node P { k: String? }")


def number_query(number: int) -> str:
    return ONE.replace("names", f"names_{number}")


def test_a_repeated_text_gives_the_same_object() -> None:
    cache = QueryCache()
    first = cache.compile(ONE, CATALOG)
    assert cache.compile(ONE, CATALOG) is first
    assert first == compile_query(ONE, CATALOG)
    assert len(cache) == 1


def test_a_catalog_that_means_the_same_shares_the_entry() -> None:
    cache = QueryCache()
    assert cache.compile(ONE, REORDERED) is cache.compile(ONE, CATALOG)


def test_another_catalog_compiles_again() -> None:
    cache = QueryCache()
    first, second = cache.compile(ONE, CATALOG), cache.compile(ONE, WIDER)
    assert [column.nullable for column in first.operation.result] == [False]
    assert [column.nullable for column in second.operation.result] == [True]
    assert cache.compile(ONE, CATALOG) is first


def test_queries_of_one_text_are_kept_apart_by_name() -> None:
    cache = QueryCache()
    names, count = cache.compile(TWO, CATALOG, "names"), cache.compile(TWO, CATALOG, "count")
    assert (names.name, count.name) == ("names", "count")
    assert cache.compile(TWO, CATALOG, "names") is names


def test_what_is_made_of_a_query_is_made_once_and_kept() -> None:
    made: list[str] = []

    def ready(query: CompiledQuery, catalog: Catalog) -> list[str]:
        made.append(f"{query.name} {catalog.fingerprint}")
        return made

    cache = QueryCache(prepare=ready)
    assert cache.compile(ONE, CATALOG) is cache.compile(ONE, CATALOG)
    assert made == [f"names {CATALOG.fingerprint}"]


def test_errors_are_not_kept() -> None:
    cache = QueryCache()
    for _ in range(2):
        with pytest.raises(TypeCheckError):
            cache.compile(re.sub(r"\.k\b", ".nope", ONE), CATALOG)
        with pytest.raises(QueryNotFound):
            cache.compile(TWO, CATALOG)
    assert len(cache) == 0


def test_the_least_recently_used_entry_leaves_first() -> None:
    cache = QueryCache(capacity=3)
    kept = [cache.compile(number_query(number), CATALOG) for number in range(3)]
    assert cache.compile(number_query(0), CATALOG) is kept[0]
    cache.compile(number_query(3), CATALOG)
    assert len(cache) == 3
    assert cache.compile(number_query(0), CATALOG) is kept[0]
    assert cache.compile(number_query(2), CATALOG) is kept[2]
    assert cache.compile(number_query(1), CATALOG) is not kept[1]


def test_the_cache_never_grows_over_its_capacity() -> None:
    cache = QueryCache(capacity=10)
    for number in range(50):
        cache.compile(number_query(number), CATALOG)
        assert len(cache) <= 10
    assert len(cache) == 10


def test_threads_that_compile_one_text_at_once_get_one_object() -> None:
    for _ in range(20):
        cache, barrier = QueryCache(), Barrier(8)

        def work(cache: QueryCache[CompiledQuery], barrier: Barrier) -> int:
            barrier.wait()
            return id(cache.compile(ONE, CATALOG))

        with ThreadPoolExecutor(8) as pool:
            jobs = [pool.submit(work, cache, barrier) for _ in range(8)]
            kept = id(cache.compile(ONE, CATALOG))
            assert {job.result() for job in jobs} == {kept}


def test_threads_that_crowd_each_other_out_get_what_they_asked_for() -> None:
    cache = QueryCache(capacity=4)

    def work(worker: int) -> list[str]:
        return [cache.compile(number_query((worker + step) % 6), CATALOG).name for step in range(200)]

    with ThreadPoolExecutor(8) as pool:
        for worker, names in enumerate(pool.map(work, range(8))):
            assert names == [f"names_{(worker + step) % 6}" for step in range(200)]
    assert len(cache) == 4
