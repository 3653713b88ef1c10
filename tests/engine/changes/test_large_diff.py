"""A diff whose changes do not fit into memory reports the same changes as any other."""

from __future__ import annotations

import gc
import pickle
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph.engine.changes import comparison
from omnigraph.engine.changes.comparison import (
    RunnerChoice,
    SortedRuns,
    TableComparison,
    _read_run,
    compare_by_tasks,
    merge_runs,
)
from omnigraph.engine.changes.diff import Diff
from omnigraph.engine.changes.row_pairs import PAIRS_SCHEMA
from omnigraph.engine.changes.table_side import TableSide
from omnigraph.engine.tasks.runner import LocalRunner
from omnigraph.errors import BadRequest, HistoricalVersionReclaimed
from omnigraph.graph import Graph
from omnigraph.storage.upkeep import collect_versions
from tests.engine.changes.world import few_rows_at_once, link, load, thing
from tests.examples import EXAMPLES

THING = "node:Thing"


@pytest.fixture(scope="module")
def diverged_path(tmp_path_factory: pytest.TempPathFactory, things: Path) -> Path:
    """Main and a branch that both went on: new, changed, deleted, rewritten and compacted rows."""
    at = tmp_path_factory.mktemp("diverged") / "graph"
    shutil.copytree(things, at)
    with omnigraph.open(at) as graph:
        _go_apart(graph)
    return at


@pytest.fixture
def diverged_graph(tmp_path: Path, diverged_path: Path) -> Iterator[Graph]:
    """A copy of it."""
    shutil.copytree(diverged_path, tmp_path / "diverged")
    with omnigraph.open(tmp_path / "diverged") as graph:
        yield graph


def _go_apart(graph: Graph) -> None:
    load(graph, {("Thing", f"t{n:02}"): thing(f"t{n:02}", i=n) for n in range(12)})
    graph.branches.create("draft")
    for branch, first in (("main", 0), ("draft", 3)):
        rows = {("Thing", f"t{n:02}"): thing(f"t{n:02}", i=n + first) for n in range(first, first + 5)}
        load(graph, {**rows, ("Thing", f"new-{branch}"): thing(f"new-{branch}")}, branch=branch)
        graph.mutate(f'query q() {{ delete Thing where k = "t{first + 8:02}" }}', branch=branch)
        load(graph, {("Link", f"e-{branch}"): link("x", "y", 1.0)}, branch=branch)
    graph.optimize("draft")


def sides(diff: Diff, key: str = THING) -> TableComparison:
    return diff.comparison(key)


@pytest.mark.parametrize(("a", "b"), [("main", "draft"), ("draft", "main")])
def test_changes_are_the_same_in_the_same_order(diverged_graph: Graph, a: str, b: str) -> None:
    small = diverged_graph.diff(a, b, engine="local")
    with few_rows_at_once():
        large = diverged_graph.diff(a, b, engine="local")
        assert list(large) == list(small)
        assert large.stat() == small.stat()
        assert isinstance(large._compare_table(THING), SortedRuns)
        place = (THING, "t05")
        assert list(large.beyond(place)) == list(small.beyond(place))
        assert list(diverged_graph.diff(a, b, ops="delete")) == [one for one in small if one.op == "delete"]


def test_a_type_that_one_moment_does_not_know_is_all_new(diverged_graph: Graph) -> None:
    before = diverged_graph.snapshot()
    diverged_graph.branches.delete("draft")
    diverged_graph.apply_schema(diverged_graph.schema_source + "\nnode Later { k: String @key }")
    load(diverged_graph, {("Later", name): {"k": name} for name in "cab"})
    with few_rows_at_once():
        found = diverged_graph.diff(before, "main", types="Later")
        assert [(one.op, one.id) for one in found] == [("insert", name) for name in "abc"]


def test_only_what_differs_is_read(diverged_graph: Graph) -> None:
    before = diverged_graph.snapshot()
    load(diverged_graph, {("Thing", "t00"): thing("t00", i=99)})
    with few_rows_at_once():
        parts = sides(diverged_graph.diff(before, "main")).parts()
    assert [(part.tag, part.read().column("id").to_pylist()) for part in parts] == [
        ("right", ["t00"]),
        ("left", ["t00"]),
        ("right", []),
    ]


