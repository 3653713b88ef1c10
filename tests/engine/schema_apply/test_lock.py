"""A schema changes alone: no other branch, no other change, and no lock that outlives its owner for long."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import errors, failpoints
from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.commit.schema_lock import find_lock, hold_schema_lock
from omnigraph.engine.graph.branch_names import SCHEMA_APPLY_LOCK
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.schema_apply.apply import SchemaRequest, apply_schema
from omnigraph.graph import Graph
from omnigraph.lang.source import Source
from omnigraph.storage.location import Location

SCHEMA = "node P { k: String @key }"
WANTED = "node P { k: String @key  a: I32? }"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return og.init(tmp_path / "g.omni", schema=SCHEMA)


@pytest.fixture
def other_handle(graph: Graph) -> OpenGraph:
    """The same graph, as another handle sees it."""
    return OpenGraph.open(Root.at(Location.parse(graph.uri)))


def abandon_lock(other_handle: OpenGraph) -> None:
    """Leave a lock behind as a process does that is killed."""
    other_handle.root.forks.create(other_handle.load("main").table, SCHEMA_APPLY_LOCK)


def test_other_branches_are_named_and_stop_it(graph: Graph) -> None:
    for name in ("work", "b/c"):
        graph.branches.create(name)
    with pytest.raises(errors.SchemaApplyBlocked) as refused:
        graph.apply_schema(WANTED)
    assert refused.value.message == (
        "schema apply requires a graph with only main; found non-main branches: b/c, work"
    )
    assert refused.value.branches == ("b/c", "work")
    for name in ("work", "b/c"):
        graph.branches.delete(name)
    assert graph.apply_schema(WANTED).applied


def at_call(graph: Graph, wanted: tuple[str, str], act: Callable[[], object]) -> OpenGraph:
    """The graph of a writer that is overtaken, once, just before a storage call."""
    done: list[str] = []

    def observe(op: str, uri: str, /) -> None:
        if not done and op == wanted[0] and uri.endswith(wanted[1]):
            done.append(uri)
            act()

    return OpenGraph.open(Root.at(Location.parse(graph.uri), observe))


def test_a_branch_that_appears_behind_the_first_look_stops_it_too(
    graph: Graph, other_handle: OpenGraph
) -> None:
    # A lease can be lost without a sign: a writer made a branch with a lock it had lost.
    late = at_call(
        graph,
        ("create_fork", SCHEMA_APPLY_LOCK),
        lambda: other_handle.root.forks.create(other_handle.load("main").table, "late"),
    )
    with pytest.raises(errors.SchemaApplyBlocked, match="found non-main branches: late"):
        apply_schema(late, SchemaRequest(Source(WANTED)))
    assert find_lock(other_handle.root) is None
    assert graph.schema_source == SCHEMA


def test_the_lock_names_its_owner_and_goes_in_the_end(graph: Graph, other_handle: OpenGraph) -> None:
    with hold_schema_lock(other_handle, "op"):
        lock = find_lock(other_handle.root)
        assert lock is not None
        assert lock.notes["operation_id"] == "op"
        assert {"host", "pid", "started_at"} <= lock.notes.keys()
        assert graph.branches.list() == ["main"]
    assert find_lock(other_handle.root) is None


def test_a_second_change_learns_of_the_first(graph: Graph, other_handle: OpenGraph) -> None:
    with hold_schema_lock(other_handle, "op"), pytest.raises(errors.SchemaApplyBlocked) as refused:
        graph.apply_schema(WANTED)
    assert refused.value.message.startswith("schema apply is already in progress by process ")
    assert graph.apply_schema(WANTED).applied


def test_branches_wait_for_a_active_change_and_report_it(
    graph: Graph, other_handle: OpenGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOCK_WAIT", "0")
    with (
        hold_schema_lock(other_handle, "op"),
        pytest.raises(errors.SchemaApplyBlocked, match="branch create is unavailable while schema apply"),
    ):
        graph.branches.create("work")
    graph.branches.create("work")


def test_a_branch_made_under_a_lost_lease_is_taken_back(graph: Graph, other_handle: OpenGraph) -> None:
    overtaken = at_call(graph, ("create_fork", "work"), lambda: abandon_lock(other_handle))
    with pytest.raises(errors.SchemaApplyBlocked, match="branch create is unavailable while schema apply"):
        create_branch(overtaken, "work")
    assert graph.branches.list() == ["main"]


@pytest.mark.parametrize("next_one", ["apply", "create", "open"])
def test_a_lock_whose_owner_died_is_removed_by_the_next_writer(
    graph: Graph, other_handle: OpenGraph, next_one: str, caplog: pytest.LogCaptureFixture
) -> None:
    abandon_lock(other_handle)
    with caplog.at_level(logging.WARNING):
        match next_one:
            case "apply":
                assert graph.apply_schema(WANTED).applied
            case "create":
                graph.branches.create("work")
            case "open":
                og.open(graph.uri).close()
    assert find_lock(other_handle.root) is None
    assert "removing the lock of an interrupted schema change" in caplog.text


def test_reading_removes_no_lock_and_does_not_mind_it(graph: Graph, other_handle: OpenGraph) -> None:
    abandon_lock(other_handle)
    with og.open(graph.uri, read_only=True) as reader:
        assert reader.branches.list() == ["main"]
        assert reader.snapshot().rows("P").num_rows == 0
    assert find_lock(other_handle.root) is not None


def test_the_lock_stays_while_the_end_of_the_change_is_unknown(graph: Graph, other_handle: OpenGraph) -> None:
    """A branch made before it is recovered would have old tables and, in the end, the new schema."""
    point = failpoints.SCHEMA_APPLY_AFTER_STAGING_WRITE
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(errors.RecoveryRequired):
        graph.apply_schema(WANTED)
    assert find_lock(other_handle.root) is not None
    graph.branches.create("work")
    assert find_lock(other_handle.root) is None
    sources = {graph.schema_source}
    graph.mutate('query q() { insert P { k: "a" } }', branch="work")
    graph.mutate('query q() { insert P { k: "a" } }')
    assert sources == {graph.schema_source}
    columns = {tuple(graph.snapshot(branch).rows("P").column_names) for branch in ("main", "work")}
    assert len(columns) == 1


def test_a_read_only_graph_plans_and_does_not_apply(graph: Graph) -> None:
    with og.open(graph.uri, read_only=True) as reader:
        assert [step.kind for step in reader.plan_schema(WANTED).steps] == ["add_property"]
        with pytest.raises(errors.ReadOnlyGraph):
            reader.apply_schema(WANTED)
