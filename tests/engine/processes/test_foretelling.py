"""What a dry run foretells of a write, and what a recovery then says: of living writers and of dead ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omnigraph import failpoints
from omnigraph.cli.main import main
from omnigraph.engine.commit.recovery.forecast import RecoveryForecast, forecast_recovery
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.open import open_without_recovery
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from tests.engine.processes.conftest import Start, Worker
from tests.engine.processes.people import BOTH, PERSON, TEAM, require_sound, teams

pytestmark = pytest.mark.crash

COMMITTED = failpoints.MUTATION_POST_TABLE_COMMIT
WRITING = ("write", "create", "delete", "commit", "merge", "rename", "share")


def read_forecast(at: Location) -> RecoveryForecast:
    """What is foretold of the one write on record; looking writes nothing."""
    heard = Recorder()
    (found,) = forecast_recovery(open_without_recovery(Root.at(at, heard), read_only=True))
    assert not [call for call in heard.calls if call.op.startswith(WRITING)]
    return found


def run_json(capsys: pytest.CaptureFixture[str], *command: str, status: int = 0) -> Any:
    """What a command says with `--json`."""
    capsys.readouterr()
    assert main([*command, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def swept(other: Worker) -> str:
    """What a real recovery by another process says of the one write on record."""
    (fate,) = other.do("sweep")["found"]
    return str(fate)


@pytest.mark.parametrize(
    "place", [failpoints.MUTATION_POST_SIDECAR_PRE_FORK, COMMITTED, failpoints.RECOVERY_SIDECAR_DELETE]
)
def test_the_write_of_a_living_writer_is_foretold_as_busy(
    people_graph: Location, writer: Start, place: str
) -> None:
    owner, other = writer(), writer()
    other.do("create_branch", name="work")
    owner.stops(BOTH, place, branch="work")
    found = read_forecast(people_graph)
    assert (found.busy, found.stuck, found.decision) == (True, False, None)
    assert found.would == f"leave it: branch 'work' is being written by {found.writer}"
    assert f"process {owner.pid} on " in found.would
    assert found.tables == dict.fromkeys((PERSON, TEAM), "not looked at")
    assert swept(other) == "busy"
    assert "commit" in owner.goes_on()
    assert teams(people_graph, "work") == {"base": 0, "core": 1}
    require_sound(people_graph, branch="work")


def test_commands_tell_a_living_writer_and_nothing_out_of_order(
    people_graph: Location, writer: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    owner = writer()
    owner.stops(BOTH, COMMITTED)
    (ahead,) = run_json(capsys, "recover", people_graph.uri, "--dry-run")["operations"]
    assert (ahead["busy"], ahead["stuck"], ahead["decision"]) == (True, False, None)
    assert {one["class"] for one in ahead["tables"]} == {None}
    found = run_json(capsys, "doctor", people_graph.uri)
    assert (found["ok"], found["drift"], found["operations"]) == (True, [], [ahead])
    (done,) = run_json(capsys, "recover", people_graph.uri)["operations"]
    assert (done["operation_id"], done["result"]) == (ahead["operation_id"], "busy")
    assert main(["recover", people_graph.uri, "--dry-run"]) == main(["doctor", people_graph.uri]) == 0
    dry, *lines = capsys.readouterr().out.splitlines()
    by = f"{ahead['operation_id']}, a mutation on main by {ahead['writer']}"
    assert dry == f"{by}: would leave it: branch 'main' is being written by {ahead['writer']}"
    assert (lines[0], lines[-1]) == (f"under way: {dry}", "all in order")
    assert "commit" in owner.goes_on()


def test_the_write_of_a_killed_writer_is_foretold_as_a_recovery_finds_it(
    people_graph: Location, writer: Start
) -> None:
    owner, other = writer(), writer()
    owner.stops(BOTH, COMMITTED)
    owner.kill()
    found = read_forecast(people_graph)
    if people_graph.is_local:
        assert (found.busy, found.would, found.decision) == (False, "undo it", "RollBack")
        assert swept(other) == "recovered"
        assert teams(people_graph) == {"base": 0}
    else:
        # It is not known yet: its lease has not expired.
        assert found.busy
        assert swept(other) == "busy"
