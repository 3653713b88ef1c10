"""Schema changes beside readers, writers and new branches in other processes, stopped and killed ones too."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph import failpoints
from omnigraph.engine.commit.schema_lock import find_lock
from omnigraph.engine.graph.layout import table_keys, table_path
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.graph.table_types import table_types_of
from omnigraph.storage.location import Location
from tests.engine.processes.conftest import Start, Worker
from tests.engine.processes.people import (
    SCHEMA,
    TORTURE,
    cells,
    people,
    recoveries,
    require_sound,
    run,
    teams,
)
from tests.engine.processes.test_races import acknowledged_commits, refusals

ROUNDS = 60 if TORTURE else 6

pytestmark = pytest.mark.crash

in_a_folder = pytest.mark.parametrize("shared_root", ["folder"], indirect=True)
in_a_bucket = pytest.mark.parametrize(
    "shared_root", [pytest.param("s3", marks=pytest.mark.s3)], indirect=True
)

WANTED = (
    SCHEMA.replace("size: I32?", "size: I64?").replace("age: I32?", "age: I32?  note: String?")
    + "node City { name: String @key }\n"
)
"""People and teams with other columns, and a new type."""
BOB = 'insert Person { name: "bob", age: 2 }'

MAKE_CITY = f"^create {table_path('node', 'City')}"
COMMIT_PERSON = "^commit nodes/40d76f1f51639ec0"
COMMIT_TEAM = "^commit nodes/24b1dafb1b20370c"
CONFIRM = "^write_text __recovery/"
PUBLISH = "^merge_rows __manifest"
STAGE = "^write_text _schema.pg.staging"
PROMOTE = "^write_text_if_match _schema.pg$"
PROMOTE_LAST = "^write_text_if_match __schema_state.json$"


def require_one_schema(at: Location, *, new: bool) -> None:
    """The schema files, the newest commit and the tables agree, and nothing is left of a change."""
    graph = OpenGraph.open(Root.at(at), read_only=True)
    newest, live = graph.snapshot(AtBranch()), graph.schema()
    assert ("City" in live.catalog.nodes) == new
    assert live.catalog.fingerprint == graph.catalog_at(newest).fingerprint
    assert sorted(newest.entries) == table_keys(live.catalog)
    for key, target in table_types_of(live.accepted).items():
        assert open_table(graph, newest, key).schema.names == target.schema.names
    assert [one for one in graph.root.objects.list_dir(graph.root.layout.root) if "staging" in one.name] == []
    assert find_lock(graph.root) is None


# --- all at once -----------------------------------------------------------------------------------


@in_a_folder
def test_writers_go_on_while_the_schema_changes_and_lose_nothing(
    people_graph: Location, writer: Start
) -> None:
    changer, others = writer(), [writer() for _ in range(2)]
    wanted = [f"{SCHEMA}node T{step} {{ name: String @key }}\n" for step in range(ROUNDS // 2)]
    changer.send("apply_schemas", schemas=wanted)
    for number, one in enumerate(others):
        texts = [f'insert Person {{ name: "n{number}-{step}", age: 1 }}' for step in range(ROUNDS)]
        one.send("mutations", texts=texts)
    changed = list(changer.answer()["answers"])
    answers = [list(one.answer()["answers"]) for one in others]
    assert refusals([changed]) == set()
    assert refusals(answers) == set()
    assert len(people(people_graph)) == 1 + 2 * ROUNDS
    require_sound(people_graph, acknowledged_commits([changed, *answers]))
    require_one_schema(people_graph, new=False)


@in_a_folder
def test_a_branch_is_made_before_a_schema_change_or_after_it(people_graph: Location, writer: Start) -> None:
    """Never in between: it would have the tables of one schema and be written by another."""
    changer, brancher = writer(), writer()
    brancher.do("create_branch", name="work")
    brancher.send("remake_branch", name="work", times=ROUNDS)
    schemas = [SCHEMA.replace("age: I32?", f"age: I32?  note{step}: String?") for step in range(ROUNDS)]
    changed = list(changer.do("apply_schemas", schemas=schemas)["answers"])
    made = list(brancher.answer()["answers"])
    assert refusals([changed]) <= {"schema_apply_blocked"}, changed
    assert refusals([made]) <= {"schema_apply_blocked", "branch_not_found", "writer_busy"}, made
    brancher.do("create_branch", name="work")
    brancher.commits(BOB, branch="work")
    assert people(people_graph, "work") == {"eve": 0, "bob": 2}
    require_sound(people_graph, branch="work")
    graph = OpenGraph.open(Root.at(people_graph), read_only=True)
    known = {branch: graph.catalog_at(graph.snapshot(AtBranch(branch))) for branch in ("main", "work")}
    assert known["main"].fingerprint == known["work"].fingerprint == graph.schema().catalog.fingerprint


# --- one that is stopped, or dies ------------------------------------------------------------------


DEATHS: dict[str, tuple[bool, list[str]]] = {
    "^write_text_if_absent __recovery": (False, []),
    failpoints.SCHEMA_APPLY_POST_SIDECAR_PRE_EFFECT: (False, ["RolledBack"]),
    COMMIT_PERSON: (False, ["RolledBack"]),
    COMMIT_TEAM: (False, ["RolledBack"]),
    STAGE: (False, ["RolledBack"]),
    failpoints.SCHEMA_APPLY_AFTER_STAGING_WRITE: (False, ["RolledBack"]),
    PUBLISH: (True, ["RolledForward"]),
    PROMOTE: (True, ["RolledForward"]),
    PROMOTE_LAST: (True, ["RolledForward"]),
    "^delete __recovery": (True, ["RolledForward"]),
}
"""Where a schema change dies, whether it is visible in the end, and what recovery says about it."""


@pytest.mark.parametrize(
    ("shared_root", "place"), cells(list(DEATHS), [COMMIT_TEAM, PROMOTE_LAST]), indirect=["shared_root"]
)
def test_another_process_reads_and_writes_after_a_schema_change_that_died(
    people_graph: Location, writer: Start, place: str
) -> None:
    changer, reader, other = writer(), writer(impatient=True), writer(impatient=True)
    assert reader.do("read") == {"properties": ["name", "age"], "names": ["eve"]}
    changer.dies("apply_schema", place, schema=WANTED)
    seen = reader.do("read")
    assert seen["names"] == ["eve"]
    assert seen["properties"] in (["name", "age"], ["name", "age", "note"])
    last = other.commits(BOB)
    made, recovered = DEATHS[place]
    assert people(people_graph) == {"eve": 0, "bob": 2}
    assert recoveries(people_graph) == recovered
    columns = ["name", "age", "note"] if made else ["name", "age"]
    assert reader.do("read") == {"properties": columns, "names": ["bob", "eve"]}
    # It is there or not; asked for again, by a process that knew the old schema, it is there.
    assert other.do("apply_schema", schema=WANTED)["applied"] == (not made)
    require_one_schema(people_graph, new=True)
    require_sound(people_graph, [last, other.commits('insert City { name: "oslo" }')])


def stop_in_change(writer: Start, place: str) -> tuple[Worker, Worker]:
    """A process that stands still in a schema change, and one that does not wait for it."""
    changer, other = writer(), writer(impatient=True)
    changer.arm(place)
    changer.send("apply_schema", schema=WANTED)
    changer.stands_still()
    return changer, other


@in_a_folder
@pytest.mark.parametrize("place", [COMMIT_TEAM, PUBLISH, PROMOTE])
def test_in_a_folder_a_schema_change_that_stands_still_keeps_main(
    people_graph: Location, writer: Start, place: str
) -> None:
    changer, other = writer(), writer(wait=0)
    changer.arm(place)
    changer.send("apply_schema", schema=WANTED)
    changer.stands_still()
    assert other.mutate(BOB)["error"] == "writer_busy"
    assert other.do("apply_schema", schema=SCHEMA)["error"] == "schema_apply_blocked"
    assert other.do("create_branch", name="work")["error"] in ("schema_apply_blocked", "writer_busy")
    assert set(other.do("sweep")["found"]) <= {"busy"}
    assert changer.goes_on()["applied"]
    other.commits(BOB)
    require_one_schema(people_graph, new=True)
    require_sound(people_graph)


@in_a_bucket
@pytest.mark.parametrize("place", [COMMIT_TEAM, STAGE, CONFIRM] if TORTURE else [COMMIT_TEAM])
def test_a_schema_change_undone_while_it_stood_still_reports_it(
    people_graph: Location, writer: Start, place: str
) -> None:
    changer, other = stop_in_change(writer, place)
    second = other.commits(BOB)
    assert recoveries(people_graph) == ["RolledBack"]
    refused = changer.goes_on()
    assert refused["error"] == "recovery_required", refused
    assert people(people_graph) == {"eve": 0, "bob": 2}
    third = other.commits('insert Team { name: "ops", size: 3 }')
    assert teams(people_graph) == {"base": 0, "ops": 3}
    assert changer.do("apply_schema", schema=WANTED)["applied"]
    require_one_schema(people_graph, new=True)
    require_sound(people_graph, [second, third])


@in_a_bucket
@pytest.mark.parametrize("place", [PUBLISH, PROMOTE, PROMOTE_LAST] if TORTURE else [PROMOTE])
def test_a_schema_change_finished_by_somebody_else_succeeds(
    people_graph: Location, writer: Start, place: str
) -> None:
    changer, other = stop_in_change(writer, place)
    second = other.commits(BOB)
    done = changer.goes_on()
    assert done.get("applied"), done
    assert recoveries(people_graph) == ["RolledForward"]
    require_one_schema(people_graph, new=True)
    require_sound(people_graph, [second, done["commit"]])


def _with(schema: str, extra: str) -> dict[str, Any]:
    return {"schema": f"{schema}{extra}\n"}


@in_a_bucket
@pytest.mark.parametrize(
    "place", [MAKE_CITY, failpoints.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT, PROMOTE, PROMOTE_LAST]
)
def test_a_schema_change_that_wakes_up_behind_a_newer_one_undoes_nothing(
    people_graph: Location, writer: Start, place: str
) -> None:
    changer, other = stop_in_change(writer, place)
    other.commits(BOB)
    assert other.do("apply_schema", **_with(WANTED, "node Newer { name: String @key }"))["applied"]
    second = other.commits('insert City { name: "oslo" } insert Newer { name: "n" }')
    answer = changer.goes_on()
    graph = OpenGraph.open(Root.at(people_graph))
    assert {"City", "Newer"} <= graph.schema().catalog.nodes.keys(), answer
    run(graph, 'insert City { name: "rome" } insert Newer { name: "m" }')
    assert open_table(graph, graph.snapshot(AtBranch()), "node:City").count() == 2
    require_one_schema(people_graph, new=True)
    require_sound(people_graph, [second])


@in_a_bucket
@pytest.mark.parametrize("place", [PROMOTE, PROMOTE_LAST] if TORTURE else [PROMOTE])
def test_a_schema_that_came_back_is_not_taken_for_what_it_was(
    people_graph: Location, writer: Start, place: str
) -> None:
    """The change that sleeps has seen the same schema before, and a bucket tells states by their content."""
    changer, other = writer(), writer(impatient=True)
    changer.arm(place)
    changer.send("apply_schema", schema=SCHEMA.replace("node Person {", 'node Person @description("x") {'))
    changer.stands_still()
    other.commits(BOB)
    assert other.do("apply_schema", schema=SCHEMA)["applied"]
    answer = changer.goes_on()
    assert OpenGraph.open(Root.at(people_graph)).schema().source == SCHEMA, answer
    require_one_schema(people_graph, new=False)
    require_sound(people_graph, [other.commits('insert Team { name: "ops", size: 3 }')])
