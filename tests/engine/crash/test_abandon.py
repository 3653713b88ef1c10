"""Discarding a record that recovery can neither finish nor undo."""

from __future__ import annotations

import shutil

import lance
import pyarrow as pa
import pytest

from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.commit.recovery.forecast import abandon_record, forecast_recovery
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.open import open_graph
from omnigraph.engine.maintenance.repair import RepairAction, repair
from omnigraph.errors import Conflict, NotFound, RecoveryRequired, WriterBusy
from omnigraph.storage.location import Location
from tests.engine.cleanup.world import add, table_at
from tests.engine.crash.world import PERSON, change, look, make_graph, pending, rows_of


@pytest.fixture
def graph(folder: Location) -> OpenGraph:
    return make_graph(folder)


def cut_off(graph: OpenGraph) -> str:
    """A write that came to the end of phase B; its operation."""
    point = failpoints.MUTATION_POST_TABLE_COMMIT
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(RecoveryRequired) as caught:
        add(graph, "late")
    return caught.value.operation_id


def bury(graph: OpenGraph) -> None:
    """Write on top of it, outside omnigraph."""
    table = lance.dataset(table_at(graph).uri)
    table.insert(pa.table({"id": ["x"], "name": ["x"], "age": [1]}, schema=table.schema))


def test_an_operation_that_recovery_gave_up_can_be_abandoned_and_its_tables_repaired(
    graph: OpenGraph,
) -> None:
    operation = cut_off(graph)
    bury(graph)
    with pytest.raises(RecoveryRequired):
        add(graph, "next")
    before = rows_of(look(graph))
    assert "not as the record and the branch say" in abandon_record(graph, operation).would
    assert pending(graph) == []
    (left,) = graph.root.objects.list_dir(graph.root.layout.recovery)
    assert left.name == f"{operation}.abandoned"
    assert rows_of(look(graph)) == before
    with pytest.raises(Conflict, match="changed outside of a commit"):
        add(graph, "next")
    done = repair(graph, confirm=True, force=True)
    assert [one.key for one in done.tables if one.action is RepairAction.FORCED] == [PERSON]
    add(graph, "next")
    assert {"late", "x", "next"} <= {row["name"] for row in rows_of(look(graph))["main"][PERSON]}


def test_a_record_of_a_table_that_is_gone_stops_its_branch_and_no_other(graph: OpenGraph) -> None:
    create_branch(graph, "work")
    change(graph, 'insert Person { name: "w" }', "work")
    operation = cut_off(graph)
    shutil.rmtree(table_at(graph).uri)
    other = open_graph(Root.at(graph.root.layout.root))
    (found,) = forecast_recovery(other)
    assert (found.branch, found.stuck, found.tables) == ("main", True, {PERSON: "missing"})
    with pytest.raises(RecoveryRequired, match=PERSON):
        change(other, 'insert Team { name: "t" }')
    assert change(other, 'insert Team { name: "t" }', "work").commit is not None
    assert pending(graph) == [operation]
    abandon_record(other, operation)
    assert change(other, 'insert Team { name: "t" }').commit is not None


def test_what_can_be_recovered_is_not_abandoned(graph: OpenGraph) -> None:
    operation = cut_off(graph)
    with pytest.raises(Conflict, match=f"operation '{operation}' can be recovered: .* would finish it"):
        abandon_record(graph, operation)
    assert pending(graph) == [operation]


def test_a_record_without_a_branch_needs_everybody_to_stand_still(
    graph: OpenGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOCK_WAIT", "0")
    create_branch(graph, "work")
    operation = "01J0000000000000000000000A"
    graph.root.objects.write_text(graph.root.layout.recovery / f"{operation}.json", "no JSON at all")
    with graph.root.locks.hold(["work"]), pytest.raises(WriterBusy):
        abandon_record(graph, operation)
    assert pending(graph) == [operation]
    assert abandon_record(graph, operation).branch is None
    add(graph, "next")


def test_an_operation_that_is_not_on_record_is_reported(graph: OpenGraph) -> None:
    with pytest.raises(NotFound, match=r"no operation '\.\./x' on record"):
        abandon_record(graph, "../x")
