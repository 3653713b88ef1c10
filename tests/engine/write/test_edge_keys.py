"""Edges with a key: the same ends, and the same property, are the same edge in every kind of write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph.engine.load import loader
from omnigraph.errors import BadRequest, KeyConflict, LoadRejected, MergeConflicts, TypeCheckError
from omnigraph.graph import Graph
from tests.examples import EXAMPLES

SCHEMA = """
node Person { handle: String @key }
edge Follows: Person -> Person { weight: I32?  @key(src, dst) }
edge Rated: Person -> Person @card(0..4) { day: Date  stars: I32?  @key(src, dst, day) }
edge Met: Person -> Person { at: Date? }
"""
PEOPLE = [{"handle": name} for name in "abc"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """A graph of people without edges; tests write to branches."""
    with omnigraph.init(tmp_path_factory.mktemp("keys") / "g", schema=SCHEMA) as made:
        made.load(PEOPLE, type="Person", mode="append")
        yield made


@pytest.fixture
def branch(graph: Graph) -> str:
    """A branch of its own for each test."""
    name = f"b{len(graph.branches)}"
    graph.branches.create(name)
    return name


def _edges(graph: Graph, branch: str, name: str) -> dict[str, dict[str, Any]]:
    return {row.pop("id"): row for row in graph.snapshot(branch).rows(name).to_pylist()}


def _weights(graph: Graph, branch: str) -> dict[str, int | None]:
    found = _edges(graph, branch, "Follows").values()
    return {row["src"] + row["dst"]: row["weight"] for row in found}


def _mutate(graph: Graph, branch: str, text: str) -> Any:
    return graph.mutate(f"query q() {{ {text} }}", branch=branch)


@pytest.fixture(params=["memory", "pieces"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """A load in memory, and one whose rows wait in pieces."""
    room = 64 << 20 if request.param == "memory" else -1
    with patch.object(loader, "IN_MEMORY", room), patch.object(loader, "PATCH_IN_MEMORY", room):
        yield request.param


def test_loading_edges_again_does_not_double_them(
    graph: Graph, branch: str, tmp_path: Path, way: str
) -> None:
    (tmp_path / "Follows.csv").write_text("from,to,weight\na,b,1\nb,c,2\n")
    for _ in range(3):
        graph.load(tmp_path / "Follows.csv", mode="merge", branch=branch)
    graph.load([{"from": "a", "to": "b", "weight": 7}], type="Follows", mode="merge", branch=branch)
    lines = [{"edge": "Rated", "from": "a", "to": "b", "data": {"day": f"2024-01-0{at}"}} for at in (1, 2)]
    (tmp_path / "rated.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for _ in range(2):
        graph.load(tmp_path / "rated.jsonl", mode="merge", branch=branch)
    assert _edges(graph, branch, "Follows") == {
        '["a","b"]': {"src": "a", "dst": "b", "weight": 7},
        '["b","c"]': {"src": "b", "dst": "c", "weight": 2},
    }
    assert sorted(_edges(graph, branch, "Rated")) == ['["a","b","19723"]', '["a","b","19724"]']


def test_each_mode_looks_at_the_key(graph: Graph, branch: str, way: str) -> None:
    def load(rows: list[dict[str, Any]], mode: Any) -> None:
        graph.load(rows, type="Follows", mode=mode, branch=branch)

    one, other = {"from": "a", "to": "b", "weight": 1}, {"from": "b", "to": "a", "weight": 2}
    load([one, other], "append")
    with pytest.raises(KeyConflict, match=r"edge type 'Follows' already has id '\[\"a\",\"b\"\]'"):
        load([one], "append")
    for mode in ("append", "merge", "overwrite"):
        with pytest.raises(
            LoadRejected, match=r"@unique violation on Follows.\(src, dst\): value '\(a, c\)'"
        ):
            load([{"from": "a", "to": "c"}] * 2, mode)
    with pytest.raises(
        LoadRejected, match="edge Follows explicit id 'x' does not match its canonical @key id"
    ):
        load([{**one, "id": "x"}], "merge")
    load([{"from": "a", "to": "b", "weight": 5}], "patch")
    with pytest.raises(LoadRejected, match="does not exist, and a patch adds no rows"):
        load([{"from": "a", "to": "c", "weight": 5}], "patch")
    with pytest.raises(LoadRejected, match="a patch of 'Follows' requires a column 'to'"):
        load([{"from": "a", "weight": 5}], "patch")
    assert _weights(graph, branch) == {"ab": 5, "ba": 2}
    load([{"from": "c", "to": "a"}], "overwrite")
    assert _weights(graph, branch) == {"ca": None}


def test_statements_replace_create_and_update(graph: Graph, branch: str) -> None:
    _mutate(graph, branch, 'insert Follows { from: "a", to: "b", weight: 1 }')
    done = _mutate(
        graph, branch, 'upsert Follows { from: "a", to: "b" } insert Follows { from: "b", to: "b" }'
    )
    counts = done.tables["edge:Follows"]
    assert (done.affected_edges, counts.inserted, counts.updated) == (2, 1, 1)
    with pytest.raises(KeyConflict):
        _mutate(graph, branch, 'create Follows { from: "a", to: "b" }')
    with pytest.raises(KeyConflict):
        _mutate(graph, branch, 'create Follows { from: "c", to: "b" } create Follows { from: "c", to: "b" }')
    _mutate(graph, branch, 'create Rated { from: "a", to: "b", day: date("2024-01-01"), stars: 3 }')
    _mutate(graph, branch, "update Rated set { stars: 4 } where stars = 3")
    assert _edges(graph, branch, "Rated")['["a","b","19723"]']["stars"] == 4
    with pytest.raises(TypeCheckError, match="cannot update @key property 'day'"):
        _mutate(graph, branch, 'update Rated set { day: date("2024-02-02") } where stars = 4')
    _mutate(graph, branch, 'delete Follows where from = "a"')
    assert _weights(graph, branch) == {"bb": None}


def test_a_block_returns_the_id_that_follows_from_the_key(graph: Graph, branch: str) -> None:
    for weight in (1, 2):
        with graph.write(branch) as tx:
            assert tx.insert_edge("Follows", "a", "b", weight=weight) == '["a","b"]'
            assert tx.insert_edge("Rated", "a", "b", day="2024-01-01") == '["a","b","19723"]'
            assert tx.insert_edge("Met", "a", "b") not in _edges(graph, branch, "Met")
    assert _weights(graph, branch) == {"ab": 2}
    assert len(_edges(graph, branch, "Met")) == 2
    with pytest.raises(BadRequest, match="cannot update @key property 'day'"), graph.write(branch) as tx:
        tx.update("Rated", ("from", "=", "a"), day="2024-01-05")


def test_both_sides_of_a_merge_may_insert_one_edge(graph: Graph, branch: str) -> None:
    theirs = f"{branch}-theirs"
    graph.branches.create(theirs, from_=branch)
    for name, weights in ((branch, {"ab": 1, "bc": 2}), (theirs, {"ab": 1, "bc": 3, "ca": 4})):
        rows = [{"from": ends[0], "to": ends[1], "weight": weight} for ends, weight in weights.items()]
        graph.load(rows, type="Follows", mode="append", branch=name)
    with pytest.raises(MergeConflicts) as conflicts:
        graph.merge(theirs, branch)
    assert [one.entity_id for one in conflicts.value.conflicts] == ['["b","c"]']
    graph.merge(theirs, branch, strategy="ours")
    assert _weights(graph, branch) == {"ab": 1, "bc": 2, "ca": 4}


def test_an_export_comes_back_unchanged(graph: Graph, branch: str, tmp_path: Path) -> None:
    graph.load([{"from": "a", "to": "b", "weight": 1}], type="Follows", mode="append", branch=branch)
    graph.export(tmp_path / "first.jsonl", branch=branch)
    graph.export(tmp_path / "first", format="parquet", branch=branch)
    for source in ("first.jsonl", "first"):
        with omnigraph.init(tmp_path / f"{source}.omni", schema=SCHEMA) as again:
            for mode in ("append", "merge"):
                again.load(tmp_path / source, mode="append" if mode == "append" else "merge")
            again.export(tmp_path / f"{source}-second.jsonl")
        assert (tmp_path / f"{source}-second.jsonl").read_text() == (tmp_path / "first.jsonl").read_text()


def test_a_key_is_declared_when_the_type_is_created(graph: Graph) -> None:
    for old, new in (("edge Met: Person -> Person { at", "edge Met: Person -> Person { @key(src, dst) at"),
                     ("  @key(src, dst) }", "}")):  # fmt: skip
        (step,) = graph.plan_schema(SCHEMA.replace(old, new)).to_json()["steps"]
        assert step["kind"] == "unsupported_change"
        assert "declare another edge type" in step["reason"]


def test_a_schema_from_data_has_the_key_that_is_named() -> None:
    people = pa.table({"handle": ["a", "b"]})
    rated = pa.table({"from": ["a"], "to": ["b"], "day": ["x"]})
    text = omnigraph.infer_schema({"Person": people, "Rated": rated}, keys={"Rated": ["src", "dst", "day"]})
    assert "  day: String\n  @key(src, dst, day)\n" in text
    assert "@key(src" not in omnigraph.infer_schema({"Person": people, "Rated": rated})
    for keys, reason in (
        (["src", "day"], "must name src, dst"),
        (["src", "dst", "no"], "has no property 'no'"),
    ):
        with pytest.raises(BadRequest, match=reason):
            omnigraph.infer_schema({"Person": people, "Rated": rated}, keys={"Rated": keys})


# --- any writes -----------------------------------------------------------------------------------

_ENDS = st.sampled_from(["a", "b", "c"])
_ROWS = st.lists(st.tuples(_ENDS, _ENDS, st.none() | st.integers(0, 3)), min_size=1, max_size=4)
_WRITES = st.lists(
    st.tuples(st.sampled_from(["append", "merge", "patch", "overwrite", "insert", "create"]), _ROWS),
    min_size=1,
    max_size=4,
)

_Edges = dict[str, int | None]


def _model(before: _Edges, kind: str, rows: list[tuple[str, str, int | None]]) -> _Edges | None:
    """What a write leaves; None when it is refused."""
    keys = [source + target for source, target, _ in rows]
    new: _Edges = {source + target: weight for source, target, weight in rows}
    repeated, stored = len(new) < len(keys), bool(before.keys() & new.keys())
    match kind:
        case "insert":
            return {**before, **new}
        case "create" | "append":
            return None if repeated or stored else {**before, **new}
        case "patch":
            return None if repeated or not new.keys() <= before.keys() else {**before, **new}
        case "overwrite":
            return None if repeated else new
    return None if repeated else {**before, **new}


def _write(graph: Graph, branch: str, kind: str, rows: list[tuple[str, str, int | None]]) -> None:
    if kind in ("insert", "create"):
        written = ("null" if weight is None else str(weight) for _, _, weight in rows)
        statements = (
            f'{kind} Follows {{ from: "{source}", to: "{target}", weight: {weight} }}'
            for (source, target, _), weight in zip(rows, written, strict=True)
        )
        _mutate(graph, branch, " ".join(statements))
        return
    data = [{"from": source, "to": target, "weight": weight} for source, target, weight in rows]
    mode: Any = kind
    graph.load(data, type="Follows", mode=mode, branch=branch)


@settings(
    max_examples=max(25, EXAMPLES // 10),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(writes=_WRITES, in_pieces=st.booleans())
def test_any_writes_leave_one_edge_for_each_key(
    graph: Graph, writes: list[tuple[str, list[tuple[str, str, int | None]]]], in_pieces: bool
) -> None:
    name = f"model-{len(graph.branches)}"
    graph.branches.create(name)
    expected: _Edges = {}
    room = -1 if in_pieces else 64 << 20
    with patch.object(loader, "IN_MEMORY", room), patch.object(loader, "PATCH_IN_MEMORY", room):
        for kind, rows in writes:
            after = _model(expected, kind, rows)
            try:
                _write(graph, name, kind, rows)
                assert after is not None, kind
                expected = after
            except (LoadRejected, KeyConflict):
                assert after is None, kind
    assert len(_edges(graph, name, "Follows")) == len(expected)
    assert _weights(graph, name) == expected
    graph.branches.delete(name)
