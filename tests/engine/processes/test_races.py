"""Two to eight processes that write at the same time: no key twice, nothing lost, one chain."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from omnigraph.storage.location import Location
from tests.engine.processes.conftest import Start, Worker
from tests.engine.processes.people import (
    TORTURE,
    commits,
    edges,
    people,
    people_at,
    recoveries,
    require_sound,
    teams,
)

ROUNDS = 400 if TORTURE else 5
"""Writes of each process."""
WRITERS = 8 if TORTURE else 4
DEATHS = 250 if TORTURE else 1
"""Rounds in which a writer dies at every place."""

pytestmark = pytest.mark.crash

in_a_folder = pytest.mark.parametrize("shared_root", ["folder"], indirect=True)


def together(
    writers: list[Worker], texts: list[list[str]], branch: str = "main"
) -> list[list[dict[str, Any]]]:
    """Every process with its own writes, all at once; their answers."""
    for writer, own in zip(writers, texts, strict=True):
        writer.send("mutations", texts=own, branch=branch)
    return [list(writer.answer()["answers"]) for writer in writers]


def acknowledged_commits(answers: list[list[dict[str, Any]]]) -> list[str]:
    return [answer["commit"] for own in answers for answer in own if answer.get("commit")]


def refusals(answers: list[list[dict[str, Any]]]) -> set[str]:
    return {answer["error"] for own in answers for answer in own if "error" in answer}


@pytest.mark.parametrize(
    ("shared_root", "count", "rounds"),
    [
        ("folder", 2, ROUNDS),
        ("folder", 8, max(2, ROUNDS // 2)),
        pytest.param("s3", 2, max(2, ROUNDS // 20), marks=pytest.mark.s3),
    ],
    indirect=["shared_root"],
)
def test_writers_of_one_key_follow_each_other(
    people_graph: Location, writer: Start, count: int, rounds: int
) -> None:
    writers = [writer() for _ in range(count)]
    texts = [
        [f'insert Person {{ name: "one", age: {number * rounds + step} }}' for step in range(rounds)]
        for number in range(count)
    ]
    answers = together(writers, texts)
    assert refusals(answers) == set()
    wrote = {
        answer["commit"]: number * rounds + step
        for number, own in enumerate(answers)
        for step, answer in enumerate(own)
    }
    order = commits(people_graph)[1:]
    assert sorted(order) == sorted(wrote)
    assert people(people_graph) == {"eve": 0, "one": wrote[order[-1]]}
    for commit in order[:: max(1, len(order) // 20)]:
        assert people_at(people_graph, commit)["one"] == wrote[commit]
    require_sound(people_graph)


@in_a_folder
def test_writers_of_new_keys_and_of_other_tables_lose_nothing(people_graph: Location, writer: Start) -> None:
    writers = [writer() for _ in range(WRITERS)]
    kinds = ["Person", "Team"] * (WRITERS // 2)
    texts = [
        [f'insert {kind} {{ name: "n{number}-{step}" }}' for step in range(ROUNDS)]
        for number, kind in enumerate(kinds)
    ]
    answers = together(writers, texts)
    assert refusals(answers) == set()
    made = acknowledged_commits(answers)
    assert sorted(commits(people_graph)[1:]) == sorted(made)
    assert len(made) == WRITERS * ROUNDS
    assert len(people(people_graph)) == len(teams(people_graph)) == 1 + WRITERS // 2 * ROUNDS
    require_sound(people_graph)


@in_a_folder
@pytest.mark.parametrize(
    "strict",
    ['update Person set {{ age: {step} }} where name = "eve"', 'delete Person where name = "p{step}"'],
    ids=["update", "delete"],
)
def test_a_strict_write_beside_inserts_into_another_table_is_never_refused(
    people_graph: Location, writer: Start, strict: str
) -> None:
    """A delete also reads the edges, which do not move either."""
    changer, inserter = writer(), writer()
    steps = range(40)
    changer.commits(" ".join(f'insert Person {{ name: "p{step}", age: 1 }}' for step in steps))
    before = len(commits(people_graph))
    answers = together(
        [changer, inserter],
        [
            [strict.format(step=step) for step in steps],
            [f'insert Team {{ name: "t{step}" }}' for step in steps],
        ],
    )
    assert refusals(answers) == set()
    assert len(acknowledged_commits(answers)) == 2 * len(steps)
    assert sorted(commits(people_graph)[before:]) == sorted(acknowledged_commits(answers))
    assert len(teams(people_graph)) == 1 + len(steps)
    left = people(people_graph)
    assert left == {"eve": 0} or (left["eve"] == steps[-1] and len(left) == 1 + len(steps))
    require_sound(people_graph)


@in_a_folder
def test_updates_of_one_row_with_retries_are_never_refused(people_graph: Location, writer: Start) -> None:
    writers = [writer(), writer()]
    for number, one in enumerate(writers):
        texts = [
            f'update Person set {{ age: {number * 100 + step} }} where name = "eve"' for step in range(20)
        ]
        one.send("mutations", texts=texts, retry=1)
    answers = [list(one.answer()["answers"]) for one in writers]
    assert refusals(answers) == set()
    assert sorted(commits(people_graph)[1:]) == sorted(acknowledged_commits(answers))
    assert people(people_graph)["eve"] in (19, 119)
    require_sound(people_graph)


@in_a_folder
def test_an_update_never_brings_back_what_a_delete_removed(people_graph: Location, writer: Start) -> None:
    """Each may be refused because the other was faster; an answer always tells the truth."""
    updater, deleter = writer(), writer()
    names = [f"p{step}" for step in range(2 * ROUNDS)]
    updater.commits(" ".join(f'insert Person {{ name: "{name}", age: 1 }}' for name in names))
    before = len(commits(people_graph))
    answers = together(
        [updater, deleter],
        [
            [f'update Person set {{ age: 2 }} where name = "{name}"' for name in names],
            [f'delete Person where name = "{name}"' for name in names],
        ],
    )
    assert refusals(answers) <= {"manifest_conflict", "read_set_conflict"}
    left = people(people_graph)
    updated, deleted = answers
    for name, update, delete in zip(names, updated, deleted, strict=True):
        assert (name not in left) == (delete.get("nodes") == 1)
        if name in left:
            assert left[name] == (2 if update.get("nodes") == 1 else 1)
    assert sorted(commits(people_graph)[before:]) == sorted(acknowledged_commits(answers))
    require_sound(people_graph)


@in_a_folder
def test_an_edge_never_outlives_its_node(people_graph: Location, writer: Start) -> None:
    linker, deleter = writer(), writer()
    names = [f"p{step}" for step in range(2 * ROUNDS)]
    linker.commits(" ".join(f'insert Person {{ name: "{name}", age: 1 }}' for name in names))
    answers = together(
        [linker, deleter],
        [
            [f'insert Knows {{ from: "{name}", to: "eve" }}' for name in names],
            [f'delete Person where name = "{name}"' for name in names],
        ],
    )
    assert refusals(answers) <= {"manifest_conflict", "read_set_conflict", "constraint_violation"}
    require_sound(people_graph)
    left = people(people_graph)
    linked, deleted = answers
    for name, link, delete in zip(names, linked, deleted, strict=True):
        assert (name not in left) == (delete.get("nodes") == 1)
        if name in left:
            assert "commit" in link, "nothing was in the way of this edge"
    assert {source for source, _ in edges(people_graph)} == {
        name for name, link in zip(names, linked, strict=True) if "commit" in link and name in left
    }


@in_a_folder
def test_writers_that_die_leave_nothing_in_the_way_of_the_others(
    people_graph: Location, writer: Start
) -> None:
    """While two write, others die at one point after the other of the same kind of write."""
    places = ["^commit nodes/40d7", "^commit nodes/24b1", "^merge_rows __manifest", "^delete __recovery"]
    steady, own = [writer() for _ in range(2)], 10
    made: list[str] = []
    for round_ in range(DEATHS):
        for number, one in enumerate(steady):
            names = [f"s{number}-{round_}-{step}" for step in range(own)]
            one.send("mutations", texts=[f'insert Person {{ name: "{name}", age: 1 }}' for name in names])
        for number, place in enumerate(places):
            name = f"m{number}-{round_}"
            both = f'insert Person {{ name: "{name}" }} insert Team {{ name: "{name}" }}'
            mortal = writer()
            # Past its own record: before that it may be recovering one of the others.
            mortal.dies("mutate", "pass ^write_text_if_absent __recovery", place, text=both)
            mortal.end()
        answers = [list(one.answer()["answers"]) for one in steady]
        assert refusals(answers) == set()
        made += acknowledged_commits(answers)
    last = writer().commits('insert Person { name: "last" }')
    assert len(made) == len(steady) * DEATHS * own
    found = people(people_graph)
    wrote = {f"s{n}-{round_}-{step}" for n in range(2) for round_ in range(DEATHS) for step in range(own)}
    # The last two of each round had written all tables: their writes are finished, the others are undone.
    finished = {f"m{number}-{round_}" for number in (2, 3) for round_ in range(DEATHS)}
    assert found.keys() == {"eve", "last"} | wrote | finished
    assert set(teams(people_graph)) == {"base"} | finished
    assert Counter(recoveries(people_graph)) == {"RolledBack": 2 * DEATHS, "RolledForward": 2 * DEATHS}
    require_sound(people_graph, [*made, last])


@in_a_folder
def test_writers_of_a_branch_that_is_deleted_and_made_again(people_graph: Location, writer: Start) -> None:
    first, second, remaker = writer(), writer(), writer()
    remaker.do("create_branch", name="work")
    for number, one in enumerate((first, second)):
        texts = [f'insert Person {{ name: "w{number}-{step}" }}' for step in range(2 * ROUNDS)]
        one.send("mutations", texts=texts, branch="work")
    remade = remaker.do("remake_branch", name="work", times=ROUNDS)["answers"]
    answers = [list(one.answer()["answers"]) for one in (first, second)]
    assert [answer for answer in remade if "error" in answer] == []
    assert refusals(answers) <= {"branch_not_found", "read_set_conflict", "publish_contention"}
    last = first.commits('insert Person { name: "last" }', branch="work")
    require_sound(people_graph, [last], "work")
    require_sound(people_graph)
    assert people(people_graph) == {"eve": 0}
    alive = commits(people_graph, "work")
    found = people(people_graph, "work")
    by_commit = {
        answer["commit"]: f"w{number}-{step}"
        for number, own in enumerate(answers)
        for step, answer in enumerate(own)
        if "commit" in answer
    }
    # What this incarnation shows was acknowledged in it, and nothing of an earlier one came through.
    assert set(found) == {"eve", "last"} | {by_commit[commit] for commit in alive if commit in by_commit}
