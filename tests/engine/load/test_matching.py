"""Stored rows that a large load replaces are found by tasks, and nothing is looked up at the door."""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.load import replaced_rows
from omnigraph.engine.load.loader import load
from omnigraph.engine.load.request import LoadRequest
from omnigraph.engine.load.sources import plan
from omnigraph.engine.tasks.runner import Engine, LocalRunner
from omnigraph.engine.write.transaction import Author
from omnigraph.graph import Graph
from omnigraph.storage import pieces

SCHEMA = "node Person { name: String @key  age: I32?  photo: Blob? }"
STORED = [f"p{number}" for number in range(20)]


@pytest.fixture(scope="module")
def stored_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("matching") / "graph"
    with omnigraph.init(at, schema=SCHEMA) as graph:
        for start in (0, 10):
            graph.load(_file(at.parent, STORED[start : start + 10], 1), mode="append")
        graph.mutate('query q() { delete Person where name = "p3" }')
        graph.branches.create("work")
    return at


@pytest.fixture
def graph(tmp_path: Path, stored_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Graph]:
    """A graph in two fragments; every load has items of a few rows, and is large."""
    for name in ("SMALLEST", "LARGEST"):
        monkeypatch.setattr(plan, name, 400)
    monkeypatch.setattr(replaced_rows, "WORTH", 1)
    shutil.copytree(stored_path, tmp_path / "graph")
    with omnigraph.open(tmp_path / "graph") as opened:
        yield opened


def _file(folder: Path, names: list[str], age: int) -> Path:
    at = folder / "rows.jsonl"
    photo = f"base64:{b64encode(bytes([age])).decode()}"
    lines = ({"type": "Person", "data": {"name": name, "age": age, "photo": photo}} for name in names)
    at.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return at


def _load(graph: Graph, file: Path, branch: str) -> None:
    engine = Engine(LocalRunner(), "asked for")
    load(graph._opened, LoadRequest((file,), Mode.MERGE), Author(branch), engine=lambda _: engine)


def _rows(graph: OpenGraph, snapshot: Any) -> dict[str, tuple[int, int, bytes]]:
    table = open_table(graph, snapshot._pinned, "node:Person")
    found = table.scan(["id", "_rowid", "age", "photo"], blob_bytes=True).to_pylist()
    return {row["id"]: (row["_rowid"], row["age"], row["photo"]) for row in found}


@pytest.mark.parametrize("branch", ["main", "work"])
def test_replaced_rows_keep_their_row_ids(
    graph: Graph, tmp_path: Path, branch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pieces of which some rows, all rows and none replace stored ones; one row was deleted before.
    names = ["new0", "p1", "p3", "new1", "p2", "p19", *STORED[4:16], *(f"more{n}" for n in range(9)), "p0"]
    file, before = _file(tmp_path, names, 2), _rows(graph._opened, graph.snapshot(branch))
    monkeypatch.setattr(pieces, "find_keys", None)
    _load(graph, file, branch)
    after = _rows(graph._opened, graph.snapshot(branch))
    assert after.keys() == {*STORED, *names}
    assert {name: row[1:] for name, row in after.items()} == {
        name: (2, b"\x02") if name in names else (1, b"\x01") for name in after
    }
    assert {name: after[name][0] for name in before} == {name: row[0] for name, row in before.items()}
    assert len({row[0] for row in after.values()}) == len(after)


def test_few_rows_are_looked_up_at_the_door(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replaced_rows, "WORTH", 100)
    before = _rows(graph._opened, graph.snapshot())
    _load(graph, _file(tmp_path, ["p1", "new"], 2), "main")
    after = _rows(graph._opened, graph.snapshot())
    assert (after["p1"], after["new"][1]) == ((before["p1"][0], 2, b"\x02"), 2)


def test_what_was_found_in_another_version_is_looked_up_again(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matched = replaced_rows.match_pieces

    def of_another_version(*how: Any) -> Any:
        found = matched(*how)
        assert found.matched is not None
        nothing = pieces.PieceMatches(found.matched.version + 1, ())
        return pieces.Pieces(found.place, found.schema, found.pieces, nothing)

    monkeypatch.setattr("omnigraph.engine.load.large_load.match_pieces", of_another_version)
    before = _rows(graph._opened, graph.snapshot())
    _load(graph, _file(tmp_path, ["p1", "new"], 2), "main")
    assert _rows(graph._opened, graph.snapshot())["p1"] == (before["p1"][0], 2, b"\x02")


def test_a_graph_in_the_place_of_another_is_read_again(tmp_path: Path) -> None:
    """Its tables have the versions and places that those of the other one had."""
    for names in (["ann", "bob"], ["cid", "dee"]):
        shutil.rmtree(tmp_path / "graph", ignore_errors=True)
        with omnigraph.init(tmp_path / "graph", schema=SCHEMA) as graph:
            graph.load(_file(tmp_path, names, 1), mode="append")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(replaced_rows, "WORTH", 1)
                _load(graph, _file(tmp_path, names[:1], 2), "main")
            assert {name: row[1] for name, row in _rows(graph._opened, graph.snapshot()).items()} == dict(
                zip(names, (2, 1), strict=True)
            )
