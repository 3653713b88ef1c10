"""Any kind of write on an open handle deals first with what a dead process left on its branch."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.commit.recovery import audit
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.maintenance.ensure_indexes import ensure_indices
from omnigraph.engine.maintenance.optimize import optimize
from omnigraph.engine.merge.merge import MergeRequest, merge
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import InternalError
from omnigraph.storage.indexes import read_coverage
from omnigraph.storage.location import Location
from tests.engine.crash.steps import BRANCH, Step, loads, make_branch, rows_to_load, touch_branch
from tests.engine.crash.world import (
    PERSON,
    TEAM,
    branches,
    change,
    load_rows,
    look,
    make_graph,
    open_unrecovered,
    pending,
    require_settled,
)
from tests.engine.graphs import run

pytestmark = pytest.mark.crash

DIES = """
import sys
from omnigraph.storage.location import Location
from tests.engine.crash.world import change, open_unrecovered
change(
    open_unrecovered(Location.parse(sys.argv[1])),
    'insert Person { name: "dead" }  insert Team { name: "dead" }',
    sys.argv[2],
)
"""
UNDONE, FINISHED = failpoints.MUTATION_POST_TABLE_COMMIT, failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER
SEED = int(os.environ.get("OMNIGRAPH_SEED") or datetime.now(UTC).toordinal())
ENDS = [UNDONE, FINISHED] if os.environ.get("OMNIGRAPH_TORTURE") else [(UNDONE, FINISHED)[SEED % 2]]
"""How the dead write ends; the short form takes the one whose turn it is."""


def names(graph: OpenGraph, key: str, branch: str) -> set[str]:
    return {row["id"] for row in look(graph)[branch].rows[key]}


def is_indexed(graph: OpenGraph, branch: str) -> bool:
    """Whether the people of a branch have an index that knows all of them."""
    graph.coordinator(branch).forget()
    table = open_table(graph, graph.snapshot(AtBranch(branch)), PERSON)
    return [index.is_complete for index in read_coverage(table).values()] == [True]


def _overwrites(graph: OpenGraph) -> object:
    return load_rows(graph, ({"type": "Team", "data": {"name": "core"}},), Mode.OVERWRITE)


def _part_branches(graph: OpenGraph) -> None:
    touch_branch(graph)
    change(graph, 'insert Person { name: "new" }')


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of write, and how its own work shows."""

    run: Step
    shows: Callable[[OpenGraph], bool]
    prepare: Step = lambda graph: None
    branch: str = "main"
    replaces_teams: bool = False


KINDS = {
    "append": Kind(loads(Mode.APPEND), lambda graph: "gil" in names(graph, PERSON, "main")),
    "merge-rows": Kind(loads(Mode.MERGE), lambda graph: "hal" in names(graph, PERSON, "main")),
    "overwrite": Kind(_overwrites, lambda graph: names(graph, TEAM, "main") == {"core"}, replaces_teams=True),
    "merge": Kind(
        lambda graph: merge(graph, MergeRequest(BRANCH), Author("main")),
        lambda graph: "fay" in names(graph, PERSON, "main"),
        touch_branch,
    ),
    "merge-onto-branch": Kind(
        lambda graph: merge(graph, MergeRequest("main"), Author(BRANCH)),
        lambda graph: "new" in names(graph, PERSON, BRANCH),
        _part_branches,
        BRANCH,
    ),
    "ensure-indices": Kind(
        lambda graph: ensure_indices(graph, Author("main")), lambda graph: is_indexed(graph, "main")
    ),
    "optimize": Kind(
        lambda graph: optimize(graph, Author("main")),
        lambda graph: is_indexed(graph, "main"),
        lambda graph: change(graph, 'insert Person { name: "apart" }'),
    ),
}


def left_by_a_dead_process(at: Location, point: str, branch: str) -> None:
    died = run(DIES, at.uri, branch, **{failpoints.SETTING: f"{point}=exit"})
    assert died.returncode == failpoints.EXIT_STATUS, died.stderr


