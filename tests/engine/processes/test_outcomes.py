"""An operation ends in exactly one of two commits, by the swap alone: no lock and no clock takes part."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location
from tests.engine.processes.conftest import Start
from tests.engine.processes.people import BOTH, TORTURE, commits, people, recoveries, require_sound, teams
from tests.storage.conftest import ask_s3, s3_server, use_s3

pytestmark = pytest.mark.crash


@pytest.mark.parametrize(
    ("shared_root", "rounds"),
    [
        ("folder", 2000 if TORTURE else 30),
        pytest.param("s3", 100 if TORTURE else 5, marks=pytest.mark.s3),
    ],
    indirect=["shared_root"],
)
def test_of_two_outcomes_exactly_one_becomes_visible(
    people_graph: Location, writer: Start, rounds: int
) -> None:
    finisher, undoer = writer(), writer()
    graph = OpenGraph.open(Root.at(people_graph), read_only=True)
    won = []
    for _ in range(rounds):
        forward, back = graph.root.new_id(), graph.root.new_id()
        finisher.send("publish", commit=forward, rival=back)
        undoer.send("publish", commit=back, rival=forward)
        answers = [finisher.answer(), undoer.answer()]
        visible = {forward, back} & graph.load("main").state.commits.keys()
        assert len(visible) == 1
        assert [answer.get("commit") for answer in answers if "commit" in answer] == list(visible)
        assert [answer["error"] for answer in answers if "error" in answer] == ["decided"]
        won.append(forward in visible)
        # Asking again gives the same answer.
        assert finisher.do("publish", commit=forward, rival=back) == answers[0]
        assert undoer.do("publish", commit=back, rival=forward) == answers[1]
    require_sound(people_graph)


# --- wall clocks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shared_root", "wall"),
    [
        ("folder", "frozen"),
        ("folder", "jumping"),
        # In a bucket a lease runs out, and it is there that somebody could look at the wrong clock.
        *(pytest.param("s3", wall, marks=pytest.mark.s3) for wall in ["jumping", *["frozen"] * TORTURE]),
    ],
    indirect=["shared_root"],
)
def test_no_wall_clock_decides_anything(people_graph: Location, writer: Start, wall: str) -> None:
    owner, others = writer(wall=wall), [writer(wall=wall, impatient=True) for _ in range(2)]
    owner.stops(BOTH, "^commit nodes/24b1dafb1b20370c")
    owner.kill()
    first = others[0].commits('insert Person { name: "bob", age: 2 }')
    third = writer(wall=wall)
    third.stops('insert Person { name: "cleo", age: 3 }', "^merge_rows __manifest")
    third.kill()
    second = others[1].commits('insert Team { name: "ops", size: 3 }')
    assert people(people_graph) == {"eve": 0, "bob": 2, "cleo": 3}
    assert teams(people_graph) == {"base": 0, "ops": 3}
    assert recoveries(people_graph).count("RolledBack") == 1
    assert recoveries(people_graph).count("RolledForward") == 1
    assert commits(people_graph)[1:] == [first, second]
    require_sound(people_graph)


# --- lost answers ----------------------------------------------------------------------------------


@pytest.fixture
def lossy_root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Location]:
    """A prefix in a bucket of a server that loses its first answer to every put of a lease."""
    with s3_server(lose=r"/__locks/.*\.json$") as endpoint:
        yield use_s3(endpoint, monkeypatch)


@pytest.fixture
def shared_root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Location:
    """As everywhere, and a store that loses answers."""
    kind = getattr(request, "param", "folder")
    if kind == "folder":
        return Location.parse(tmp_path_factory.mktemp("shared") / "graph")
    found: Location = request.getfixturevalue({"s3": "s3_root", "lossy": "lossy_root"}[kind])
    return found


@pytest.mark.s3
@pytest.mark.parametrize("shared_root", ["lossy"], indirect=True)
def test_a_lease_whose_put_was_never_answered_is_recognised_by_its_holder(
    people_graph: Location, writer: Start
) -> None:
    owner, other = writer(), writer(impatient=True)
    first = owner.commits('insert Person { name: "bob", age: 2 }')
    owner.stops(BOTH, "^commit nodes/24b1dafb1b20370c")
    second = other.commits('insert Person { name: "cleo", age: 3 }')
    assert owner.goes_on()["error"] == "recovery_required"
    third = owner.commits('insert Team { name: "ops", size: 3 }')
    assert people(people_graph) == {"eve": 0, "bob": 2, "cleo": 3}
    assert teams(people_graph) == {"base": 0, "ops": 3}
    assert commits(people_graph)[1:] == [first, second, third]
    require_sound(people_graph)
    lost = ask_s3("answers_lost")
    assert lost >= 8, "each of the writes took and gave back the lease without an answer"
