"""A process that disturbs children in the middle of a write: `python -m tests.engine.crash.killing`.

It imports everything and uses none of it, so that a fork of it is as good as a new process and costs a
fraction of one. For each line `WRITE MOMENT URI` it forks a child which opens the graph at the URI and runs
the write; one that is there to make or to open a graph is counted from its first call. A moment is one of

    12      the number of a storage call, before which the child kills itself
    @1500   microseconds after which the kernel ends it wherever it is
    =12     the number of a storage call, before which it stands still; an empty line lets it go on
    12< =12<  the same, where calls that are made at the same time are made in reverse order

The answer is one line: `killed`, `held`, `done` when the write was over, the code of the error it was
refused with, or what went wrong.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.errors import OmnigraphError
from omnigraph.storage.location import Location
from tests.engine.crash.openings import OPENINGS
from tests.engine.crash.places import root_at
from tests.engine.crash.turns import turns
from tests.engine.crash.writes import WRITES
from tests.forking import prepare


class Disturber:
    """An observer that sends its own process a signal before a call; it counts once it is armed."""

    def __init__(self, number: int | None, what: signal.Signals) -> None:
        self._left = number
        self._what = what
        self._lock = threading.Lock()
        self.armed = False

    def __call__(self, op: str, uri: str, /) -> None:
        if not self.armed or self._left is None:
            return
        with self._lock:
            self._left -= 1
            if self._left == -1:
                os.kill(os.getpid(), self._what)


def run_disturbed(write: str, moment: str, uri: str) -> str:
    """Run the write, up to its moment; how it ended, if it did."""
    held = moment.startswith("=")
    number = None if moment.startswith("@") else int(moment.strip("=<"))
    disturber = Disturber(number, signal.SIGSTOP if held else signal.SIGKILL)
    root = root_at(Location.parse(uri), disturber, disturbed=True)
    if write in OPENINGS:
        run: Callable[[], object] = partial(OPENINGS[write].run, root)
    else:
        run = partial(WRITES[write].run, OpenGraph.open(root))
    disturber.armed = True
    if number is None:
        # The signal has no handler: the kernel ends all threads at once, inside whatever they do.
        signal.setitimer(signal.ITIMER_REAL, int(moment[1:]) / 1e6)
    try:
        with nullcontext() if number is None else turns(reverse=moment.endswith("<")):
            run()
    except OmnigraphError as error:
        if not held:
            raise
        return error.code
    return "done"


class Child:
    """One disturbed write."""

    def __init__(self, run: Callable[[], str]) -> None:
        self._reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.write(writer, run().encode())
            except BaseException:  # noqa: BLE001 - the status is the only way to tell
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        os.close(writer)

    def fate(self) -> str:
        """What became of it."""
        _, status = os.waitpid(self._pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return "held"
        with os.fdopen(self._reader) as said:
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGALRM):
                return "killed"
            return said.read() if status == 0 else f"failed with status {status}"

    def goes_on(self) -> str:
        """Let it go on from where it stands; what became of it then."""
        os.kill(self._pid, signal.SIGCONT)
        return self.fate()


def serve(run: Callable[[str, str, str], str]) -> None:
    """Fork a child for each line, which calls `run` with its three words."""
    # Lance warns of every fork; here none of its threads runs yet.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    prepare()
    for line in sys.stdin:
        child = Child(partial(run, *line.strip().split(maxsplit=2)))
        fate = child.fate()
        print(fate, flush=True)
        if fate == "held":
            sys.stdin.readline()
            print(child.goes_on(), flush=True)


if __name__ == "__main__":
    serve(run_disturbed)
