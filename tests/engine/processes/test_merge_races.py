"""Merges beside writers, other merges and the end of their branch, and merges that are stopped or killed."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph import failpoints
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location
from tests.engine.processes.conftest import Start, Worker
from tests.engine.processes.people import (
    TORTURE,
    cells,
    commits,
    people,
    recoveries,
    require_sound,
    teams,
)
from tests.engine.processes.test_races import acknowledged_commits, refusals

ROUNDS = 100 if TORTURE else 4

pytestmark = pytest.mark.crash

in_a_folder = pytest.mark.parametrize("shared_root", ["folder"], indirect=True)
in_a_bucket = pytest.mark.parametrize(
    "shared_root", [pytest.param("s3", marks=pytest.mark.s3)], indirect=True
)

COMMIT_PERSON = "^commit nodes/40d76f1f51639ec0"
COMMIT_TEAM = "^commit nodes/24b1dafb1b20370c"
PUBLISH = "^merge_rows __manifest"
CAPTURED = failpoints.BRANCH_MERGE_POST_AUTHORITY_CAPTURE
HALF = failpoints.BRANCH_MERGE_ADOPT_AFTER_UPSERT_PRE_DELETE
MOVED = failpoints.BRANCH_MERGE_POST_EFFECTS_PRE_CONFIRM
CONFIRMED = failpoints.BRANCH_MERGE_POST_PHASE_B_PRE_MANIFEST_COMMIT


def merges(at: Location, branch: str = "main") -> list[str]:
    """The commits that took a branch in."""
    state = OpenGraph.open(Root.at(at), read_only=True).load(branch).state
    return [commit.id for commit in state.commits.values() if commit.merged_parent is not None]


def new_people(number: int | str) -> list[str]:
    return [f'insert Person {{ name: "n{number}-{step}", age: 1 }}' for step in range(ROUNDS)]


def names(*numbers: int | str) -> set[str]:
    return {f"n{number}-{step}" for number in numbers for step in range(ROUNDS)}


# --- all at once -----------------------------------------------------------------------------------


@in_a_folder
def test_a_merge_and_writes_to_its_target_lose_nothing_of_each_other(
    people_graph: Location, writer: Start
) -> None:
    merger, others = writer(), [writer() for _ in range(2)]
    merger.do("create_branch", name="work")
    merger.send("take_in", source="work", texts=new_people("work"))
    for number, one in enumerate(others):
        one.send("mutations", texts=new_people(number))
    answers = [list(one.answer()["answers"]) for one in (merger, *others)]
    assert refusals(answers) == set()
    assert people(people_graph).keys() == {"eve"} | names("work", 0, 1)
    assert len(merges(people_graph)) == ROUNDS
    require_sound(people_graph, [one["commit"] for one in answers[0] if "outcome" in one])
    require_sound(people_graph, acknowledged_commits(answers[1:]))
    assert people(people_graph, "work").keys() == {"eve"} | names("work")


@in_a_folder
def test_merges_of_several_branches_into_one_lose_nothing_of_each_other(
    people_graph: Location, writer: Start
) -> None:
    mergers = {name: writer() for name in ("left", "right", "third")}
    for name, one in mergers.items():
        one.do("create_branch", name=name)
    for name, one in mergers.items():
        one.send("take_in", source=name, texts=new_people(name))
    answers = [list(one.answer()["answers"]) for one in mergers.values()]
    assert refusals(answers) == set()
    assert people(people_graph).keys() == {"eve"} | names(*mergers)
    assert len(merges(people_graph)) == 3 * ROUNDS
    require_sound(people_graph)


@in_a_folder
def test_of_two_merges_that_contradict_each_other_one_is_made(people_graph: Location, writer: Start) -> None:
    mergers = [writer(), writer()]
    for age, one in enumerate(mergers, 8):
        one.do("create_branch", name=f"b{age}")
        one.commits(f'update Person set {{ age: {age} }} where name = "eve"', branch=f"b{age}")
    for age, one in enumerate(mergers, 8):
        one.send("merge", source=f"b{age}")
    answers = {age: one.answer() for age, one in enumerate(mergers, 8)}
    (won,) = [age for age, answer in answers.items() if answer.get("commit")]
    (lost,) = answers.keys() - {won}
    assert answers[lost]["error"] == "merge_conflicts"
    assert people(people_graph) == {"eve": won}
    assert merges(people_graph) == [answers[won]["commit"]]
    require_sound(people_graph)


@in_a_folder
@pytest.mark.parametrize("place", [CAPTURED, failpoints.BRANCH_MERGE_POST_CANDIDATE_VALIDATION, "^open "])
def test_a_merge_whose_branch_is_deleted_meanwhile_is_made_or_refused(
    people_graph: Location, writer: Start, place: str
) -> None:
    merger, deleter = prepare_merge(writer)
    merger.arm(place)
    merger.send("merge", source="work")
    merger.stands_still()
    assert deleter.do("delete_branch", name="work") == {"done": True}
    answer = merger.goes_on()
    assert answer.get("commit") or answer["error"] in ("branch_not_found", "version_reclaimed"), answer
    require_merged(people_graph, made="commit" in answer)
    assert merger.do("merge", source="work")["error"] == "branch_not_found"
    require_sound(people_graph, [deleter.commits('insert Person { name: "last" }')])


@in_a_folder
def test_merges_beside_the_end_of_their_branch_are_made_or_refused(
    people_graph: Location, writer: Start
) -> None:
    merger, remaker = writer(), writer()
    remaker.do("create_branch", name="work")
    merger.send("take_in", source="work", texts=new_people("work"))
    remade = remaker.do("remake_branch", name="work", times=ROUNDS)["answers"]
    answers = merger.answer()["answers"]
    assert [answer for answer in remade if "error" in answer] == []
    written, merged = answers[::2], answers[1::2]
    assert refusals([written]) <= {"branch_not_found", "read_set_conflict", "publish_contention"}
    assert refusals([merged]) <= {"branch_not_found", "version_reclaimed"}
    require_sound(people_graph, acknowledged_commits([merged]))
    assert people(people_graph).keys() <= {"eve"} | names("work")
    assert len(merges(people_graph)) == len(acknowledged_commits([merged]))


# --- one that is stopped, or dies ------------------------------------------------------------------


def prepare_merge(writer: Start, **options: Any) -> tuple[Worker, Worker]:
    """Two processes, and a branch that adds, changes and removes people and has a team of its own."""
    merger, other = writer(), writer(**options)
    other.commits('insert Person { name: "old", age: 1 } insert Person { name: "gone", age: 1 }')
    other.do("create_branch", name="work")
    other.commits(
        'insert Person { name: "new", age: 5 } insert Person { name: "old", age: 5 } '
        'insert Team { name: "core", size: 5 }',
        branch="work",
    )
    other.commits('delete Person where name = "gone"', branch="work")
    return merger, other


BEFORE = {"eve": 0, "old": 1, "gone": 1}
AFTER = {"eve": 0, "old": 5, "new": 5}


def require_merged(at: Location, *, made: bool, **more: int) -> None:
    """The branch was taken in as a whole, or not at all."""
    assert people(at) == (AFTER if made else BEFORE) | more
    assert teams(at) == {"base": 0} | ({"core": 5} if made else {})
    assert len(merges(at)) == made


DEATHS: dict[str, tuple[bool, list[str]]] = {
    "^write_text_if_absent __recovery": (False, []),
    HALF: (False, ["RolledBack"]),
    COMMIT_TEAM: (False, ["RolledBack"]),
    MOVED: (False, ["RolledBack"]),
    CONFIRMED: (True, ["RolledForward"]),
    "^delete __recovery": (True, ["RolledForward"]),
}
"""Where a merge dies, whether it is visible in the end, and what recovery says about it."""


@pytest.mark.parametrize(("shared_root", "place"), cells(list(DEATHS), [HALF]), indirect=["shared_root"])
def test_a_merge_that_stands_still_and_is_killed_is_made_or_not(
    people_graph: Location, writer: Start, place: str
) -> None:
    merger, other = prepare_merge(writer, impatient=True)
    merger.arm(place)
    merger.send("merge", source="work")
    merger.stands_still()
    merger.kill()
    made, recovered = DEATHS[place]
    last = other.commits('insert Person { name: "bob", age: 2 }')
    require_merged(people_graph, made=made, bob=2)
    assert recoveries(people_graph) == recovered
    require_sound(people_graph, [last])
    again = other.do("merge", source="work")
    assert again["outcome"] == ("already_up_to_date" if made else "merged")
    require_merged(people_graph, made=True, bob=2)
    require_sound(people_graph)


@in_a_bucket
@pytest.mark.parametrize("place", [HALF, COMMIT_TEAM, MOVED] if TORTURE else [HALF])
def test_a_merge_undone_while_it_stood_still_reports_it(
    people_graph: Location, writer: Start, place: str
) -> None:
    merger, other = prepare_merge(writer, impatient=True)
    merger.arm(place)
    merger.send("merge", source="work")
    merger.stands_still()
    second = other.commits('insert Person { name: "bob", age: 2 }')
    assert merger.goes_on()["error"] == "recovery_required"
    require_merged(people_graph, made=False, bob=2)
    assert recoveries(people_graph) == ["RolledBack"]
    third = merger.do("merge", source="work")
    assert third["outcome"] == "merged"
    require_merged(people_graph, made=True, bob=2)
    assert commits(people_graph)[2:] == [second, third["commit"]]
    require_sound(people_graph)


@in_a_bucket
def test_a_merge_undone_before_its_first_table_moved_is_worked_out_again(
    people_graph: Location, writer: Start
) -> None:
    merger, other = prepare_merge(writer, impatient=True)
    merger.arm(COMMIT_PERSON)
    merger.send("merge", source="work")
    merger.stands_still()
    second = other.commits('insert Person { name: "bob", age: 2 }')
    done = merger.goes_on()
    assert done.get("outcome") == "merged", done
    require_merged(people_graph, made=True, bob=2)
    assert commits(people_graph)[2:] == [second, done["commit"]]
    assert recoveries(people_graph) == ["RolledBack"]
    require_sound(people_graph)


@in_a_bucket
@pytest.mark.parametrize("place", [CONFIRMED, PUBLISH] if TORTURE else [CONFIRMED])
def test_a_merge_finished_by_somebody_else_succeeds(
    people_graph: Location, writer: Start, place: str
) -> None:
    merger, other = prepare_merge(writer, impatient=True)
    merger.arm(place)
    merger.send("merge", source="work")
    merger.stands_still()
    second = other.commits('insert Person { name: "bob", age: 2 }')
    done = merger.goes_on()
    assert done.get("commit"), done
    require_merged(people_graph, made=True, bob=2)
    assert merges(people_graph) == [done["commit"]]
    assert recoveries(people_graph) == ["RolledForward"]
    require_sound(people_graph, [second, done["commit"]])
    assert other.do("merge", source="work")["outcome"] == "already_up_to_date"
