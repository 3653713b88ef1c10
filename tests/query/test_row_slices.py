"""Long texts that very many rows lead to are looked at some rows at a time, with the same answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.graph import Graph
from omnigraph.query import context
from omnigraph.query.rows import Rows

SCHEMA = """
node P { k: String @key  t: String?  n: I64  words: [String]?  numbers: [I64]? }
node Q { k: String @key }
node Missing { k: String @key }
edge E: P -> P
edge F: P -> Q
edge G: P -> Missing
"""
NODES = 60
LONG = 20_000
TWO_HOPS = "$a: P  $a e $b  $b e $c"
MOST = 30 * LONG


def make_lists(at: int) -> dict[str, Any]:
    """One node has lists as long as a text, and the others have short ones or none."""
    if at == 3:
        return {"words": ["x" * 10] * (LONG // 10), "numbers": [1] * (LONG // 8)}
    return {"words": ["x"], "numbers": []} if at % 2 else {}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """Everybody is joined to everybody, so that every text is in thousands of rows."""
    with og.init(tmp_path_factory.mktemp("long") / "g", schema=SCHEMA) as graph:
        with graph.write() as tx:
            for at in range(NODES):
                tx.insert(
                    "P", k=f"p{at:02}", n=at, t=None if at == 7 else f"{at % 7}{'x' * LONG}", **make_lists(at)
                )
                tx.insert("Q", k=f"q{at}")
            for at in range(NODES):
                for other in range(NODES):
                    tx.insert_edge("E", f"p{at:02}", f"p{other:02}")
        yield graph


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of values that are taken at a time, where little is allowed."""
    taken: list[int] = []
    real = Rows.take

    def noted(self: Rows, *arguments: Any, **options: Any) -> pa.Array:
        found = real(self, *arguments, **options)
        taken.append(found.nbytes)
        return found

    monkeypatch.setattr(Rows, "take", noted)
    monkeypatch.setattr(context, "MOST_BYTES", MOST)
    return taken


def test_rows_are_ordered_by_texts_that_would_not_fit_an_array(graph: Graph) -> None:
    """216,000 rows with texts of 20,000 letters are 4 GB; Arrow holds 2 GiB."""
    text = f"query q() {{ match {{ {TWO_HOPS} }} return {{ $b.k as b }} order {{ $b.t, $b.n desc }} limit 1 "
    assert graph.query(f"{text} }}").tuples() == [("p07",)]
    assert graph.query(f"{text} offset {NODES * NODES} }}").tuples() == [("p56",)]
    last = text.replace("$b.t,", "$b.t desc,")
    assert graph.query(f"{last} }}").tuples() == [("p55",)]


def test_a_filter_looks_at_some_rows_at_a_time(graph: Graph, sizes: list[int]) -> None:
    text = f"query q() {{ match {{ {TWO_HOPS}  $a.n < 4  $a.t = $c.t }} return {{ count($b.k) as n }} }}"
    wanted = sum(a % 7 == c % 7 for a in range(4) for c in range(NODES) if c != 7)
    assert graph.query(text).scalar() == NODES * wanted
    assert max(sizes) <= MOST + 2 * LONG
    assert len(sizes) > 20


def test_long_texts_are_returned_some_rows_at_a_time(graph: Graph, sizes: list[int]) -> None:
    text = (
        "query q() { match { $a: P  $a.n < 9  $a e $b } return { $b.t as t, $a.n as n } order { n, $b.n } }"
    )
    found = graph.query(text)
    assert [value and value[0] for value in found.to_arrow().column("t").to_pylist()] == [
        None if at == 7 else str(at % 7) for _ in range(9) for at in range(NODES)
    ]
    assert len(found.to_arrow().column("t").chunks) > 5
    assert max(sizes) <= MOST + LONG
    assert [step.name for step in graph.explain(text).steps].count("Project") == 1


@pytest.mark.parametrize("name", ["words", "numbers"])
def test_few_long_lists_among_short_ones_count_for_what_they_are(
    graph: Graph, sizes: list[int], name: str
) -> None:
    text = f"query q() {{ match {{ {TWO_HOPS}  $a.n < 9  $b.n = 3 }} return {{ $b.{name} as l }} }}"
    found = graph.query(text).table
    assert found.num_rows == 9 * NODES
    assert found["l"][0].as_py() == found["l"][-1].as_py() == make_lists(3)[name]
    assert max(sizes) <= MOST + 4 * LONG


def test_a_filter_on_what_may_be_missing_is_cut_as_well(graph: Graph, sizes: list[int]) -> None:
    block = "optional { $a.n < 1  $a f $q }"
    clauses = f"{TWO_HOPS}  $a.n < 2  {block}  $q is null  $b.t != $c.t"
    text = f"query q() {{ match {{ {clauses} }} return {{ count($a.t) as n }} }}"
    wanted = sum(b % 7 != c % 7 for b in range(NODES) for c in range(NODES) if 7 not in (b, c))
    assert graph.query(text).scalar() == 2 * wanted


def test_equal_rows_go_by_ids_however_many_there_are(graph: Graph) -> None:
    columns = "$a.k as a, $b.k as b, $c.k as c"
    text = f"query q() {{ match {{ {TWO_HOPS}  $a.n < 2 }} return {{ {columns} }} order {{ $c.n desc }} }}"
    rows = graph.query(text).tuples()
    assert rows == sorted(rows, key=lambda row: (-int(str(row[2])[1:]), row[0], row[1]))
    assert len(rows) == 2 * NODES * NODES


def test_equal_rows_may_have_a_variable_of_a_type_without_nodes(graph: Graph) -> None:
    clauses = "$a: P  $a e $b  optional { $a g $z }"
    text = f"query q() {{ match {{ {clauses} }} return {{ $a.n as a, $b.n as b }} order {{ $a.n }} }}"
    rows = graph.query(text).tuples()
    assert rows == [(a, b) for a in range(NODES) for b in range(NODES)]
