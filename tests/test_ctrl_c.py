"""Ctrl-C that has to wait for the end of something."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

import pytest

from omnigraph.ctrl_c import postpone_ctrl_c

pytestmark = pytest.mark.usefixtures("hears_ctrl_c")


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def in_a_block(*steps: Callable[[], object]) -> None:
    """Do one after the other while Ctrl-C is postponed."""
    with postpone_ctrl_c():
        for step in steps:
            step()


def test_the_first_waits_for_the_end_of_the_block() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        in_a_block(press, lambda: done.append("after"))
    assert done == ["after"]
    with pytest.raises(KeyboardInterrupt):
        press()


def test_the_second_does_not_wait() -> None:
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        in_a_block(press, lambda: done.append("between"), press, lambda: done.append("after"))
    assert done == ["between"]


def test_a_block_that_fails_is_interrupted_all_the_same_and_tells_its_failure() -> None:
    with pytest.raises(KeyboardInterrupt) as raised:
        in_a_block(press, lambda: int("no number"))
    assert isinstance(raised.value.__context__, ValueError)


def test_without_ctrl_c_nothing_happens() -> None:
    with postpone_ctrl_c():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_user_hears_each_press_once() -> None:
    heard = []

    def hear(number: int, _: FrameType | None) -> None:
        heard.append(number)

    signal.signal(signal.SIGINT, hear)
    with postpone_ctrl_c():
        press()
        assert heard == []
        press()
        assert heard == [signal.SIGINT]
    assert heard == [signal.SIGINT] * 2


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_without_a_handler_in_python_nothing_changes(handler: signal.Handlers) -> None:
    signal.signal(signal.SIGINT, handler)
    with postpone_ctrl_c():
        assert signal.getsignal(signal.SIGINT) is handler


def test_threads_are_never_interrupted_and_wait_for_nothing() -> None:
    seen: list[object] = []

    def work() -> None:
        with postpone_ctrl_c():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
