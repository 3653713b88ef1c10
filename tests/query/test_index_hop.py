"""Hops and look-ups through indexes on disk find what the adjacency in memory finds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

import omnigraph as og
from omnigraph.query import index_hop, rows, scan
from omnigraph.query.read_cache import shared_cache
from omnigraph.query.topology import saved_topology
from omnigraph.query.topology.file_blocks import AdjacencyReader
from omnigraph.query.topology.topology import Topology

SCHEMA = """
node P { k: String @key  n: I32? @index }
node T { k: String @key }
edge E: P -> P { w: I32? }
edge In: P -> T
"""
QUERIES = {
    "out": "$a: P { k: $k }  $a e $b",
    "in": "$a: P { k: $k }  $b e $a",
    "both": "$a: P { k: $k }  $a <e> $b",
    "edges": "$a: P { k: $k }  $a $e:e $b  $e.w > 2",
    "edges of some": "$a: P { k: $k }  $a $e:e $b  $b.n > 3",
    "two hops": "$a: P { k: $k }  $a e $c  $c e $b",
    "other type": "$a: P { k: $k }  $a in $t  $b in $t",
    "filtered": "$a: P  $a.n = 7  $a e $b  $b.n < 10",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parallel edges, self-loops and a table that was changed after its indexes were built."""
    random = np.random.default_rng(7)
    at = tmp_path_factory.mktemp("cold") / "g"
    lines = [f'{{"type":"P","data":{{"k":"p{i}","n":{i % 12}}}}}' for i in range(60)]
    lines += [f'{{"type":"T","data":{{"k":"t{i}"}}}}' for i in range(5)]
    for i, (a, b) in enumerate(random.integers(0, 60, (400, 2)).tolist()):
        lines.append(f'{{"edge":"E","from":"p{a}","to":"p{b}","data":{{"id":"e{i}","w":{i % 5}}}}}')
    lines += [f'{{"edge":"In","from":"p{i}","to":"t{i % 5}","data":{{"id":"i{i}"}}}}' for i in range(60)]
    data = at.parent / "data.jsonl"
    data.write_text("\n".join(lines))
    with og.init(at, schema=SCHEMA) as graph:
        graph.load(data, mode="append")
        graph.ensure_indices()
        graph.mutate('query q() { delete P where k = "p5" }')
        graph.mutate('query q() { insert E { from: "p1", to: "p1", w: 4 } }')
    return at


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(index_hop, "LARGE", 1)
    monkeypatch.setattr(index_hop, "_SORT", 0.25)
    monkeypatch.setattr(scan, "LARGE", 1)
    monkeypatch.setattr(rows, "SMALL", 0)
    monkeypatch.setattr(rows, "COLD_SHARE", 1)
    shared_cache().forget()
    yield
    shared_cache().forget()


def answer(place: Path, match: str) -> list[Mapping[str, object]]:
    parameter = "$k: String" if "$k" in match else ""
    edge = ", $e.w as w" if "$e:" in match else ""
    wanted = f"return {{ $a.k as a, $b.k as b{edge} }} order {{ a, b }}"
    text = f"query q({parameter}) {{ match {{ {match} }} {wanted} }}"
    found: list[Mapping[str, object]] = []
    with og.open(place) as graph:
        for k in ("p1", "p2", "p17", "p5", "missing"):
            found += graph.query(text, {"k": k} if parameter else {}).rows()
    return found


@pytest.mark.parametrize("name", QUERIES)
def test_a_cold_walk_gives_the_same_rows(place: Path, name: str, request: pytest.FixtureRequest) -> None:
    shared_cache().forget()
    warm = answer(place, QUERIES[name])
    request.getfixturevalue("everything_is_large")
    assert answer(place, QUERIES[name]) == warm
    assert warm


WALKS = {
    "three hops": "$a: P { k: $k }  $a e{1,3} $b",
    "at two hops": "$a: P { k: $k }  $a e{2,2} $b",
    "back": "$a: P { k: $k }  $b e{1,2} $a",
}


@pytest.fixture(scope="module")
def sorted_place(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same graph with files of its sorted edges."""
    at = tmp_path_factory.mktemp("sorted") / "g"
    shutil.copytree(place, at)
    shared_cache().forget()
    with pytest.MonkeyPatch.context() as patch, og.open(at) as graph:
        patch.setattr(saved_topology, "WORTH_SAVING", 1)
        for edge in ("e", "in"):
            graph.query(f"query q() {{ match {{ $a: P  $a {edge} $b }} return {{ count($a) as n }} }}")
    return at


@pytest.mark.parametrize("name", [*QUERIES, *WALKS])
def test_a_walk_from_few_nodes_finds_in_the_file_of_sorted_edges_what_is_in_memory(
    sorted_place: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    match = {**QUERIES, **WALKS}[name]
    shared_cache().forget()
    warm = answer(sorted_place, match)
    assert warm
    monkeypatch.setattr(saved_topology, "WORTH_SAVING", 1)
    monkeypatch.setattr(AdjacencyReader, "should_read_all", False)
    if name != "both":  # which is sorted from the others
        refuse = "more was read than few neighbours"
        monkeypatch.setattr(Topology, "_make_adjacency", lambda *_: pytest.fail(refuse))
    monkeypatch.setattr("omnigraph.query.sources.build_topology", lambda *_: pytest.fail("edges were sorted"))
    shared_cache().forget()
    assert answer(sorted_place, match) == warm
    shared_cache().forget()


@pytest.mark.usefixtures("everything_is_large")
def test_few_walks_go_through_indexes_and_more_build_the_adjacency(place: Path) -> None:
    text = 'query q() { match { $a: P { k: "p1" }  $a e $b } return { count($b.n) as n } }'
    with og.open(place) as graph:
        plans = [graph.explain(text).text() for _ in range(30)]
    assert "indexes of its ends" in plans[0]
    assert "adjacency in memory" in plans[-1]


def test_every_look_up_is_reported_with_its_rows_where_it_was_done(place: Path) -> None:
    """Also those that only served to find out where to begin."""
    shared_cache().forget()
    text = "query q() { match { $a: P { n: 7 }  $a e $b  $b.n < 10 } return { $a.k as a, $b.k as b } }"
    with og.open(place) as graph:
        plan = graph.explain(text)
        alone = [
            len(graph.query(f"query q() {{ match {{ $p: P  $p.n {test} }} return {{ $p.k as k }} }}"))
            for test in ("= 7", "< 10")
        ]
    scans = [(step.detail, step.rows) for step in plan.steps if step.name == "Scan"]
    assert scans == [("$a: node:P", alone[0]), ("$b: node:P", alone[1])]
    assert sum(step.milliseconds for step in plan.steps) <= plan.milliseconds


def test_explain_tells_where_the_adjacency_came_from(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.query.topology.saved_topology.WORTH_SAVING", 1)
    shared_cache().forget()
    text = "query q() { match { $a: P  $a e $b } return { $a.k as a, $b.k as b } }"
    with og.open(place) as graph:
        strategies = [
            step.how for _ in range(2) for step in graph.explain(text).steps if step.name == "Expand"
        ]
        shared_cache().forget()
        strategies += [step.how for step in graph.explain(text).steps if step.name == "Expand"]
    shared_cache().forget()
    assert strategies == ["edges sorted first", "adjacency in memory", "adjacency read from its file"]
