"""Rows that are made and handed over part by part are those that are made at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import ResourceLimitExceeded
from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query import counted_branches, match, rows
from omnigraph.query.frame import Positions
from omnigraph.query.read_cache import shared_cache
from omnigraph.query.topology.linked_topology import LinkedTopology
from omnigraph.query.topology.walk import hop

SCHEMA = """
node P { k: String @key  n: I32? }
edge E: P -> P { w: I32? }
"""
MATCHES = (
    "$a: P",
    "$a: P  $a.n > 3",
    "$a: P  $a e $b",
    "$a: P  $a $x:e $b  $x.w > 1",
    "$a: P  $a e $b  $b.n < 5",
    "$a: P  $a e $b  $a.n < $b.n",
    "$a: P  $a e $b  $b e $c  $a.n <= $c.n  $c.n > 2",
    "$a: P  $a e{1,2} $b",
    "$a: P  $a e{1,2} $b  $b.n != $a.n",
    "$a: P  $a e $b  $b e $a",
    "$a: P  $b: P  $a.n = $b.n  $a e $c",
    "$a: P  not { $a e $b }",
    "$a: P  optional { $a e $b }",
)
ENDS = ("", "limit 7", "limit 5 offset 9", "limit 100000 offset 3", "order { k desc } limit 9")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[og.Graph]:
    random = np.random.default_rng(11)
    folder = tmp_path_factory.mktemp("parts")
    lines = [f'{{"type":"P","data":{{"k":"p{i}","n":{i % 9}}}}}' for i in range(40)]
    for number, (a, b) in enumerate(random.integers(0, 36, (150, 2)).tolist()):
        data = f'{{"id":"e{number}","w":{number % 4}}}'
        lines.append(f'{{"edge":"E","from":"p{a}","to":"p{b}","data":{data}}}')
    (folder / "in.jsonl").write_text("\n".join(lines))
    with og.init(folder / "g", schema=SCHEMA) as opened:
        opened.load(folder / "in.jsonl", mode="append")
        opened.mutate('query q() { delete P where k = "p7" }')
        yield opened


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    shared_cache().forget()
    monkeypatch.setattr(match, "ROWS_AT_ONCE", 4)
    monkeypatch.setattr(counted_branches, "STEPS_AT_ONCE", 4)
    monkeypatch.setattr(counted_branches, "FEW", 2)
    monkeypatch.setattr(rows, "SMALL", 2)
    yield
    shared_cache().forget()


def text_of(pattern: str, end: str) -> str:
    other = next((var for var in ("$c", "$b") if f" {var}" in pattern and "not" not in pattern), "$a")
    return f"query q() {{ match {{ {pattern} }} return {{ $a.k as k, {other}.k as o, $a.n as n }} {end} }}"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("pattern", MATCHES)
def test_parts_come_to_the_same_rows(
    graph: og.Graph, pattern: str, end: str, request: pytest.FixtureRequest
) -> None:
    shared_cache().forget()
    text = text_of(pattern, end)
    whole = graph.query(text).to_arrow()
    request.getfixturevalue("small_parts")
    parts = graph.query(text).to_arrow()
    streamed = list(graph.stream(text, batch_rows=3))
    assert all(batch.num_rows <= 3 for batch in streamed)
    found = pa.Table.from_batches(streamed, whole.schema)
    if "{1,2}" in pattern and "order" not in end:  # which rows are walked together is not fixed
        if not end:
            assert sorted(parts.to_pylist(), key=str) == sorted(whole.to_pylist(), key=str)
        assert found.to_pylist() == parts.to_pylist()
        assert len(parts) == len(whole)
        return
    assert parts.to_pylist() == whole.to_pylist()
    assert found.to_pylist() == whole.to_pylist()


@pytest.mark.usefixtures("small_parts")
def test_a_result_that_is_too_large_is_refused_before_all_of_it_is_made(graph: og.Graph) -> None:
    text = text_of("$a: P  $a e $b  $b e $c", "")
    every = len(graph.query(text))
    with pytest.raises(ResourceLimitExceeded, match="rows of query 'q'") as caught:
        graph.query(text, max_rows=5)
    assert 5 < caught.value.actual < every


@pytest.mark.usefixtures("small_parts")
def test_a_stream_that_is_not_read_on_makes_no_more_rows(graph: og.Graph) -> None:
    made: list[int] = []

    def counted(
        linked: LinkedTopology, sources: Positions, direction: EdgeDirection
    ) -> tuple[Positions, Positions]:
        found = hop(linked, sources, direction)
        made.append(len(found[0]))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("omnigraph.query.topology.walk.hop", counted)
        with graph.stream(text_of("$a: P  $a e $b", ""), batch_rows=2) as reader:
            reader.read_next_batch()
    assert sum(made) < len(graph.query(text_of("$a: P  $a e $b", "")))


@pytest.mark.usefixtures("small_parts")
def test_a_stream_of_a_large_table_leaves_no_column_in_memory(tmp_path: Path) -> None:
    with og.init(tmp_path / "g", schema=SCHEMA) as graph:
        with graph.write() as tx:
            for number in range(50):
                tx.insert("P", k=f"p{number}", n=number)
        streamed = list(graph.stream("query q() { match { $a: P } return { $a.n as n } }", batch_rows=8))
        assert [n for batch in streamed for n in batch.column("n").to_pylist()] == list(range(50))
        kept = [key for key in shared_cache()._entries if isinstance(key, tuple) and "column" in key]
        assert kept == []


@pytest.mark.parametrize("returned", ["$a.k as a, $b.k as b", "count($b) as n", "$a.k as a, count($c) as n"])
@pytest.mark.parametrize(
    "tests",
    [
        "$a.n = 3  $b.n < 7  $c.n > 1",
        "$a.n = 3  lower($b.k) != $b.k",
        "$b.n = 4  $c.n > 2",
        "$a.n = 1  $b.n < 8  $c.n = 2",
        '$a.k = "p3"  $b.n > 0  $c.n < 6',
    ],
)
def test_nodes_that_are_tested_when_they_are_met_are_those_that_were_looked_for(
    graph: og.Graph, tests: str, returned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"query q() {{ match {{ $a: P  $a e $b  $b e $c  {tests} }} return {{ {returned} }} }}"
    looked_for = sorted(graph.query(text).tuples())
    monkeypatch.setattr(match, "_SMALL", 0)
    monkeypatch.setattr(match, "_VERY_FEW", 1)
    assert sorted(graph.query(text).tuples()) == looked_for
    scans = [step for step in graph.explain(text).steps if step.name == "Scan" and not step.depth]
    assert len(scans) == 1, "one variable is looked for, and the others only on the way"


def test_a_walk_of_very_many_hops_is_as_good_as_one_of_all_hops_there_are(graph: og.Graph) -> None:
    texts = [
        f'query q() {{ match {{ $a: P {{ k: "p3" }}  $a e{{1,{hops}}} $b  $b.n > 1 }} return {{ $b.k }} }}'
        for hops in (40, 1_000_000)
    ]
    few, many = (sorted(graph.query(text).tuples()) for text in texts)
    assert few == many
    assert len(many) > 9
