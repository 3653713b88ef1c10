"""The state of one run of the command line, apart from the arguments of its command."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import field
from typing import TYPE_CHECKING

from omnigraph.deferred_dataclass import dataclass

if TYPE_CHECKING:
    from omnigraph.cli.config import Config


@dataclass(slots=True)
class Invocation:
    """One run: its global flags, its command, and the config file once it was read."""

    flags: dict[str, str | bool] = field(default_factory=dict)
    """The global flags that were given, wherever they stood, by their spelling."""
    command: str = ""
    """The command as the user spells it, such as `branch list`."""
    place: str | None = None
    """The graph that was named before the arguments of the command."""
    config: Config | None = None
    shows_progress: bool = True
    """Whether progress is shown; not while data goes to the same terminal."""

    when_interrupted: str = (
        "what was committed by then stays, see `omnigraph commit list`; "
        "a commit that did not come to its end is finished or undone by the next write"
    )
    """The message when the command is interrupted."""

    def text(self, flag: str) -> str | None:
        """The value of a flag."""
        value = self.flags.get(flag)
        return value if isinstance(value, str) else None


_current: ContextVar[Invocation | None] = ContextVar("omnigraph_invocation", default=None)


def begin_invocation() -> Invocation:
    """Start a new run, and return it."""
    invocation = Invocation()
    _current.set(invocation)
    return invocation


def current_invocation() -> Invocation:
    """Return the current run."""
    return _current.get() or begin_invocation()
