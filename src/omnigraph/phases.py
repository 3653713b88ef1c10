"""Report the phases of reads and writes to a listener: when each begins, and when it ends.

The engine names its phases, such as `commit.publish`; a caller sets a listener around a call, and measures or
traces them. Neither knows the other. Without a listener a phase costs one look at a context variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Made = TypeVar("Made")
PhaseListener = Callable[[str], AbstractContextManager[object]]
"""Called with the name of a phase; what it returns is entered when the phase begins and left when it ends."""

RECOVERED = "recovery.close"
"""The last phase of a recovery, once for each interrupted write that was rolled forward or back."""

_listener: ContextVar[PhaseListener | None] = ContextVar("omnigraph_phase_listener", default=None)


def current_listener() -> PhaseListener | None:
    """Return the listener of the calling context, for work that goes on in other threads."""
    return _listener.get()


@contextmanager
def report_phases_to(listener: PhaseListener) -> Iterator[None]:
    """Report the phases of everything that runs in the block, in this thread, to a listener."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def in_phase(name: str) -> Callable[[Callable[Given, Made]], Callable[Given, Made]]:
    """Make a function a phase of this name."""

    def decorate(function: Callable[Given, Made]) -> Callable[Given, Made]:
        @wraps(function)
        def run(*args: Given.args, **kwargs: Given.kwargs) -> Made:
            listener = _listener.get()
            if listener is None:
                return function(*args, **kwargs)
            with listener(name):
                return function(*args, **kwargs)

        return run

    return decorate
