"""Points where tests make things fail: only named ones, each with a place in the code."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import errors, failpoints

_SOURCE = Path(failpoints.__file__).parent
_CONSTANTS = {
    name: value
    for name, value in vars(failpoints).items()
    if isinstance(value, str) and value in failpoints.NAMES
}


PHASE = "point"
"""The commit protocol reaches the points of its writer, which `PhaseFailpoints` names."""


def _reach_arguments() -> Iterator[tuple[str, ast.expr]]:
    for file in sorted(_SOURCE.rglob("*.py")):
        text = file.read_text()
        if "failpoints" not in text:
            continue  # walks reach things too
        for node in ast.walk(ast.parse(text)):
            for argument in _points_of(node) if file.name != "failpoints.py" else ():
                yield f"{file.relative_to(_SOURCE)}:{argument.lineno}", argument


def _points_of(node: ast.AST) -> list[ast.expr]:
    """The points that a statement reaches, or gives to the phases of a commit."""
    match node:
        case ast.Call(func=called, args=[argument]) if _last_name(called) == "reach":
            return [argument] if _last_name(argument) != PHASE else []
        case ast.Call(func=called, keywords=points) if _last_name(called) == "PhaseFailpoints":
            return [point.value for point in points]
        case ast.ClassDef(name="PhaseFailpoints", body=body):
            defaults = [one.value for one in body if isinstance(one, ast.AnnAssign) and one.value]
            return [value for value in defaults if not isinstance(value, ast.Constant)]
    return []


def _last_name(node: ast.expr) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


def test_every_point_has_a_place_in_the_code() -> None:
    placed = {_last_name(argument) for _, argument in _reach_arguments()}
    assert sorted(set(_CONSTANTS) - placed) == [], "these points are in the catalogue but nowhere in the code"


def _named_in(file: Path) -> Iterator[str]:
    text = file.read_text()
    if "failpoints" not in text and failpoints.SETTING not in text:
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
            case ast.Constant(value=str(value)):
                yield from (constant for constant, point in _CONSTANTS.items() if point in value)


def test_every_point_is_used_by_a_test() -> None:
    others = [file for file in Path(__file__).parent.rglob("*.py") if file != Path(__file__)]
    named = {name for file in others for name in _named_in(file)}
    assert sorted(set(_CONSTANTS) - named) == [], "no test would notice if these points were never reached"


def test_the_code_names_points_by_their_constants_only() -> None:
    assert [place for place, argument in _reach_arguments() if _last_name(argument) not in _CONSTANTS] == []


def test_each_constant_is_spelled_like_its_point() -> None:
    assert len(_CONSTANTS) == len(failpoints.NAMES)
    for constant, value in _CONSTANTS.items():
        assert constant == value.upper().replace(".", "_")


def test_an_armed_point_acts_and_a_disarmed_one_does_not() -> None:
    name = failpoints.FORK_BEFORE_RECLAIM
    reached: list[str] = []
    failpoints.reach(name)
    with failpoints.arm(name, lambda: reached.append(name)):
        failpoints.reach(name)
        failpoints.reach(failpoints.FORK_BEFORE_CLASSIFY)
        failpoints.reach(name)
    failpoints.reach(name)
    assert reached == [name, name]


def test_an_error_leaves_the_point_disarmed() -> None:
    name = failpoints.FORK_BEFORE_RECLAIM
    with (
        pytest.raises(errors.InternalError, match=r"injected failure at 'fork\.before_reclaim'"),
        failpoints.arm(name, failpoints.error(name)),
    ):
        failpoints.reach(name)
    failpoints.reach(name)


def test_an_action_can_be_limited_to_the_first_arrival() -> None:
    name = failpoints.FORK_BEFORE_RECLAIM
    with failpoints.arm(name, failpoints.once(failpoints.error(name))):
        with pytest.raises(errors.InternalError):
            failpoints.reach(name)
        failpoints.reach(name)


def test_a_paused_thread_stands_at_the_point_until_resumed() -> None:
    pause = failpoints.Pause()
    passed = threading.Event()

    def work() -> None:
        failpoints.reach(failpoints.CLASSIFY_FRESH_READ)
        passed.set()

    with failpoints.arm(failpoints.CLASSIFY_FRESH_READ, pause):
        worker = threading.Thread(target=work)
        worker.start()
        pause.wait_until_reached()
        assert not passed.is_set()
        pause.resume()
        worker.join()
    assert passed.is_set()


def test_unknown_and_doubly_armed_points_are_refused() -> None:
    with (
        pytest.raises(errors.BadRequest, match=r"no failpoint 'fork\.nowhere'"),
        failpoints.arm("fork.nowhere", lambda: None),
    ):
        pass
    name = failpoints.FORK_BEFORE_RECLAIM
    with (
        failpoints.arm(name, lambda: None),
        pytest.raises(errors.BadRequest, match="armed already"),
        failpoints.arm(name, lambda: None),
    ):
        pass


_CHILD = """
import atexit, sys
from omnigraph import failpoints
atexit.register(print, "tidied up")
failpoints.reach(failpoints.FORK_BEFORE_CLASSIFY)
print("passed the first", flush=True)
try:
    failpoints.reach(failpoints.FORK_BEFORE_RECLAIM)
finally:
    print("finally", flush=True)
"""


def _child(setting: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _CHILD],
        env={**os.environ, failpoints.SETTING: setting},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_child_process_ends_at_once_at_the_point_its_environment_names() -> None:
    child = _child("fork.before_reclaim=exit")
    assert (child.returncode, child.stdout) == (failpoints.EXIT_STATUS, "passed the first\n")


def test_a_child_process_fails_at_the_point_its_environment_names() -> None:
    child = _child(" fork.before_reclaim = error ; classify.fresh_read=exit;")
    assert child.stdout == "passed the first\nfinally\ntidied up\n"
    assert "injected failure at 'fork.before_reclaim'" in child.stderr


def test_a_child_process_stands_still_at_the_point_its_environment_names() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD],
        env={**os.environ, failpoints.SETTING: "fork.before_reclaim=stop"},
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        stopped = os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        assert stopped is not None
        assert stopped.si_status == signal.SIGSTOP
        child.send_signal(signal.SIGCONT)
        assert child.communicate()[0] == "passed the first\nfinally\ntidied up\n"
    assert child.returncode == 0


@pytest.mark.parametrize(
    "setting", ["fork.nowhere=exit", "fork.before_reclaim=explode", "fork.before_reclaim"]
)
def test_a_setting_that_means_nothing_is_refused(setting: str) -> None:
    child = _child(setting)
    assert child.returncode == 1
    assert "BadRequest" in child.stderr
