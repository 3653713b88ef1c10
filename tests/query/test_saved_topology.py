"""Topologies on disk: a restart finds them, and nothing depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.query.read_cache import ReadCache, shared_cache
from omnigraph.query.topology import saved_topology

SCHEMA = "node P { k: String @key  t: String? }\nedge E: P -> P"
QUERY = "query q() { match { $a: P  $a e $b } return { $a.k as a, $b.k as b } order { a, b } }"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(saved_topology, "WORTH_SAVING", 1)
    shared_cache().forget()
    with og.init(tmp_path / "g", schema=SCHEMA) as graph:
        add(graph, "a", "b")
        add(graph, "b", "c")
    yield tmp_path / "g"
    shared_cache().forget()


def add(graph: og.Graph, source: str, target: str) -> None:
    with graph.write() as tx:
        tx.insert("P", k=source)
        tx.insert("P", k=target)
        tx.insert_edge("E", source, target)


def pairs(place: Path, *, read_only: bool = False) -> list[str]:
    """What a process that just started reads."""
    shared_cache().forget()
    with og.open(place, read_only=read_only) as graph:
        return [f"{row['a']}{row['b']}" for row in graph.query(QUERY).rows()]


def files(place: Path) -> list[Path]:
    return sorted((place / "__derived").glob("*.topology"))


def test_the_next_process_reads_what_the_first_one_built(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pairs(place) == ["ab", "bc"]
    (kept,) = files(place)
    built: list[int] = []
    monkeypatch.setattr("omnigraph.query.sources.build_topology", lambda *_: built.append(1))
    assert pairs(place) == ["ab", "bc"]
    assert built == []
    assert kept.suffix == ".topology"


def _shift_arrays(whole: bytes) -> bytes:
    """The file with every array damaged and its head as it was."""
    begin = whole.index(b"}}}") + 3
    return whole[:begin] + bytes(byte ^ 1 for byte in whole[begin:])


def test_a_deleted_or_damaged_file_is_recreated(place: Path) -> None:
    pairs(place)
    (kept,) = files(place)
    whole = kept.read_bytes()
    for damage in (b"", whole[:100], whole[:40] + b"\xff" + whole[41:], _shift_arrays(whole), b"nonsense"):
        kept.write_bytes(damage)
        assert pairs(place) == ["ab", "bc"]
        assert kept.read_bytes() == whole
    kept.unlink()
    assert pairs(place) == ["ab", "bc"]


def test_a_file_of_an_older_version_is_not_used(place: Path) -> None:
    pairs(place)
    with og.open(place) as graph:
        add(graph, "c", "a")
    assert pairs(place) == ["ab", "bc", "ca"]
    assert len(files(place)) == 1


def test_a_file_of_another_graph_in_the_same_place_is_not_used(place: Path, tmp_path: Path) -> None:
    pairs(place)
    (kept,) = files(place)
    other = tmp_path / "other"
    with og.init(other, schema=SCHEMA) as graph:
        add(graph, "x", "y")
        add(graph, "y", "z")
    (other / "__derived").mkdir()
    (other / "__derived" / kept.name).write_bytes(kept.read_bytes())
    assert pairs(other) == ["xy", "yz"]


def test_reading_only_writes_nothing(place: Path) -> None:
    assert pairs(place, read_only=True) == ["ab", "bc"]
    assert files(place) == []


def test_optimize_prepares_it_for_processes_that_only_read(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with og.open(place) as graph:
        graph.query(QUERY)
        add(graph, "c", "d")
        graph.optimize()
    built: list[int] = []
    monkeypatch.setattr("omnigraph.query.sources.build_topology", lambda *_: built.append(1))
    assert pairs(place, read_only=True) == ["ab", "bc", "cd"]
    assert built == []


@pytest.mark.parametrize("read_only", [True, False])
def test_rows_are_streamed_and_explained_from_a_damaged_file_as_from_a_whole_one(
    place: Path, read_only: bool
) -> None:
    pairs(place)
    (kept,) = files(place)
    damaged = _shift_arrays(kept.read_bytes())
    for ask in (og.Graph.query, og.Graph.stream, og.Graph.explain):
        kept.write_bytes(damaged)
        shared_cache().forget()
        with og.open(place, read_only=read_only) as graph:
            found = ask(graph, QUERY)
            if isinstance(found, og.Result):
                assert len(found) == 2
            elif isinstance(found, pa.RecordBatchReader):
                assert found.read_all().num_rows == 2
            else:
                assert [step.name for step in found.steps] == ["Scan", "Expand", "Order", "Project"]


def test_a_damaged_file_that_another_read_has_put_into_memory_again_is_not_used(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs(place)
    (kept,) = files(place)
    kept.write_bytes(_shift_arrays(kept.read_bytes()))
    shared_cache().forget()
    # As it is when a read that has the file open, too, ends between the two tries of this one.
    monkeypatch.setattr(ReadCache, "forget_graph", lambda *_: None)
    with og.open(place) as graph:
        assert len(graph.query(QUERY)) == 2
        add(graph, "c", "a")
        assert len(graph.query(QUERY)) == 3


def test_optimize_replaces_a_damaged_file(place: Path) -> None:
    with og.open(place) as graph:
        graph.optimize()
    (kept,) = files(place)
    whole = kept.read_bytes()
    kept.write_bytes(_shift_arrays(whole))
    with og.open(place) as graph:
        graph.optimize()
    assert kept.read_bytes() == whole


def test_nodes_that_came_or_went_after_the_file_was_written_are_seen(place: Path) -> None:
    pairs(place)
    (kept,) = files(place)
    written = kept.read_bytes()
    with og.open(place) as graph:
        graph.mutate('query q() { insert P { k: "0" } }')
    assert pairs(place) == ["ab", "bc"]
    with og.open(place) as graph:
        graph.mutate('query q() { delete P where k = "0" }')
        graph.mutate('query q() { update P set { t: "new" } where k = "a" }')
    assert pairs(place) == ["ab", "bc"]
    assert kept.read_bytes() == written, "the edges are the same, and so is their file"


def test_the_file_of_unchanged_tables_is_used_without_reading_any_id(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs(place)
    monkeypatch.setattr(
        "omnigraph.query.sources._match_positions", lambda *_: pytest.fail("ids were looked up")
    )
    assert pairs(place) == ["ab", "bc"]


@pytest.mark.parametrize(
    ("type_", "keys"), [("String", ["b", "a", ""]), ("I64", [-7, 2**62, 5]), ("U64", [2**40, 7, 0])]
)
def test_a_first_walk_by_key_reads_no_row_where_the_file_tells_everything(
    place: Path, tmp_path: Path, type_: str, keys: list[object]
) -> None:
    schema = f"node P {{ k: {type_} @key  t: String? }}\nedge E: P -> P"
    text = f"query q($k: {type_}) {{ match {{ $a: P {{ k: $k }}  $a e{{1,2}} $b }} return {{ $b.k as b }} }}"
    with og.init(tmp_path / "keyed", schema=schema) as graph:
        with graph.write() as tx:
            for key in keys:
                tx.insert("P", k=key)
        with graph.write() as tx:
            tx.insert_edge("E", str(keys[0]), str(keys[1]))
            tx.insert_edge("E", str(keys[1]), str(keys[2]))
        graph.query(text, {"k": keys[0]})
    shared_cache().forget()
    with og.open(tmp_path / "keyed") as graph:
        graph.query('query q() { match { $a: P { t: "missing" } } return { $a.t as t } }')
        shared_cache().forget()
        calls: list[str] = []
        graph._opened.root.tables.access.observe = lambda operation, _: calls.append(operation)
        assert {row["b"] for row in graph.query(text, {"k": keys[0]}).rows()} == set(keys[1:])
        assert graph.query(text, {"k": keys[2]}).rows() == []
        assert not {"scan", "take"} & set(calls), calls
        graph._opened.root.tables.access.observe = None
        for _ in range(20):  # asked often enough, the keys of all nodes are kept
            assert {row["b"] for row in graph.query(text, {"k": keys[0]}).rows()} == set(keys[1:])
    with og.open(tmp_path / "keyed") as graph:
        graph.mutate(f'query q($k: {type_}) {{ update P set {{ t: "new" }} where k = $k }}', {"k": keys[1]})
        assert {row["b"] for row in graph.query(text, {"k": keys[0]}).rows()} == set(keys[1:])
    shared_cache().forget()
    with og.open(tmp_path / "keyed") as graph:
        assert {row["b"] for row in graph.query(text, {"k": keys[0]}).rows()} == set(keys[1:])


def test_an_optional_node_that_is_not_there_has_no_key(place: Path) -> None:
    text = """query q() { match { $a: P  optional { $a e $b } }
        return { $a.k as a, $b.k as b } order { a } }"""
    expected = [("a", "b"), ("b", "c"), ("c", None)]
    for _ in range(2):
        shared_cache().forget()
        with og.open(place) as graph:
            assert graph.query(text).tuples() == expected
