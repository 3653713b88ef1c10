"""What a load that is refused says: what is meant, what helps, and all of it in an order that is fixed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import omnigraph as og
from omnigraph.engine.rows.violations import MAX_REPORTED_VIOLATIONS
from omnigraph.engine.tasks.runner import Engine, LocalRunner
from omnigraph.errors import KeyConflict, LoadRejected

SCHEMA = """
node P { k: String @key  s: String? @unique }
node Log { msg: String? }
edge K: P -> P
edge Few: P -> P @card(0..1)
edge Two: P -> P @card(2..)
"""
SKIP = "; or skip them with --skip-bad (`skip_bad=True`)"


@pytest.fixture(params=["memory", "files"])
def graph(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[og.Graph]:
    engine = Engine(LocalRunner(), "asked for") if request.param == "files" else None
    chosen = patch("omnigraph.graph.select_engine", lambda *_, **__: engine)
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as made, chosen:
        yield made


def node(k: str, **more: Any) -> dict[str, Any]:
    return {"type": "P", "data": {"k": k, **more}}


def edge(name: str, source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": name, "from": source, "to": target, "data": data}


def load_records(graph: og.Graph, folder: Path, *records: dict[str, Any], mode: Any = "append") -> None:
    at = folder / "in.jsonl"
    at.write_text("".join(json.dumps(record) + "\n" for record in records))
    graph.load(at, mode=mode)


def load_refused(
    graph: og.Graph, folder: Path, *records: dict[str, Any], mode: Any = "append"
) -> LoadRejected:
    with pytest.raises(LoadRejected) as caught:
        load_records(graph, folder, *records, mode=mode)
    return caught.value


def test_each_rule_has_a_remedy(graph: og.Graph, tmp_path: Path) -> None:
    load_records(graph, tmp_path, node("a"), node("b"), edge("K", "a", "b", id="k1"))
    same = load_refused(graph, tmp_path, node("c", s="x"), node("d", s="x"))
    assert same.remedy == "change the value of one of the two, or remove that one" + SKIP
    twice = load_refused(graph, tmp_path, node("c"), node("c"))
    assert twice.remedy == "give each record a key of its own" + SKIP
    loose = load_refused(graph, tmp_path, edge("K", "a", "missing"))
    assert loose.remedy == "add the missing nodes before the edges or together with them" + SKIP
    card = (
        "give each source, stored edges included, as many edges as @card says, or change @card in the schema"
    )
    many = load_refused(graph, tmp_path, edge("Few", "a", "a"), edge("Few", "a", "b"))
    assert many.remedy == card + SKIP
    # Leaving records out does not help any more from here on, so it is not said.
    few = load_refused(graph, tmp_path, edge("Two", "a", "b"))
    assert few.remedy == card
    stranded = load_refused(graph, tmp_path, node("b"), mode="overwrite")
    assert stranded.remedy == (
        "keep these nodes, remove their edges first, or replace the edges together with the nodes"
    )


def test_what_is_about_no_record_says_what_it_is_about(graph: og.Graph, tmp_path: Path) -> None:
    load_records(graph, tmp_path, node("a"), node("b"), edge("K", "a", "b", id="k1"))
    stranded = load_refused(graph, tmp_path, node("b"), mode="overwrite")
    assert str(stranded) == "stored edge:K 'k1': src 'a' not found in P"
    few = load_refused(graph, tmp_path, edge("Two", "a", "b"))
    assert str(few) == "@card violation on edge Two: source 'a' has 1 edges (min 2)"
    assert [one.entity for one in few.violations] == ["node:P 'a'"]


def test_stored_rows_are_reported_by_id(graph: og.Graph, tmp_path: Path) -> None:
    numbers = [7 * place % 150 for place in range(150)]
    nodes = [node(f"n{number:03}") for number in numbers]
    load_records(graph, tmp_path, *nodes, *(edge("K", f"n{at:03}", "n000", id=f"k{at:03}") for at in numbers))
    stranded = load_refused(graph, tmp_path, node("n000"), mode="overwrite")
    assert [one.entity for one in stranded.violations] == [
        f"edge:K 'k{number:03}'" for number in range(1, MAX_REPORTED_VIOLATIONS + 1)
    ]


def test_an_id_that_is_twice_in_the_input_is_not_to_be_replaced(graph: og.Graph, tmp_path: Path) -> None:
    log = {"type": "Log", "data": {"id": "l1"}}
    with pytest.raises(KeyConflict) as again:
        load_records(graph, tmp_path, log, log)
    assert again.value.remedy == (
        "give each record an id of its own, or use merge, which keeps the last of those with one id"
    )
    load_records(graph, tmp_path, log)
    with pytest.raises(KeyConflict) as stored:
        load_records(graph, tmp_path, log)
    assert stored.value.remedy == "use merge to replace stored rows"


def test_overwriting_an_empty_type_with_nothing_leaves_no_commit(graph: og.Graph, tmp_path: Path) -> None:
    assert graph.load([], type="Log", mode="overwrite").commit is None
    load_records(graph, tmp_path, {"type": "Log", "data": {"msg": "x"}})
    assert graph.load([], type="Log", mode="overwrite").commit is not None
    assert graph.load([], type="Log", mode="overwrite").commit is None
