"""Declared indexes come back by themselves after every kind of write, or are reported as pending."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.maintenance import ensure_indexes
from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
from omnigraph.engine.maintenance.cleanup.run_cleanup import cleanup
from omnigraph.engine.maintenance.doctor import examine
from omnigraph.engine.upkeep import after_write as tidy
from omnigraph.engine.upkeep import index_catch_up as reach
from omnigraph.engine.upkeep import index_upkeep
from omnigraph.engine.upkeep.declared_indexes import declared_indexes
from omnigraph.engine.upkeep.index_catch_up import EXTEND_ROWS
from omnigraph.errors import RecoveryRequired
from omnigraph.graph import Graph
from omnigraph.storage.indexes import read_coverage
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests.engine.crash.world import require_settled
from tests.engine.graphs import no_room_for

SCHEMA = """
node Doc {
    slug: String @key
    text: String? @index
    score: I64? @index
    place: Vector(4)? @index
    extra: I64?
}
edge Cites: Doc -> Doc
"""
ROWS = 64
DOC, CITES = "node:Doc", "edge:Cites"
COLUMNS = {DOC: {"id", "text", "score", "place"}, CITES: {"id", "src", "dst"}}
ALL_BUT_VECTORS = {DOC: {"id", "text", "score"}, CITES: {"id", "src", "dst"}}


@pytest.fixture(params=["within the limit", "above the limit"])
def limit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the writes index their rows themselves, or upkeep does after them; 64 rows are many here."""
    monkeypatch.setattr(reach, "EXTEND_ROWS", ROWS // 2)
    monkeypatch.setattr(reach, "EXTEND_TEXTS", ROWS // 2)
    monkeypatch.setattr(tidy, "MIN_ROWS_TO_CHECK", ROWS // 2)
    monkeypatch.setattr(index_upkeep, "VECTOR_ROWS", ROWS // 2)
    if request.param == "above the limit":
        monkeypatch.setenv(index_upkeep.SETTING, "10")


def docs(begin: int, count: int = ROWS) -> pa.Table:
    vectors = np.random.default_rng(begin).random(4 * count, dtype=np.float32)
    return pa.table(
        {
            "slug": [f"d{number}" for number in range(begin, begin + count)],
            "text": [f"walking number {number}" for number in range(begin, begin + count)],
            "score": pa.array(range(begin, begin + count), pa.int64()),
            "place": pa.FixedSizeListArray.from_arrays(pa.array(vectors), 4),
        }
    )


def cites(count: int = ROWS) -> pa.Table:
    ends = [f"d{number}" for number in range(count)]
    return pa.table({"from": ends, "to": ends[::-1]})


def make_filled(at: Location) -> Graph:
    graph = og.init(at.uri, schema=SCHEMA)
    graph.load(docs(0), type="Doc", mode="append")
    graph.load(cites(), type="Cites", mode="append")
    return graph


def lacking(graph: Graph, branch: str = "main") -> dict[str, set[str]]:
    """The columns of declared indexes that do not cover all rows, by table."""
    opened = graph._opened
    catalog = opened.schema().catalog
    found = {}
    for key, entry in opened.load(branch).state.entries().items():
        table = opened.root.tables.open(
            opened.root.layout.table(entry.path), entry.version, branch=entry.owner
        )
        stored = read_coverage(table).values()
        left = {
            wish.column
            for wish in declared_indexes(catalog, key)
            if not any(wish.is_met_by(one) and one.is_complete for one in stored)
        }
        if left and table.count():
            found[key] = left
    return found


Write = Callable[[Graph], Any]


def load(graph: Graph) -> Any:
    return graph.load(docs(ROWS), type="Doc", mode="append")


def upsert(graph: Graph) -> Any:
    return graph.load(docs(0), type="Doc", mode="merge")


def overwrite(graph: Graph) -> Any:
    return graph.load(docs(0), type="Doc", mode="overwrite")


def add_property(graph: Graph) -> Any:
    return graph.apply_schema(SCHEMA.replace("extra: I64?", "extra: I64?  more: String?"))


def rename_property(graph: Graph) -> Any:
    return graph.apply_schema(SCHEMA.replace("score: I64? @index", 'rank: I64? @index @rename_from("score")'))


def rename_type(graph: Graph) -> Any:
    return graph.apply_schema(
        SCHEMA.replace("node Doc {", 'node Page @rename_from("Doc") {').replace("Doc -> Doc", "Page -> Page")
    )


def declare_index(graph: Graph) -> Any:
    return graph.apply_schema(SCHEMA.replace("extra: I64?", "extra: I64? @index"))


def change_metric(graph: Graph) -> Any:
    return graph.apply_schema(SCHEMA.replace("Vector(4)? @index", "Vector(4)? @index @metric(cosine)"))


def update(graph: Graph) -> Any:
    return graph.mutate("query q() { update Doc set { score: 7 } where score >= 0 }")


def merge(graph: Graph) -> Any:
    graph.branches.create("work")
    graph.load(docs(ROWS), type="Doc", mode="append", branch="work")
    return graph.merge("work")


def diverged_merge(graph: Graph) -> Any:
    graph.branches.create("work")
    graph.load(docs(ROWS), type="Doc", mode="append", branch="work")
    graph.mutate('query q() { update Doc set { score: 7 } where slug = "d0" }')
    return graph.merge("work")


WRITES: list[Write] = [
    load,
    upsert,
    overwrite,
    add_property,
    rename_property,
    rename_type,
    declare_index,
    update,
    merge,
    diverged_merge,
]


@pytest.mark.parametrize("write", WRITES)
def test_after_every_kind_of_write_all_declared_indexes_cover_all_rows(
    folder: Location, limit: None, write: Write
) -> None:
    require_complete_after(folder, write)


@pytest.mark.s3
@pytest.mark.parametrize("write", [load, overwrite, add_property, merge])
def test_in_a_bucket_declared_indexes_cover_all_rows_after_a_write(
    s3_root: Location, limit: None, write: Write
) -> None:
    require_complete_after(s3_root, write)


def require_complete_after(place: Location, write: Write) -> None:
    graph = make_filled(place)
    assert lacking(graph) == {}, "those of the first load came by themselves, too"
    done = write(graph)
    assert lacking(graph) == {}
    assert done.pending_indexes == {}
    assert examine(graph._opened).pending == ()
    require_settled(graph._opened)


@pytest.mark.parametrize("write", WRITES)
def test_without_upkeep_every_kind_of_write_says_what_is_pending(
    tmp_path: Path, limit: None, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = make_filled(Location.parse(tmp_path / "g"))
    monkeypatch.setenv(tidy.SETTING, "off")
    done = write(graph)
    left = lacking(graph)
    assert {key: set(columns) for key, columns in done.pending_indexes.items()} == left
    assert left
    reported = {key: columns for (branch, key), columns in pending(graph).items() if branch == "main"}
    assert reported == done.pending_indexes
    monkeypatch.setenv(tidy.SETTING, "on")
    graph.load(docs(9 * ROWS).rename_columns(_columns(graph)), type=_node(graph), mode="append")
    assert lacking(graph) == {}, "the next write of many rows sees to it"


def test_another_metric_replaces_the_index_or_says_that_it_is_pending(
    tmp_path: Path, limit: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ensure_indexes, "VECTOR_ROWS", ROWS // 2)
    graph = make_filled(Location.parse(tmp_path / "g"))
    done = change_metric(graph)
    left = lacking(graph)
    assert {key: set(columns) for key, columns in done.pending_indexes.items()} == left
    assert left in ({}, {DOC: {"place"}})
    graph.optimize()
    assert lacking(graph) == {}
    entry = graph._opened.load("main").state.entries()[DOC]
    table = graph._opened.root.tables.open(
        graph._opened.root.layout.table(entry.path), entry.version, branch=entry.owner
    )
    stored = [(one.metric, one.is_complete) for one in read_coverage(table).values() if "IVF" in one.kind]
    assert stored == [("cosine", True)]


def test_another_language_replaces_the_index_or_says_that_it_is_pending(tmp_path: Path, limit: None) -> None:
    graph = make_filled(Location.parse(tmp_path / "g"))
    german = SCHEMA.replace("text: String? @index", "text: String? @index @text(german)")
    assert german != SCHEMA
    done = graph.apply_schema(german)
    left = lacking(graph)
    assert {key: set(columns) for key, columns in done.pending_indexes.items()} == left
    graph.optimize()
    assert lacking(graph) == {}
    entry = graph._opened.load("main").state.entries()[DOC]
    table = graph._opened.root.tables.open(
        graph._opened.root.layout.table(entry.path), entry.version, branch=entry.owner
    )
    assert [one.is_complete for one in read_coverage(table).values() if one.has_language("german")] == [True]
    assert not any(one.has_language("english") for one in read_coverage(table).values())


def _node(graph: Graph) -> str:
    (name,) = graph._opened.schema().catalog.nodes
    return name


def _columns(graph: Graph) -> list[str]:
    known = graph._opened.schema().catalog.nodes[_node(graph)].properties
    return ["slug", "text", "rank" if "rank" in known else "score", "place"]


def test_a_branch_completes_what_it_has_of_its_own_and_leaves_main_alone(
    folder: Location, limit: None
) -> None:
    graph = make_filled(folder)
    graph.branches.create("work")
    main = graph._opened.load("main").state.entries()
    graph.load(docs(ROWS), type="Doc", mode="append", branch="work")
    assert (lacking(graph, "work"), lacking(graph)) == ({}, {})
    graph.load(docs(0), type="Doc", mode="overwrite", branch="work")
    assert (lacking(graph, "work"), lacking(graph)) == ({}, {})
    assert graph._opened.load("main").state.entries() == main
    require_settled(graph._opened)


def test_a_rewrite_of_a_table_without_indexes_builds_none(tmp_path: Path) -> None:
    graph = make_filled(Location.parse(tmp_path / "g"))
    assert lacking(graph) == COLUMNS
    assert overwrite(graph).pending_indexes == add_property(graph).pending_indexes == {}
    assert lacking(graph) == COLUMNS, "a small table is as fast without"


def test_a_small_table_that_was_optimised_keeps_its_indexes(tmp_path: Path) -> None:
    graph = make_filled(Location.parse(tmp_path / "g"))
    graph.optimize()
    for write in (overwrite, add_property, rename_property, rename_type):
        assert write(graph).pending_indexes == {}
        assert all(left == {"place"} for left in lacking(graph).values()), "so few vectors need none"
        graph = make_filled(Location.parse(tmp_path / write.__name__))
        graph.optimize()


def pending(graph: Graph) -> dict[tuple[str, str], tuple[str, ...]]:
    """The columns of what `doctor` reports, by branch and table."""
    return {(one.branch, one.key): one.columns for one in examine(graph._opened).pending}


@pytest.mark.parametrize("write", [overwrite, add_property, rename_property, rename_type])
def test_the_doctor_reports_what_a_small_table_lost_until_it_is_built(
    folder: Location, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = make_filled(folder)
    graph.optimize()
    assert pending(graph) == {}
    with monkeypatch.context() as patch:
        patch.setenv(tidy.SETTING, "off")
        done = write(graph)
        (key,) = done.pending_indexes
        lost = {("main", key): done.pending_indexes[key]}
        assert pending(graph) == lost
        graph.mutate(f'query q() {{ update {_node(graph)} set {{ text: "x" }} where slug = "d0" }}')
        assert pending(graph) == lost
        more = docs(ROWS, 1_024).rename_columns(_columns(graph))
        done = graph.load(more, type=_node(graph), mode="append")
        assert {("main", key): done.pending_indexes[key]} == lost == pending(graph)
    graph.load(docs(9 * ROWS, 1_024).rename_columns(_columns(graph)), type=_node(graph), mode="merge")
    assert pending(graph) == {}
    assert lacking(graph) == {key: {"place"}}


def test_the_doctor_reports_what_a_branch_lost_and_only_there(
    folder: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = make_filled(folder)
    graph.branches.create("early")
    graph.optimize()
    graph.branches.create("work")
    monkeypatch.setenv(tidy.SETTING, "off")
    done = graph.load(docs(0), type="Doc", mode="overwrite", branch="work")
    assert done.pending_indexes == {DOC: ("id", "score", "text")}
    assert pending(graph) == {("work", DOC): ("id", "score", "text")}
    assert graph.load(docs(0), type="Doc", mode="overwrite", branch="early").pending_indexes == {}
    graph.branches.create("again", from_="work")
    again = graph.load(docs(0), type="Doc", mode="overwrite", branch="again")
    assert again.pending_indexes == done.pending_indexes
    assert pending(graph).keys() == {("work", DOC), ("again", DOC)}, "main was indexed after `early` was made"
    graph.optimize(branch="work")
    graph.optimize(branch="again")
    assert pending(graph) == {}


def test_what_cleanup_removed_no_longer_says_that_a_table_had_indexes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = make_filled(Location.parse(tmp_path / "g"))
    graph.optimize()
    monkeypatch.setenv(tidy.SETTING, "off")
    overwrite(graph)
    assert pending(graph).keys() == {("main", DOC)}
    cleanup(graph._opened, CleanupPolicy(1, None, 0.0))
    assert pending(graph) == {}
    assert overwrite(graph).pending_indexes == {}


def test_a_small_table_lags_until_its_tail_is_worth_a_segment(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", schema=SCHEMA)
    graph.load(docs(0, EXTEND_ROWS), type="Doc", mode="append")
    assert lacking(graph) == {}
    done = graph.load(docs(EXTEND_ROWS, EXTEND_ROWS - 1), type="Doc", mode="append")
    assert lacking(graph) == {DOC: {"id", "score", "place"}}, "of texts half as many are worth it"
    assert done.pending_indexes == {}
    graph.load(docs(3 * EXTEND_ROWS, EXTEND_ROWS), type="Doc", mode="append")
    assert lacking(graph) == {}


def test_a_failed_index_never_fails_the_write_and_is_reported(
    tmp_path: Path, limit: None, caplog: pytest.LogCaptureFixture
) -> None:
    make_filled(Location.parse(tmp_path / "g")).close()
    with og.open(tmp_path / "g") as graph, pytest.MonkeyPatch.context() as patch:
        full = OpenGraph.open(Root.at(Location.parse(tmp_path / "g"), no_room_for("stage_indexes")))
        patch.setattr(graph, "_opened", full)
        with caplog.at_level(logging.WARNING, "omnigraph"):
            done = overwrite(graph)
        assert set(done.pending_indexes[DOC]) == COLUMNS[DOC]
        assert "no room" in caplog.text
        assert graph.snapshot().rows("Doc").num_rows == ROWS
    with og.open(tmp_path / "g") as graph:
        (pending,) = examine(graph._opened).pending
        assert set(pending.columns) == COLUMNS[DOC]
        load(graph)
        assert lacking(graph) == {}


def test_vectors_that_cannot_be_indexed_do_not_keep_other_indexes_from_being_built(
    tmp_path: Path, limit: None
) -> None:
    graph = og.init(tmp_path / "g", schema=SCHEMA)
    huge = docs(0).set_column(3, "place", pa.array([[3e38, 1.0, 1.0, 1.0]] * ROWS, pa.list_(pa.float32(), 4)))
    done = graph.load(huge, type="Doc", mode="append")
    assert done.pending_indexes == {DOC: ("place",)}
    assert lacking(graph) == {DOC: {"place"}}


def test_a_bad_limit_does_not_fail_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(index_upkeep.SETTING, "-3")
    graph = og.init(tmp_path / "g", schema=SCHEMA)
    with caplog.at_level(logging.WARNING, "omnigraph"):
        done = graph.load(docs(0, EXTEND_ROWS), type="Doc", mode="append")
    assert index_upkeep.SETTING in caplog.text
    assert set(done.pending_indexes[DOC]) == COLUMNS[DOC]
    assert graph.snapshot().rows("Doc").num_rows == EXTEND_ROWS


def test_the_write_after_a_recovery_completes_what_the_dead_one_left(tmp_path: Path, limit: None) -> None:
    graph = make_filled(Location.parse(tmp_path / "g"))
    with (
        failpoints.arm(
            failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER,
            failpoints.error(failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER),
        ),
        pytest.raises(RecoveryRequired),
    ):
        overwrite(graph)
    graph.mutate('query q() { update Doc set { score: 7 } where slug = "d0" }')
    left = lacking(graph)
    assert left.get(DOC, set()) <= COLUMNS[DOC]
    assert all(len(one.index.parts) for one in examine(graph._opened).indexes if one.key == DOC)
    stored = {one.index.columns[0] for one in examine(graph._opened).indexes if one.key == DOC}
    assert stored == COLUMNS[DOC]


def test_others_write_while_indexes_are_built_after_a_write(tmp_path: Path, limit: None) -> None:
    """The lock is free meanwhile; what was built for a version that is gone is built again."""
    at = Location.parse(tmp_path / "g")
    make_filled(at).close()
    other = og.open(tmp_path / "g")
    calls: list[str] = []

    class Meddling(Recorder):
        def __call__(self, op: str, uri: str, /) -> None:
            super().__call__(op, uri)
            if op == "stage_indexes" and not calls and index_upkeep.rows_in_write() < ROWS:
                calls.append(op)
                other.mutate('query q() { insert Doc { slug: "meanwhile" } }')

    graph = og.open(tmp_path / "g")
    graph._opened = OpenGraph.open(Root.at(at, Meddling()))
    overwrite(graph)
    if calls:
        rows = graph.snapshot().rows("Doc").column("slug").to_pylist()
        assert "meanwhile" in rows
        left = lacking(graph)
        assert left.get(DOC, set()) <= COLUMNS[DOC]
    for one in examine(graph._opened).indexes:
        assert one.index.covered_fragments
    require_settled(graph._opened)


def test_a_large_index_is_built_in_bounded_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "EXTEND_ROWS", ROWS // 2)
    monkeypatch.setattr(tidy, "MIN_ROWS_TO_CHECK", ROWS // 2)
    monkeypatch.setenv(index_upkeep.SETTING, "10")
    monkeypatch.setenv(tidy.SETTING, "off")
    graph = og.init(tmp_path / "g", schema="node Doc { slug: String @key  score: I64? @index }")
    for part in range(6):
        graph.load(docs(part * ROWS).select(["slug", "score"]), type="Doc", mode="append")
    monkeypatch.setenv(tidy.SETTING, "on")
    monkeypatch.setattr(index_upkeep, "MOST_ROWS", ROWS)
    monkeypatch.setattr(index_upkeep, "_AMORTISED", 2)
    done = graph.load(docs(9 * ROWS, ROWS).select(["slug", "score"]), type="Doc", mode="append")
    assert set(done.pending_indexes[DOC]) == {"id", "score"}, "twice what it wrote, and no more"
    done = graph.load(docs(10 * ROWS, ROWS).select(["slug", "score"]), type="Doc", mode="append")
    done = graph.load(docs(11 * ROWS, ROWS).select(["slug", "score"]), type="Doc", mode="append")
    monkeypatch.setattr(index_upkeep, "_AMORTISED", 8)
    done = graph.load(docs(12 * ROWS, ROWS).select(["slug", "score"]), type="Doc", mode="append")
    assert (done.pending_indexes, lacking(graph)) == ({}, {})
