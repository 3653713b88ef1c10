"""Writers and recoverers that are killed: the next process finds the write done or not done."""

from __future__ import annotations

import os

import pytest

from omnigraph import failpoints
from omnigraph.storage.location import Location
from tests.engine.processes.conftest import Start
from tests.engine.processes.people import (
    BOTH,
    cells,
    commits,
    people,
    recoveries,
    require_sound,
    teams,
)

in_a_bucket = pytest.mark.parametrize(
    "shared_root", [pytest.param("s3", marks=pytest.mark.s3)], indirect=True
)

ADA = 'insert Person { name: "ada", age: 1 }'
BOB = 'insert Person { name: "bob", age: 2 }'
COMMIT_TEAM = "^commit nodes/24b1dafb1b20370c"
PUBLISH = "^merge_rows __manifest"

pytestmark = pytest.mark.crash


DEATHS: dict[str, tuple[bool, list[str]]] = {
    "^write_text_if_absent __recovery": (False, []),
    "^commit nodes/40d76f1f51639ec0": (False, ["RolledBack"]),
    COMMIT_TEAM: (False, ["RolledBack"]),
    PUBLISH: (True, ["RolledForward"]),
    "^delete __recovery": (True, ["RolledForward"]),
}
"""Where a writer dies, whether its write is visible in the end, and what recovery says about it."""


@pytest.mark.parametrize(
    ("shared_root", "place"), cells(list(DEATHS), [COMMIT_TEAM, PUBLISH]), indirect=["shared_root"]
)
def test_a_writer_that_stands_still_and_is_killed(people_graph: Location, writer: Start, place: str) -> None:
    owner, other = writer(), writer(impatient=True)
    owner.stops(BOTH, place)
    owner.kill()
    second = other.commits(BOB)
    visible, recovered = DEATHS[place]
    assert people(people_graph) == {"eve": 0, "bob": 2, **({"ada": 1} if visible else {})}
    assert teams(people_graph) == {"base": 0, **({"core": 1} if visible else {})}
    assert recoveries(people_graph) == recovered
    require_sound(people_graph, [second])


@in_a_bucket
def test_the_lease_of_a_killed_writer_expires_by_itself(people_graph: Location, writer: Start) -> None:
    owner, other = writer(ttl=1.0), writer(ttl=5.0)
    owner.stops(BOTH, COMMIT_TEAM)
    owner.kill()
    second = other.commits(BOB)
    assert teams(people_graph) == {"base": 0}
    require_sound(people_graph, [second])


def test_a_child_that_outlives_its_parent_keeps_no_branch(people_graph: Location, writer: Start) -> None:
    owner, other = writer(), writer(impatient=True)
    owner.arm(COMMIT_TEAM, action="fork")
    owner.send("mutate", text=BOTH)
    child = owner.stands_still()["child"]
    owner.kill()
    second = other.commits(BOB)
    os.kill(child, 0)
    assert teams(people_graph) == {"base": 0}
    assert recoveries(people_graph) == ["RolledBack"]
    require_sound(people_graph, [second])


def test_a_sweep_recovers_what_a_killed_writer_left(people_graph: Location, writer: Start) -> None:
    owner, other = writer(), writer(impatient=True)
    owner.stops(BOTH, COMMIT_TEAM)
    owner.kill()
    assert set(other.do("sweep")["found"]) == {"busy" if not people_graph.is_local else "recovered"}
    other.commits(BOB)
    require_sound(people_graph)


# --- recoverers that die ---------------------------------------------------------------------------


@pytest.fixture
def interrupted_write(people_graph: Location, writer: Start) -> None:
    """A write that was cut short between two tables, and must be undone."""
    owner = writer()
    owner.stops(BOTH, COMMIT_TEAM)
    owner.kill()


