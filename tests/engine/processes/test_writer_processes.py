"""Writers that are stopped, overtaken, continued and killed, on a folder and in a bucket.

In a folder a writer that stands still keeps its lock: the others wait or learn that it is busy. In a
bucket its lease expires, somebody takes over and deals with what it left; when it wakes up it does not
know that. A write must then end in exactly one way, whatever either of them believes.
"""

from __future__ import annotations

import pytest

from omnigraph import failpoints
from omnigraph.storage.location import Location
from tests.engine.processes.conftest import Start
from tests.engine.processes.people import (
    BOTH,
    TORTURE,
    commits,
    people,
    recoveries,
    require_sound,
    teams,
)

pytestmark = pytest.mark.crash

in_a_bucket = pytest.mark.parametrize(
    "shared_root", [pytest.param("s3", marks=pytest.mark.s3)], indirect=True
)
in_a_folder = pytest.mark.parametrize("shared_root", ["folder"], indirect=True)

RECORD = "^write_text_if_absent __recovery/"
COMMIT_PERSON = "^commit nodes/40d76f1f51639ec0"
COMMIT_TEAM = "^commit nodes/24b1dafb1b20370c"
PUBLISH = "^merge_rows __manifest"
REPIN = f"^{failpoints.RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH}"
AUDIT = f"^{failpoints.RECOVERY_RECORD_AUDIT}"

ADA = 'insert Person { name: "ada", age: 1 }'
BOB = 'insert Person { name: "bob", age: 2 }'
TEAM = 'insert Team { name: "ops", size: 2 }'

AFTER = {"eve": 0, "ada": 1}
BEFORE = {"eve": 0}


def require_one_end(at: Location, visible: bool) -> None:
    """The write over two tables took effect in both or in neither."""
    assert people(at).get("ada") == (1 if visible else None)
    assert teams(at).get("core") == (1 if visible else None)


# --- a writer that stands still --------------------------------------------------------------------


@in_a_folder
@pytest.mark.parametrize("place", [RECORD, COMMIT_PERSON, COMMIT_TEAM, PUBLISH, "^delete __recovery"])
def test_in_a_folder_a_writer_that_stands_still_keeps_the_branch(
    people_graph: Location, writer: Start, place: str
) -> None:
    owner, other = writer(), writer(wait=0)
    owner.stops(BOTH, place)
    busy = other.mutate(BOB)
    assert busy["error"] == "writer_busy"
    assert f"process {owner.pid}" in busy["message"]
    assert set(other.do("sweep")["found"]) <= {"busy"}
    done = owner.goes_on()
    second = other.commits(BOB)
    assert commits(people_graph)[1:] == [done["commit"], second]
    require_one_end(people_graph, visible=True)
    require_sound(people_graph)


@in_a_bucket
def test_overtaken_before_its_record_is_written_the_writer_prepares_again(
    people_graph: Location, writer: Start
) -> None:
    owner, other = writer(), writer(impatient=True)
    owner.stops(ADA, RECORD)
    second = other.commits(BOB)
    done = owner.goes_on()
    assert commits(people_graph)[1:] == [second, done["commit"]]
    assert people(people_graph) == {**AFTER, "bob": 2}
    require_sound(people_graph)


@in_a_bucket
def test_overtaken_before_its_record_is_written_a_strict_writer_is_refused(
    people_graph: Location, writer: Start
) -> None:
    owner, other = writer(), writer(impatient=True)
    owner.stops('update Person set { age: 9 } where name = "eve"', RECORD)
    second = other.commits('update Person set { age: 8 } where name = "eve"')
    refused = owner.goes_on()
    assert "error" in refused
    assert commits(people_graph)[1:] == [second]
    assert people(people_graph) == {"eve": 8}
    require_sound(people_graph)


@in_a_bucket
def test_overtaken_on_other_tables_the_writer_leaves_a_record_that_is_undone(
    people_graph: Location, writer: Start
) -> None:
    owner, other = writer(), writer(impatient=True)
    owner.stops(ADA, RECORD)
    second = other.commits(TEAM)
    refused = owner.goes_on()
    assert (refused["error"], refused["cause"]) == ("recovery_required", "ReadSetChanged")
    assert people(people_graph) == BEFORE
    third = other.commits(BOB)
    assert commits(people_graph)[1:] == [second, third]
    assert people(people_graph) == {**BEFORE, "bob": 2}
    assert recoveries(people_graph) == ["RolledBack"]
    require_sound(people_graph)


@in_a_bucket
@pytest.mark.parametrize(
    "place", ["^read_text_if_exists __schema_state", "^is_stored nodes/"], ids=["before", "after"]
)
def test_a_writer_that_finds_its_lease_expired_before_any_effect_prepares_again(
    people_graph: Location, writer: Start, place: str
) -> None:
    """It asks for the time before it writes its record, and again before it changes a table."""
    owner, other = writer(), writer(impatient=True)
    owner.stops(ADA, "pass ^write_text_if_match __locks", place, long=True)
    second = other.commits(BOB)
    done = owner.goes_on()
    assert commits(people_graph)[1:] == [second, done.get("commit")], done
    assert people(people_graph) == {**AFTER, "bob": 2}
    require_sound(people_graph)


@in_a_bucket
def test_undone_while_armed_the_writer_prepares_again(people_graph: Location, writer: Start) -> None:
    owner, other = writer(), writer(impatient=True)
    owner.stops(BOTH, COMMIT_PERSON)
    second = other.commits(BOB)
    done = owner.goes_on()
    assert commits(people_graph)[1:] == [second, done["commit"]]
    assert recoveries(people_graph) == ["RolledBack"]
    require_one_end(people_graph, visible=True)
    require_sound(people_graph)


