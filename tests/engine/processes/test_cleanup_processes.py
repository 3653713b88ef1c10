"""Cleanup beside readers and writers in other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

import omnigraph as og
from omnigraph import failpoints
from omnigraph.storage.location import Location
from tests.engine.processes.conftest import Start
from tests.engine.processes.people import TORTURE, commits, people, require_sound
from tests.engine.processes.test_races import acknowledged_commits, refusals, together

ROUNDS = 100 if TORTURE else 8
pytestmark = pytest.mark.crash

in_a_folder = pytest.mark.parametrize("shared_root", ["folder"], indirect=True)
in_a_bucket = pytest.mark.parametrize(
    "shared_root", [pytest.param("s3", marks=pytest.mark.s3)], indirect=True
)

COMMIT_PERSON = "^commit nodes/"
NINE = 'update Person set { age: 9 } where name = "eve"'


@in_a_folder
def test_the_minimum_age_protects_a_reader_of_another_process(people_graph: Location, writer: Start) -> None:
    reader, keeper = writer(), writer()
    reader.do("pin")
    keeper.commits('insert Person { name: "ada", age: 1 }')
    keeper.do("optimize", times=1)
    assert keeper.do("cleanup", times=1, age=600.0) == {"answers": [{"removed": 0}]}
    assert reader.do("read_pinned") == {"names": ["eve"]}
    # Another version, of which nothing is in memory yet.
    reader.do("pin")
    keeper.commits('insert Person { name: "bo", age: 1 }')
    keeper.do("optimize", times=1)
    assert keeper.do("cleanup", times=1)["answers"][0]["removed"] > 0
    assert reader.do("read_pinned")["error"] == "version_reclaimed"
    reader.do("pin")
    assert reader.do("read_pinned") == {"names": ["ada", "bo", "eve"]}


@in_a_folder
def test_writers_go_on_while_another_process_cleans_up(people_graph: Location, writer: Start) -> None:
    writers, keeper = [writer() for _ in range(3)], writer()
    keeper.send("cleanup", times=ROUNDS)
    texts = [
        [f'insert Person {{ name: "n{number}-{step}" }}' for step in range(ROUNDS)] for number in range(3)
    ]
    answers = together(writers, texts)
    assert refusals(answers) == set()
    assert refusals([keeper.answer()["answers"]]) == set()
    assert len(people(people_graph)) == 1 + 3 * ROUNDS
    require_sound(people_graph, acknowledged_commits(answers))


@in_a_folder
@pytest.mark.parametrize(("age", "fate"), [(600.0, {"commit"}), (0.0, {"error", "message", "cause"})])
def test_a_write_prepared_before_upkeep_and_a_cleanup_takes_effect_or_reports_a_conflict(
    people_graph: Location, writer: Start, age: float, fate: set[str]
) -> None:
    """The minimum age also protects what it asks: whether its tables were only stored otherwise since."""
    updater, keeper = writer(), writer()
    keeper.commits('insert Person { name: "ada", age: 1 }')
    updater.stops(NINE, failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE)
    keeper.do("optimize", times=1)
    keeper.do("cleanup", times=1, age=age)
    answer = updater.goes_on()
    assert fate <= answer.keys(), answer
    assert answer.get("error") in (None, "manifest_conflict", "read_set_conflict")
    assert people(people_graph)["eve"] == (9 if answer.get("commit") else 0)
    require_sound(people_graph)


@in_a_bucket
def test_a_writer_that_slept_through_a_cleanup_does_no_harm(people_graph: Location, writer: Start) -> None:
    """What it ran into is kept, although no branch shows it any more and newer versions changed no row."""
    sleeper, other = writer(), writer(impatient=True)
    sleeper.stops(NINE, COMMIT_PERSON, long=True)
    other.commits('insert Person { name: "ada", age: 1 }')
    other.commits('update Person set { age: 5 } where name = "eve"')
    other.do("optimize", times=1)
    (done,) = other.do("cleanup", times=1)["answers"]
    assert done["removed"] > 0
    answer = sleeper.goes_on()
    assert answer.get("error"), answer
    assert people(people_graph) == {"ada": 1, "eve": 5}
    assert len(commits(people_graph)) == 4
    other.commits('insert Person { name: "bo", age: 2 }')
    require_sound(people_graph)


CLEANER = """
import sys
import omnigraph as og
place, rounds = sys.argv[1], int(sys.argv[2])
with og.open(place) as graph:
    for _ in range(rounds):
        graph.cleanup(keep=1)
        og.open(place, read_only=True).snapshot()
"""
DELETER = """
import sys
import omnigraph as og
with og.open(sys.argv[1]) as graph:
    print("ready", flush=True)
    while not sys.stdin.closed:
        for name in ("x", "y"):
            graph.branches.create(name)
            graph.mutate('query q() { insert P { k: "a" } }', branch=name)
        for name in ("y", "x"):
            graph.branches.delete(name)
        print("round", flush=True)
        if sys.stdin.readline() != "go\\n":
            break
"""


def test_a_cleanup_survives_branches_that_another_process_makes_and_deletes(tmp_path: Path) -> None:
    place = str(tmp_path / "g.omni")
    og.init(place, schema="node P { k: String @key }\nnode Q { k: String @key }\nedge E: P -> Q").close()
    environment = {**os.environ, "OMNIGRAPH_CLEANUP_MIN_AGE": "0"}
    with subprocess.Popen(
        [sys.executable, "-c", DELETER, place], stdin=PIPE, stdout=PIPE, text=True, env=environment
    ) as deleter:
        assert deleter.stdin is not None
        assert deleter.stdout is not None
        assert deleter.stdout.readline() == "ready\n"
        with subprocess.Popen(
            [sys.executable, "-c", CLEANER, place, str(ROUNDS)], stderr=PIPE, text=True, env=environment
        ) as cleaner:
            while cleaner.poll() is None:
                assert deleter.stdout.readline() == "round\n"
                deleter.stdin.write("go\n")
                deleter.stdin.flush()
            assert cleaner.stderr is not None
            errors = cleaner.stderr.read()
        deleter.stdin.close()
    assert cleaner.returncode == 0, errors
    with og.open(place) as graph:
        assert graph.cleanup(keep=1).ok
