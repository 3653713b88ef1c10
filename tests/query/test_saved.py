"""Topologies on disk: a restart finds them, and nothing depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.query.memory import shared_memory
from omnigraph.query.topology import saved

SCHEMA = "node P { k: String @key }\nedge E: P -> P"
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


def test_a_deleted_or_damaged_file_is_made_anew(place: Path) -> None:
    pairs(place)
    (kept,) = files(place)
    whole = kept.read_bytes()
    for damage in (b"", whole[:100], whole[:-1] + b"\xff", b"nonsense"):
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