def test_what_was_only_compacted_does_not_make_a_diff_large(
    diverged_graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = diverged_graph.snapshot()
    load(diverged_graph, {("Thing", "t00"): thing("t00", i=99)})
    diverged_graph.optimize()
    monkeypatch.setattr(comparison, "LARGE_CHANGE", 3)
    found = sides(diverged_graph.diff(before, "main"))
    assert (found.estimate_rows() > 3, found.count_written_rows()) == (True, 1)
    assert RunnerChoice("local").choose_runner(found) is None
    load(diverged_graph, {("Thing", f"more{n}"): thing(f"more{n}") for n in range(4)})
    assert isinstance(
        RunnerChoice("local").choose_runner(sides(diverged_graph.diff(before, "main"))), LocalRunner
    )


def test_an_engine_that_does_not_exist_is_refused_at_once(graph: Graph) -> None:
    with pytest.raises(BadRequest, match="there is no engine 'steam'"):
        graph.diff("main", "main", engine="steam")  # type: ignore[arg-type]


def test_a_version_that_was_cleaned_up_is_reported_as_reclaimed(diverged_graph: Graph) -> None:
    before, opened = diverged_graph.snapshot(), diverged_graph._opened
    entry = before._pinned.entries[THING]
    load(diverged_graph, {("Thing", "t00"): thing("t00", i=99)})
    table = opened.root.tables.tip(opened.root.layout.table(entry.path))
    with few_rows_at_once():
        found = diverged_graph.diff(before, "main")
        collect_versions(table, [entry.version])
        opened.root.tables.forget()
        with pytest.raises(HistoricalVersionReclaimed):
            list(found)


def test_a_side_that_travelled_reads_the_same_rows(diverged_graph: Graph) -> None:
    found = sides(diverged_graph.diff("main", "draft"))
    arrived = pickle.loads(pickle.dumps(found))
    for here, there in ((found.left, arrived.left), (found.right, arrived.right)):
        assert isinstance(here, TableSide)
        assert here.scan_places().sort_by("id") == there.scan_places().sort_by("id")
    with few_rows_at_once():
        runs = compare_by_tasks(arrived, LocalRunner())
    assert runs.stat == found.compare_in_memory().stat


def test_files_go_with_the_diff(diverged_graph: Graph) -> None:
    with few_rows_at_once():
        found = diverged_graph.diff("main", "draft")
        runs = found._compare_table(THING)
    assert isinstance(runs, SortedRuns)
    folder: Path = runs.folder.path
    assert list(folder.iterdir())
    del found, runs
    gc.collect()
    assert not folder.exists()


def test_buckets_are_bounded_by_rows_and_cores() -> None:
    size = comparison.ROWS_PER_BUCKET
    assert [comparison.count_buckets(rows, 4) for rows in (0, size, 5 * size, 5 * size + 1)] == [4, 4, 5, 6]


@settings(max_examples=max(10, EXAMPLES // 4))
@given(st.lists(st.lists(st.text(max_size=2), min_size=1, max_size=6), max_size=5), st.integers(1, 4))
def test_sorted_runs_are_read_in_one_order(runs: list[list[str]], at_once: int) -> None:
    def portions(run: list[str]) -> list[pa.Table]:
        whole = pa.table({"id": pa.array(run, pa.string())}).sort_by("id")
        return [whole.slice(start, at_once) for start in range(0, len(run), at_once)]

    found = [
        row for part in merge_runs([iter(portions(run)) for run in runs]) for row in part["id"].to_pylist()
    ]
    assert found == sorted(row for run in runs for row in run)


def test_runs_may_be_more_than_files_can_be_open(tmp_path: Path) -> None:
    names = [f"{number:03}" for number in range(200)]
    files = [tmp_path / name for name in names]
    for file in files:
        rows = pa.table({"id": [f"{file.name}-{at}" for at in range(3)], "left": [0] * 3, "right": [0] * 3})
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, PAIRS_SCHEMA) as writer:
            writer.write_table(rows.cast(PAIRS_SCHEMA), max_chunksize=2)
    limits, now_open = resource.getrlimit(resource.RLIMIT_NOFILE), len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (now_open + 100, limits[1]))
    try:
        found = [
            row for part in merge_runs([_read_run(file) for file in files]) for row in part["id"].to_pylist()
        ]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert found == [f"{name}-{at}" for name in names for at in range(3)]
