"""A merge whose changes do not fit into memory comes to what any other comes to."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.engine.constraints.table_change import NO_IDS
from omnigraph.engine.graph.table_types import table_types_of
from omnigraph.engine.merge import bucketed_merge
from omnigraph.engine.merge.target_change import TargetChange
from omnigraph.errors import InternalError, MergeConflicts, StaleResolutions
from omnigraph.graph import Graph
from tests.engine.changes.world import few_rows_at_once
from tests.engine.merge.family import OWNS, PERSON, everything, knows, owns, person, pet, put, remove
from tests.engine.merge.test_row_rule import ABSENT, become_all, cases

DECISIONS: dict[str, dict[str, Any]] = {
    "none": {},
    "ours": {"strategy": "ours"},
    "theirs": {"strategy": "theirs"},
    "by property": {"granularity": "property"},
    "base": {"resolutions": {"default": "base"}},
    "by type": {"resolutions": {"types": {PERSON: "theirs", OWNS: "ours", "edge:Knows": "ours"}}},
    "by entity": {
        "strategy": "theirs",
        "resolutions": {
            "conflicts": [
                {"type": PERSON, "id": "both", "properties": {"city": {"value": "there"}}},
                {"type": PERSON, "id": "mail-work", "properties": {"email": {"value": "other@x"}}},
                {"type": OWNS, "id": "o-work", "take": "ours"},
                {"type": "edge:Knows", "id": "k-lost", "take": "ours"},
            ]
        },
    },
}


@pytest.fixture(scope="module")
def diverged_path(tmp_path_factory: pytest.TempPathFactory, family: Path) -> Path:
    """Main and `work` disagree in every way that the row rule knows, and break rules together."""
    at = tmp_path_factory.mktemp("large") / "graph"
    shutil.copytree(family, at)
    with omnigraph.open(at) as graph:
        graph.branches.delete("work")
        names = {f"case-{number}": case for number, case in enumerate(cases())}
        first = [person(name, age=int(case[0])) for name, case in names.items() if case[0] != ABSENT]
        put(graph, *first, person("both", age=1, city="x"), pet("dog", photo="base64:AQ=="), pet("emu"))
        put(graph, owns("o1", "ann", "cat"))
        graph.branches.create("work")
        become_all(graph, "work", {name: (case[0], case[1]) for name, case in names.items()})
        become_all(graph, "main", {name: (case[0], case[2]) for name, case in names.items()})
        for branch, age, city in (("work", 2, "y"), ("main", 3, "x")):
            mail = person(f"mail-{branch}", email="same@x")
            put(
                graph,
                person("both", age=age, city=city),
                mail,
                owns(f"o-{branch}", "ann", "dog"),
                branch=branch,
            )
        put(
            graph,
            pet("dog", photo="base64:AgM=", vec=[0.5, 1.5]),
            knows("k-lost", "ann", "cid"),
            branch="work",
        )
        remove(graph, "Pet", "emu", "work")
        remove(graph, "Person", "cid")
    return at


@pytest.fixture
def graph(tmp_path: Path, diverged_path: Path) -> Iterator[Graph]:
    """A copy of it."""
    shutil.copytree(diverged_path, tmp_path / "graph")
    with omnigraph.open(tmp_path / "graph") as opened:
        yield opened


@pytest.mark.parametrize("how", DECISIONS.values(), ids=DECISIONS)
def test_a_preview_reports_the_same(diverged_path: Path, how: dict[str, Any]) -> None:
    with omnigraph.open(diverged_path, read_only=True) as graph:
        small = graph.merge("work", dry_run=True, engine="local", **how)
        with few_rows_at_once():
            many = graph.merge("work", dry_run=True, engine="local", **how)
    assert many == small
    assert many.resolution_file() == small.resolution_file()
    assert small.met


def test_the_same_is_done_and_rows_keep_their_ids(graph: Graph, diverged_path: Path, tmp_path: Path) -> None:
    how = DECISIONS["by entity"]
    before = row_ids(graph)
    with few_rows_at_once(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(bucketed_merge, "PIECE_BYTES", 1)
        done = graph.merge("work", engine="local", **how)
    shutil.copytree(diverged_path, tmp_path / "other")
    with omnigraph.open(tmp_path / "other") as other:
        small = other.merge("work", engine="local", **how)
        assert everything(graph) == everything(other)
        assert (done.outcome, done.changes, done.resolved) == (small.outcome, small.changes, small.resolved)
    after = row_ids(graph)
    assert {name: after[name] for name in before.keys() & after.keys()} == {
        name: before[name] for name in before.keys() & after.keys()
    }
    assert not waiting(graph)
    assert graph.merge("work").outcome.value == "already_up_to_date"


def test_conflicts_are_the_same_and_leave_nothing(graph: Graph) -> None:
    with pytest.raises(MergeConflicts) as small:
        graph.merge("work", engine="local")
    with few_rows_at_once(), pytest.raises(MergeConflicts) as many:
        graph.merge("work", engine="local")
    assert many.value.conflicts == small.value.conflicts
    assert not waiting(graph)


def test_decisions_that_are_out_of_date_are_refused(graph: Graph) -> None:
    stale = {"default": "ours", "conflicts": [{"type": PERSON, "id": "ann", "take": "ours"}]}
    with few_rows_at_once(), pytest.raises(StaleResolutions, match="ann"):
        graph.merge("work", engine="local", resolutions=stale)


def test_a_table_that_is_only_pointed_at_is_not_written(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.branches.create("side")
    put(graph, person("late"))
    monkeypatch.setattr(bucketed_merge, "write_pieces", None)
    with few_rows_at_once():
        graph.merge("main", "side", engine="local")
    assert everything(graph, "side") == everything(graph)


def test_rows_are_never_written_without_all_their_columns(graph: Graph) -> None:
    target = table_types_of(graph._opened.schema().accepted)[PERSON]
    change = TargetChange(target, pa.table({"id": ["eve"]}), np.zeros(1, np.bool_), NO_IDS)
    with pytest.raises(InternalError, match="without all their columns"):
        change.effect()


def row_ids(graph: Graph) -> dict[str, int]:
    """The rows of people by id."""
    opened, entry = graph._opened, graph.snapshot()._pinned.entries[PERSON]
    table = opened.root.tables.open(opened.root.layout.table(entry.path), entry.version)
    found: pa.Table = table.scan(["id", "_rowid"])
    return dict(zip(found.column("id").to_pylist(), found.column("_rowid").to_pylist(), strict=True))


def waiting(graph: Graph) -> list[Path]:
    """Files of writes under way."""
    return [file for file in (Path(graph.uri) / "__staging").rglob("*") if file.is_file()]
