"""Topologies on disk: a restart finds them, and nothing depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.query.memory import shared_memory
from omnigraph.query.topology import saved

SCHEMA = "node P { k: String @key  t: String? }\nedge E: P -> P"
QUERY = "query q() { match { $a: P  $a e $b } return { $a.k as a, $b.k as b } order { a, b } }"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(saved, "WORTH_SAVING", 1)
    shared_memory().forget()
    with og.init(tmp_path / "g", schema=SCHEMA) as graph:
        add(graph, "a", "b")
        add(graph, "b", "c")
    yield tmp_path / "g"
    shared_memory().forget()


def add(graph: og.Graph, source: str, target: str) -> None:
    with graph.write() as tx:
        tx.insert("P", k=source)
        tx.insert("P", k=target)
        tx.insert_edge("E", source, target)


def pairs(place: Path, *, read_only: bool = False) -> list[str]:
    """What a process that just started reads."""
    shared_memory().forget()
    with og.open(place, read_only=read_only) as graph:
        return [f"{row['a']}{row['b']}" for row in graph.query(QUERY).rows()]


def files(place: Path) -> list[Path]:
    return sorted((place / "__derived").glob("*")) if (place / "__derived").exists() else []


def test_the_next_process_reads_what_the_first_one_built(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pairs(place) == ["ab", "bc"]
    (kept,) = files(place)
    built: list[int] = []
    monkeypatch.setattr("omnigraph.query.sources.build", lambda *_: built.append(1))
    assert pairs(place) == ["ab", "bc"]
    assert built == []
    assert kept.suffix == ".topology"


def _shifted(whole: bytes) -> bytes:
    """The file with every array damaged and its head as it was."""
    begin = whole.index(b"}}}") + 3
    return whole[:begin] + bytes(byte ^ 1 for byte in whole[begin:])


def test_a_deleted_or_damaged_file_is_made_anew(place: Path) -> None:
    pairs(place)
    (kept,) = files(place)
    whole = kept.read_bytes()
    for damage in (b"", whole[:100], whole[:40] + b"\xff" + whole[41:], _shifted(whole), b"nonsense"):
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
    monkeypatch.setattr("omnigraph.query.sources.build", lambda *_: built.append(1))
    assert pairs(place, read_only=True) == ["ab", "bc", "cd"]
    assert built == []


@pytest.mark.parametrize("read_only", [True, False])
def test_rows_are_streamed_and_explained_from_a_damaged_file_as_from_a_whole_one(
    place: Path, read_only: bool
) -> None:
    pairs(place)
    (kept,) = files(place)
    damaged = _shifted(kept.read_bytes())
    for ask in (og.Graph.query, og.Graph.stream, og.Graph.explain):
        kept.write_bytes(damaged)
        shared_memory().forget()
        with og.open(place, read_only=read_only) as graph:
            found = ask(graph, QUERY)
            if isinstance(found, og.Result):
                assert len(found) == 2
            elif isinstance(found, pa.RecordBatchReader):
                assert found.read_all().num_rows == 2
            else:
                assert [step.name for step in found.steps] == ["Scan", "Expand", "Order", "Project"]


def test_optimize_replaces_a_damaged_file(place: Path) -> None:
    with og.open(place) as graph:
        graph.optimize()
    (kept,) = files(place)
    whole = kept.read_bytes()
    kept.write_bytes(_shifted(whole))
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
    monkeypatch.setattr("omnigraph.query.sources._places", lambda *_: pytest.fail("ids were looked up"))
    assert pairs(place) == ["ab", "bc"]