@in_a_bucket
def test_undone_between_two_tables_the_writer_fails_on_the_second(
    people_graph: Location, writer: Start
) -> None:
    owner, other = writer(), writer(impatient=True)
    owner.stops(BOTH, COMMIT_TEAM)
    second = other.commits(BOB)
    refused = owner.goes_on()
    assert refused["error"] == "recovery_required"
    assert commits(people_graph)[1:] == [second]
    assert recoveries(people_graph) == ["RolledBack"]
    require_one_end(people_graph, visible=False)
    require_sound(people_graph)


@in_a_bucket
@pytest.mark.parametrize("place", [PUBLISH, failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER])
def test_finished_by_somebody_else_the_writer_succeeds(
    people_graph: Location, writer: Start, place: str
) -> None:
    owner, other = writer(), writer(impatient=True)
    owner.stops(BOTH, place)
    second = other.commits(BOB)
    done = owner.goes_on()
    assert commits(people_graph)[1:] == [second], "the commit of the first is reported by recovery"
    require_one_end(people_graph, visible=True)
    assert recoveries(people_graph) == ["RolledForward"]
    require_sound(people_graph, [second, done["commit"]])


@in_a_bucket
def test_undone_because_the_branch_had_moved_on_the_confirmed_writer_reports_it(
    people_graph: Location, writer: Start
) -> None:
    owner, other = writer(), writer(impatient=True)
    owner.stops(ADA, RECORD, failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER)
    second = other.commits(TEAM)
    owner.goes_to_next()
    third = other.commits(BOB)
    refused = owner.goes_on()
    assert (refused["error"], refused["cause"]) == ("recovery_required", "Decided")
    assert commits(people_graph)[1:] == [second, third]
    assert people(people_graph) == {**BEFORE, "bob": 2}
    require_sound(people_graph)


@in_a_bucket
@pytest.mark.parametrize(
    "place", ["^open nodes/", COMMIT_PERSON, COMMIT_TEAM, REPIN] if TORTURE else [COMMIT_PERSON, REPIN]
)
def test_waking_up_while_it_is_being_undone_the_writer_disturbs_nothing(
    people_graph: Location, writer: Start, place: str
) -> None:
    owner, other = writer(), writer(impatient=True)
    owner.stops(BOTH, COMMIT_TEAM)
    other.stops(BOB, f"pass {PUBLISH}", place)
    refused = owner.goes_on()
    assert refused["error"] == "recovery_required"
    second = other.goes_on()["commit"]
    assert commits(people_graph)[1:] == [second]
    require_one_end(people_graph, visible=False)
    require_sound(people_graph)


@in_a_bucket
def test_waking_up_without_any_effect_the_writer_leaves_its_record_to_who_undoes_it(
    people_graph: Location, writer: Start
) -> None:
    """He may die before he has noted what he did."""
    owner, recoverer, other = writer(wait=0), writer(impatient=True), writer(impatient=True)
    owner.stops(BOTH, COMMIT_PERSON)
    recoverer.stops(BOB, f"pass {PUBLISH}", REPIN)
    assert owner.goes_on()["error"] == "writer_busy"
    recoverer.kill()
    second = other.commits(BOB)
    assert commits(people_graph)[1:] == [second]
    assert recoveries(people_graph) == ["RolledBack"]
    require_one_end(people_graph, visible=False)
    require_sound(people_graph)


# --- the recoverer ---------------------------------------------------------------------------------


@in_a_bucket
@pytest.mark.parametrize(
    "place", [PUBLISH, COMMIT_PERSON, COMMIT_TEAM, REPIN, AUDIT] if TORTURE else [COMMIT_PERSON, REPIN]
)
def test_a_recoverer_that_wakes_up_late_changes_nothing(
    people_graph: Location, writer: Start, place: str
) -> None:
    owner, late, other = writer(), writer(impatient=True), writer(impatient=True)
    owner.stops(BOTH, COMMIT_TEAM)
    owner.kill()
    late.stops(BOB, *([PUBLISH] if place == PUBLISH else [f"pass {PUBLISH}", place]))
    second = other.commits('insert Person { name: "cleo", age: 3 }')
    third = late.goes_on()["commit"]
    assert commits(people_graph)[1:] == [second, third]
    assert people(people_graph) == {**BEFORE, "bob": 2, "cleo": 3}
    require_one_end(people_graph, visible=False)
    assert recoveries(people_graph) == ["RolledBack"]
    # A late restore may have left a table above its pin: the next write there settles it.
    fourth = other.commits('insert Team { name: "last", size: 4 }')
    assert teams(people_graph) == {"base": 0, "last": 4}
    require_sound(people_graph, [second, third, fourth])


def test_while_somebody_recovers_a_new_writer_waits(people_graph: Location, writer: Start) -> None:
    owner, recoverer, other = writer(), writer(impatient=True), writer(wait=0)
    owner.stops(BOTH, COMMIT_TEAM)
    owner.kill()
    recoverer.stops(BOB, failpoints.RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH)
    assert other.mutate(ADA)["error"] == "writer_busy"
    assert other.do("sweep")["found"] == ["busy"]
    second = recoverer.goes_on()["commit"]
    third = other.commits(ADA)
    assert commits(people_graph)[1:] == [second, third]
    require_sound(people_graph)


@in_a_bucket
def test_a_writer_on_another_branch_is_not_held_up(people_graph: Location, writer: Start) -> None:
    owner, other = writer(), writer(wait=0)
    other.do("create_branch", name="work")
    owner.stops(BOTH, COMMIT_TEAM)
    other.commits(BOB, branch="work")
    assert owner.goes_on()["commit"]
    require_one_end(people_graph, visible=True)
    assert people(people_graph, "work") == {**BEFORE, "bob": 2}
