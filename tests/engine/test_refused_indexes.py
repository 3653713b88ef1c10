"""An index that cannot be built from the values of its column is left out; everything else is done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engine.upkeep.declared_indexes import VECTOR_ROWS
from omnigraph.storage import indexes
from omnigraph.storage.failures import TableFailureKind, table_failure
from omnigraph.storage.index_parts import BTREE, IndexPart, build_in_process
from omnigraph.storage.tables import Table
from tests.engine.command_line import run_command

SCHEMA = """
node Doc { slug: String @key  text: String? @index  place: Vector(2)? @index }
node Log { slug: String @key  number: I64? @index }
"""
REASON = "a vector has the length 1e+20, and an index takes lengths up to 9e+18"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A graph without indexes, of whose vectors one is so long that its distances overflow 32 bits."""
    monkeypatch.setenv("OMNIGRAPH_AUTO_UPKEEP", "off")
    graph = og.init(tmp_path / "g", schema=SCHEMA)
    add_docs(graph, range(VECTOR_ROWS + 1), long=17)
    for number in range(3):
        graph.load([{"slug": f"l{number}", "number": number}], mode="append", type="Log")
    return tmp_path / "g"


def add_docs(graph: og.Graph, numbers: range, *, long: int | None = None) -> None:
    rows = [
        {"slug": f"d{one}", "text": "walking", "place": [1e20 if one == long else float(one), 1.0]}
        for one in numbers
    ]
    graph.load(rows, mode="append", type="Doc")


def stored_indexes(graph: og.Graph, key: str) -> set[str]:
    opened = graph._opened
    entry = opened.load("main").state.entries()[key]
    table = opened.root.tables.open(opened.root.layout.table(entry.path), entry.version, branch=entry.owner)
    return {name for name, one in indexes.read_coverage(table).items() if one.is_complete}


def test_optimize_leaves_out_the_index_and_does_everything_else(place: Path) -> None:
    graph = og.open(place)
    done = graph.optimize()
    docs, log = (one for one in done.tables if one.key.startswith("node:"))
    assert done.commit is not None
    assert docs.indexes == ("id", "text")
    assert [(one.column, one.reason) for one in docs.refused] == [("place", REASON)]
    assert (log.after.fragments, log.refused) == (1, ())
    assert stored_indexes(graph, "node:Doc") == {"id_idx", "text_idx"}
    assert stored_indexes(graph, "node:Log") == {"id_idx", "number_idx"}
    again = graph.optimize()
    assert again.commit is None
    assert [one.refused for one in again.tables if one.key == "node:Doc"] == [docs.refused]


def test_ensure_indices_leaves_out_the_index_and_builds_the_others(place: Path) -> None:
    graph = og.open(place)
    done = graph.ensure_indices()
    assert done.built == {"node:Doc": ("id", "text"), "node:Log": ("id", "number")}
    assert {key: [one.column for one in found] for key, found in done.refused.items()} == {
        "node:Doc": ["place"]
    }
    again = graph.ensure_indices()
    assert (again.commit, again.refused) == (None, done.refused)


def test_ensure_indices_on_a_branch_that_only_inherits_the_table(place: Path) -> None:
    graph = og.open(place)
    graph.branches.create("work")
    assert graph.ensure_indices("work").refused.keys() == {"node:Doc"}


def test_a_stored_index_stays_when_later_vectors_cannot_join_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_AUTO_UPKEEP", "off")
    graph = og.init(tmp_path / "g", schema=SCHEMA)
    add_docs(graph, range(VECTOR_ROWS + 1))
    graph.optimize()
    add_docs(graph, range(VECTOR_ROWS + 1, VECTOR_ROWS + 3), long=VECTOR_ROWS + 2)
    (docs,) = (one for one in graph.optimize().tables if one.key == "node:Doc")
    assert docs.indexes == ("id", "text")
    assert [one.column for one in docs.refused] == ["place"]
    found = graph.query(
        "query near($at: Vector(2)) { match { $d: Doc } return { $d.slug } order { nearest($d.place, $at) } "
        "limit 1 }",
        {"at": [7.0, 1.0]},
    )
    assert found.scalar() == "d7"


def test_the_command_line_names_the_column_and_the_reason(place: Path) -> None:
    said = run_command("optimize", str(place))
    assert said.exit_code == 0
    assert f"node:Doc: no index on place: {REASON}" in said.stdout
    found = run_command("doctor", str(place), "--json")
    pending = {one["table_key"]: one for one in json.loads(found.stdout)["pending_indexes"]}
    assert pending["node:Doc"]["refused"] == [{"column": "place", "reason": REASON}]
    listed = run_command("doctor", str(place))
    assert listed.exit_code == 0
    assert f"no index on place of node:Doc: {REASON}" in listed.stdout
    assert "pending indexes on node:Doc" not in listed.stdout
    (docs,) = (
        one
        for one in json.loads(run_command("optimize", str(place), "--json").stdout)["datasets"]
        if one["type_key"] == "node:Doc"
    )
    assert docs["pending_indexes"] == [{"property": "place", "reason": REASON}]


def test_an_index_that_lance_refuses_for_another_reason_is_left_out_too(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(table: Table, parts: list[IndexPart]) -> object:
        if any(part.type == BTREE and part.column == "number" for part in parts):
            raise table_failure(TableFailureKind.INVALID, "stage_indexes", table.uri, "not these numbers")
        return build_in_process(table, parts)

    monkeypatch.setattr(indexes, "build_in_process", refuse)
    graph = og.open(place)
    (log,) = (one for one in graph.optimize().tables if one.key == "node:Log")
    assert log.indexes == ("id",)
    assert [one.column for one in log.refused] == ["number"]
    assert "not these numbers" in log.refused[0].reason
    assert stored_indexes(graph, "node:Log") == {"id_idx"}