@pytest.fixture
def at(tmp_path: Path) -> Location:
    return Location.parse(tmp_path / "graph")


@pytest.mark.parametrize("point", ENDS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_an_open_handle_heals_its_branch_and_then_does_its_own_work(
    at: Location, kind: Kind, point: str
) -> None:
    graph = make_graph(at)
    kind.prepare(graph)
    look(graph)
    left_by_a_dead_process(at, point, kind.branch)
    (operation,) = pending(graph)

    kind.run(graph)

    assert pending(graph) == []
    assert kind.shows(graph)
    assert ("dead" in names(graph, PERSON, kind.branch)) is (point == FINISHED)
    if not kind.replaces_teams:
        assert ("dead" in names(graph, TEAM, kind.branch)) is (point == FINISHED)
    (note,) = audit.read_audit(graph.root)
    assert (note.operation_id, note.kind) == (
        operation,
        "RolledForward" if point == FINISHED else "RolledBack",
    )
    require_settled(graph)
    require_settled(open_unrecovered(at))


def test_a_new_branch_begins_with_what_a_dead_process_had_finished(at: Location) -> None:
    graph = make_graph(at)
    look(graph)
    left_by_a_dead_process(at, FINISHED, "main")
    create_branch(graph, BRANCH)
    assert pending(graph) == []
    for branch in ("main", BRANCH):
        assert "dead" in names(graph, PERSON, branch)
    require_settled(graph)


def test_a_new_branch_shows_nothing_of_what_will_be_undone(at: Location) -> None:
    """Making it only finishes; undoing is left to the next write to the branch it was made from."""
    graph = make_graph(at)
    look(graph)
    left_by_a_dead_process(at, UNDONE, "main")
    create_branch(graph, BRANCH)
    for branch in ("main", BRANCH):
        assert change(graph, 'insert Person { name: "next" }', branch).commit is not None
        assert "dead" not in names(graph, PERSON, branch)
    assert pending(graph) == []
    require_settled(graph)


@pytest.mark.parametrize("point", ENDS)
def test_a_branch_goes_with_what_a_dead_process_left_on_it(at: Location, point: str) -> None:
    graph = make_graph(at)
    make_branch(graph)
    look(graph)
    left_by_a_dead_process(at, point, BRANCH)
    delete_branch(graph, BRANCH)
    assert branches(graph) == ["main"]
    create_branch(graph, BRANCH)
    for branch in ("main", BRANCH):
        assert change(graph, 'insert Person { name: "next" }', branch).commit is not None
        assert "dead" not in names(graph, PERSON, branch)
    assert pending(graph) == []
    require_settled(graph)


def _give_up() -> None:
    raise KeyboardInterrupt


def test_a_load_given_up_after_its_record_keeps_the_branch_it_made_and_is_finished_there(
    at: Location,
) -> None:
    graph = make_graph(at)
    with failpoints.arm(FINISHED, _give_up), pytest.raises(KeyboardInterrupt):
        load_rows(graph, rows_to_load(Mode.APPEND), Mode.APPEND, BRANCH, from_="main")
    assert branches(graph) == ["main", BRANCH]
    assert change(graph, 'insert Person { name: "next" }', BRANCH).commit is not None
    assert {"gil", "hal", "next"} <= names(graph, PERSON, BRANCH)
    require_settled(graph)


def test_a_load_that_fails_takes_its_branch_back_whatever_a_dead_process_left_elsewhere(at: Location) -> None:
    graph = make_graph(at)
    left_by_a_dead_process(at, UNDONE, "main")
    point = failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE
    with failpoints.arm(point, failpoints.error(point)), pytest.raises(InternalError):
        load_rows(graph, rows_to_load(Mode.APPEND), Mode.APPEND, BRANCH, from_="main")
    assert branches(graph) == ["main"]
