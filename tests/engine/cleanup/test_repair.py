"""Repair: drift that no write explains is reported, and published only if harmless or forced."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.commit.recovery.drift import DriftKind
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.maintenance.repair import RepairAction, RepairedTable, RepairResult, repair
from omnigraph.errors import BadRequest, Conflict, RecoveryRequired
from omnigraph.storage.indexes import IndexSpec, stage_indexes
from omnigraph.storage.location import Location
from omnigraph.storage.staging import commit_staged, stage_restore
from omnigraph.storage.tables import Table
from tests.engine.cleanup.world import add, table_at
from tests.engine.crash.world import PERSON, TEAM, change, look, make_graph, pending, require_settled, rows_of
from tests.engine.graphs import tree
from tests.engine.upkeep_graph import commits_of


@pytest.fixture
def graph(folder: Location) -> OpenGraph:
    return make_graph(folder)


def build_index(table: Table) -> None:
    """Maintenance outside omnigraph."""
    commit_staged(stage_indexes(table, [IndexSpec("name", "BTREE", "by_name")]))


def insert_team(graph: OpenGraph, branch: str = "main") -> None:
    """Rows written outside omnigraph."""
    teams = lance.dataset(table_at(graph, TEAM, branch).uri)
    teams.insert(pa.table({"id": ["x"], "name": ["x"], "title": ["x"]}, schema=teams.schema))


def acts(done: RepairResult) -> dict[tuple[str, str], tuple[RepairAction, DriftKind | None]]:
    """What was done, but for tables in order."""
    return {
        (one.key, one.branch): (one.action, one.classification)
        for one in done.tables
        if one.action is not RepairAction.NO_OP
    }


def test_a_graph_in_order_needs_nothing(graph: OpenGraph) -> None:
    before = tree(graph.root.layout.root.path)
    done = repair(graph)
    assert [one.action for one in done.tables] == [RepairAction.NO_OP] * 4
    assert (done.ok, acts(done), repair(graph, confirm=True).commits) == (True, {}, ())
    assert tree(graph.root.layout.root.path).keys() == before.keys()


def test_a_preview_classifies_and_changes_nothing(graph: OpenGraph) -> None:
    build_index(table_at(graph))
    insert_team(graph)
    before = tree(graph.root.layout.root.path)
    done = repair(OpenGraph.open(Root.at(graph.root.layout.root), read_only=True))
    assert acts(done) == {
        (PERSON, "main"): (RepairAction.PREVIEW, DriftKind.VERIFIED_MAINTENANCE),
        (TEAM, "main"): (RepairAction.PREVIEW, DriftKind.SUSPICIOUS),
    }
    assert done.ok
    person = next(one for one in done.tables if one.key == PERSON)
    assert (person.pinned, person.head, person.reason) == (2, 3, "maintenance")
    assert tree(graph.root.layout.root.path) == before


def test_maintenance_is_published_under_an_actor_of_its_own_and_a_change_is_refused(graph: OpenGraph) -> None:
    build_index(table_at(graph))
    insert_team(graph)
    before = rows_of(look(graph))
    done = repair(graph, confirm=True)
    assert acts(done) == {
        (PERSON, "main"): (RepairAction.HEALED, DriftKind.VERIFIED_MAINTENANCE),
        (TEAM, "main"): (RepairAction.REFUSED, DriftKind.SUSPICIOUS),
    }
    assert not done.ok
    assert [commit.actor for commit in done.commits] == ["omnigraph:repair"]
    assert commits_of(graph)[-1] == done.commits[0]
    assert rows_of(look(graph)) == before
    assert graph.load("main").state.entries()[PERSON].version == 3
    with pytest.raises(Conflict, match="changed outside of a commit"):
        change(graph, 'insert Team { name: "t" }')


def test_a_change_is_published_as_it_is_when_that_is_asked_for(graph: OpenGraph) -> None:
    create_branch(graph, "work")
    change(graph, 'insert Team { name: "t" }', "work")
    insert_team(graph, "work")
    main = rows_of(look(graph))["main"]
    done = repair(graph, confirm=True, force=True)
    assert acts(done) == {(TEAM, "work"): (RepairAction.FORCED, DriftKind.SUSPICIOUS)}
    assert done.ok
    assert [commit.actor for commit in done.commits] == ["omnigraph:repair:force"]
    seen = rows_of(look(graph))
    assert seen["main"] == main
    assert {row["name"] for row in seen["work"][TEAM]} == {"core", "t", "x"}
    change(graph, 'update Team set { title: "y" } where name = "x"', "work")
    require_settled(graph)


def test_columns_of_another_schema_are_not_published_even_by_force(graph: OpenGraph) -> None:
    teams = lance.dataset(table_at(graph, TEAM).uri)
    teams.add_columns({"size": "cast(1 as int)"})
    people = lance.dataset(table_at(graph).uri)
    people.drop_columns(["age"])
    before = rows_of(look(graph))
    wrong = {
        (one.key, one.action): one.reason
        for done in (repair(graph), repair(graph, confirm=True, force=True))
        for one in done.tables
        if one.action is not RepairAction.NO_OP
    }
    cause = "a change outside of a commit; its columns are not those of the schema: "
    assert wrong == {
        (PERSON, RepairAction.PREVIEW): f"{cause}`age` is missing",
        (TEAM, RepairAction.PREVIEW): f"{cause}`size` is not declared",
        (PERSON, RepairAction.REFUSED): f"{cause}`age` is missing; restore the table from a backup",
        (TEAM, RepairAction.REFUSED): f"{cause}`size` is not declared; restore the table from a backup",
    }
    assert rows_of(look(graph)) == before


def test_force_needs_confirm(graph: OpenGraph) -> None:
    with pytest.raises(BadRequest, match="force without confirm"):
        repair(graph, force=True)


def test_what_a_late_recovery_restored_is_settled(graph: OpenGraph) -> None:
    table = table_at(graph)
    marks = {"omnigraph.operation": "01J0000000000000000000000A", "omnigraph.restored": "1"}
    commit_staged(stage_restore(table, 1).with_properties(marks))
    before = rows_of(look(graph))
    assert acts(repair(graph)) == {(PERSON, "main"): (RepairAction.PREVIEW, DriftKind.VERIFIED_MAINTENANCE)}
    assert acts(repair(graph, confirm=True)) == {
        (PERSON, "main"): (RepairAction.HEALED, DriftKind.VERIFIED_MAINTENANCE)
    }
    assert rows_of(look(graph)) == before, "and not the rows that it had restored"
    require_settled(graph)


def test_a_table_behind_its_branch_cannot_be_repaired(graph: OpenGraph) -> None:
    add(graph, "p0")
    table = table_at(graph)
    newest = sorted(Path(table.uri, "_versions").glob("*.manifest"))[0]
    newest.unlink()
    Path(table.uri, "_versions", "latest_version_hint.json").unlink(missing_ok=True)
    fresh = OpenGraph.open(Root.at(graph.root.layout.root))
    for force in (False, True):
        done = repair(fresh, confirm=True, force=force)
        (person,) = (one for one in done.tables if one.key == PERSON)
        assert (person.action, person.classification) == (RepairAction.REFUSED, DriftKind.UNVERIFIABLE)
        assert (person.pinned, person.head) == (3, 2)
        assert not done.ok


def test_drift_of_a_write_on_record_is_left_to_recovery(graph: OpenGraph) -> None:
    point = failpoints.MUTATION_POST_TABLE_COMMIT
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(RecoveryRequired):
        change(graph, 'insert Person { name: "late" }  insert Team { name: "late" }')
    before = rows_of(look(graph))
    (person,) = (one for one in repair(graph).tables if one.key == PERSON)
    assert (person.action, person.classification) == (RepairAction.NO_OP, None)
    assert "omnigraph recover" in str(person.reason)
    done = repair(graph, confirm=True)
    assert (done.ok, done.commits, pending(graph)) == (True, (), [])
    assert rows_of(look(graph)) == before
    require_settled(graph)


def test_a_branch_with_an_unreadable_record_is_refused_and_others_are_repaired(
    graph: OpenGraph,
) -> None:
    create_branch(graph, "work")
    change(graph, 'insert Team { name: "t" }', "work")
    build_index(table_at(graph, TEAM, "work"))
    build_index(table_at(graph))
    record = '{"schema_version": 3, "branch": "work"}'
    graph.root.objects.write_text(graph.root.layout.recovery / "01J0000000000000000000000A.json", record)
    done = repair(graph, confirm=True)
    assert acts(done) == {
        (TEAM, "work"): (RepairAction.REFUSED, DriftKind.VERIFIED_MAINTENANCE),
        (PERSON, "main"): (RepairAction.HEALED, DriftKind.VERIFIED_MAINTENANCE),
    }
    refused: list[RepairedTable] = [one for one in done.tables if one.action is RepairAction.REFUSED]
    assert "01J0000000000000000000000A" in str(refused[0].reason)
