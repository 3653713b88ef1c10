"""Upkeep beside writers in other processes: no write is refused because a table was stored otherwise."""

from __future__ import annotations

import pytest

from omnigraph import failpoints
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.upkeep.table_rewrite import MIN_FRAGMENTS, TIERS
from omnigraph.storage.location import Location
from tests.engine.processes.conftest import Start
from tests.engine.processes.people import PERSON, TORTURE, commits, people, require_sound
from tests.engine.processes.test_races import acknowledged_commits, refusals, together

ROUNDS = 200 if TORTURE else 15
pytestmark = pytest.mark.crash

in_a_folder = pytest.mark.parametrize("shared_root", ["folder"], indirect=True)


def fragments(at: Location) -> int:
    graph = OpenGraph.open(Root.at(at), read_only=True)
    entry = graph.load("main").state.entries()[PERSON]
    return graph.root.tables.open(graph.root.layout.table(entry.path), entry.version).fragment_count


@in_a_folder
def test_four_writers_tidy_one_table_and_lose_nothing(people_graph: Location, writer: Start) -> None:
    writers = [writer() for _ in range(4)]
    texts = [
        [f'insert Person {{ name: "n{number}-{step}" }}' for step in range(ROUNDS)] for number in range(4)
    ]
    answers = together(writers, texts)
    assert refusals(answers) == set()
    assert len(people(people_graph)) == 1 + 4 * ROUNDS
    assert sorted(commits(people_graph)[1:]) == sorted(acknowledged_commits(answers))
    assert fragments(people_graph) <= TIERS[-1].spare < 4 * ROUNDS
    require_sound(people_graph)


@in_a_folder
def test_writers_go_on_while_another_process_optimizes(people_graph: Location, writer: Start) -> None:
    writers, keeper = [writer() for _ in range(4)], writer()
    keeper.send("optimize", times=ROUNDS // 3)
    texts = [
        [f'insert Person {{ name: "n{number}-{step}" }}' for step in range(ROUNDS)] for number in range(4)
    ]
    answers = together(writers, texts)
    assert refusals(answers) == set()
    assert refusals([keeper.answer()["answers"]]) == set()
    assert len(people(people_graph)) == 1 + 4 * ROUNDS
    require_sound(people_graph, acknowledged_commits(answers))


@in_a_folder
def test_an_update_is_not_refused_because_of_upkeep(people_graph: Location, writer: Start) -> None:
    """It read what it replaces, and what it read still holds."""
    updater, keeper = writer(), writer()
    keeper.send("optimize", times=ROUNDS)
    texts = [f'update Person set {{ age: {step} }} where name = "eve"' for step in range(ROUNDS)]
    answers = together([updater], [texts])
    assert refusals(answers) == set()
    assert refusals([keeper.answer()["answers"]]) == set()
    assert people(people_graph) == {"eve": ROUNDS - 1}
    require_sound(people_graph, acknowledged_commits(answers))


@pytest.mark.parametrize("shared_root", ["folder", pytest.param("s3", marks=pytest.mark.s3)], indirect=True)
def test_an_update_prepared_before_an_optimize_takes_effect_after_it(
    people_graph: Location, writer: Start
) -> None:
    updater, keeper = writer(), writer()
    keeper.commits('insert Person { name: "ada", age: 1 }')
    updater.stops(
        'update Person set { age: 9 } where name = "eve"', failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE
    )
    (done,) = keeper.do("optimize", times=1)["answers"]
    assert done["commit"]
    assert updater.goes_on().get("commit")
    assert people(people_graph) == {"ada": 1, "eve": 9}
    require_sound(people_graph)


@in_a_folder
def test_an_update_prepared_before_a_real_change_is_still_refused(
    people_graph: Location, writer: Start
) -> None:
    updater, rival = writer(), writer()
    updater.stops(
        'update Person set { age: 9 } where name = "eve"', failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE
    )
    rival.commits('update Person set { age: 5 } where name = "eve"')
    rival.do("optimize", times=1)
    assert updater.goes_on()["error"] in ("manifest_conflict", "read_set_conflict")
    assert people(people_graph) == {"eve": 5}


@in_a_folder
@pytest.mark.parametrize("place", ["rewrite ", "commit_compaction ", "merge_rows "])
def test_a_writer_killed_while_it_tidies_leaves_nothing_to_repair(
    people_graph: Location, writer: Start, place: str
) -> None:
    victim, heir = writer(), writer()
    for step in range(MIN_FRAGMENTS - 1):
        victim.commits(f'insert Person {{ name: "n{step}" }}')
    # Of its storage calls the ones after the record is removed belong to upkeep.
    victim.dies("mutate", "pass delete ", place, text='insert Person { name: "last" }')
    known = len(commits(people_graph))
    assert "last" in people(people_graph), "the write itself was over"
    heir.commits('update Person set { age: 3 } where name = "last"')
    assert len(commits(people_graph)) == known + 1
    assert people(people_graph)["last"] == 3
    require_sound(people_graph)