RECOVERY_STEPS = [
    [PUBLISH],
    [f"pass {PUBLISH}", "^commit nodes/40d7"],
    [f"pass {PUBLISH}", failpoints.RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH],
    [f"pass {PUBLISH}", PUBLISH],
    [failpoints.RECOVERY_RECORD_AUDIT],
    ["^merge_rows _graph_commit_recoveries"],
    ["^delete __recovery"],
]


@pytest.mark.usefixtures("interrupted_write")
@pytest.mark.parametrize(
    ("shared_root", "steps"), cells(RECOVERY_STEPS, RECOVERY_STEPS[2:3]), indirect=["shared_root"]
)
def test_a_recoverer_that_dies_is_continued_by_the_next(
    people_graph: Location, writer: Start, steps: list[str]
) -> None:
    writer(impatient=True).dies("mutate", *steps, text=BOB)
    second = writer(impatient=True).commits(ADA)
    assert commits(people_graph)[1:] == [second]
    assert people(people_graph) == {"eve": 0, "ada": 1}
    assert teams(people_graph) == {"base": 0}
    assert recoveries(people_graph) == ["RolledBack"]
    require_sound(people_graph)


@pytest.mark.usefixtures("interrupted_write")
@pytest.mark.parametrize("shared_root", ["folder"], indirect=True)
def test_a_chain_of_recoverers_that_die_still_comes_to_an_end(people_graph: Location, writer: Start) -> None:
    for place in [steps[-1] for steps in RECOVERY_STEPS]:
        writer().dies("mutate", place, text=BOB)
    second = writer().commits(ADA)
    assert commits(people_graph)[1:] == [second]
    assert people(people_graph) == {"eve": 0, "ada": 1}
    assert recoveries(people_graph) == ["RolledBack"]
    require_sound(people_graph)


# --- first touch -----------------------------------------------------------------------------------


FIRST_TOUCH = [
    failpoints.MUTATION_POST_SIDECAR_PRE_FORK,
    failpoints.FORK_POST_CREATE_PRE_OPEN,
    failpoints.MUTATION_POST_FORK_PRE_COMMIT,
    failpoints.MUTATION_POST_TABLE_COMMIT,
]


@pytest.mark.parametrize(
    ("shared_root", "place"), cells(FIRST_TOUCH, FIRST_TOUCH[:1]), indirect=["shared_root"]
)
def test_a_writer_killed_on_its_first_touch_leaves_a_branch_that_can_be_written(
    people_graph: Location, writer: Start, place: str
) -> None:
    owner, other = writer(), writer(impatient=True)
    other.do("create_branch", name="work")
    owner.stops(BOTH, place, branch="work")
    owner.kill()
    second = other.commits(BOB, branch="work")
    assert people(people_graph, "work") == {"eve": 0, "bob": 2}
    assert teams(people_graph, "work") == {"base": 0}
    assert people(people_graph) == {"eve": 0}
    require_sound(people_graph, [second], "work")
    other.commits('insert Team { name: "ops" }', branch="work")
    require_sound(people_graph, branch="work")


@in_a_bucket
@pytest.mark.parametrize(
    "place", [failpoints.MUTATION_POST_SIDECAR_PRE_FORK, failpoints.MUTATION_POST_FORK_PRE_COMMIT]
)
def test_a_writer_that_wakes_up_on_its_first_touch_takes_nothing_over(
    people_graph: Location, writer: Start, place: str
) -> None:
    owner, other = writer(), writer(impatient=True)
    other.do("create_branch", name="work")
    owner.stops(BOTH, place, branch="work")
    second = other.commits(BOB, branch="work")
    answer = owner.goes_on()
    visible = "commit" in answer
    assert visible or answer["error"] == "recovery_required"
    third = other.commits('insert Team { name: "ops", size: 3 }', branch="work")
    assert people(people_graph, "work") == {"eve": 0, "bob": 2, **({"ada": 1} if visible else {})}
    assert teams(people_graph, "work") == {"base": 0, "ops": 3, **({"core": 1} if visible else {})}
    require_sound(people_graph, [second, third], "work")
