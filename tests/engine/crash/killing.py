"""A process that ends children in the middle of a write: `python -m tests.engine.crash.killing`.

It imports everything and uses none of it, so that a fork of it is as good as a new process and costs a
fraction of one. For each line `WRITE MOMENT FOLDER` it forks a child which opens the graph in the folder and
runs the write. A moment is the number of a storage call, before which the child kills itself, or `@` and
microseconds after which the kernel ends it wherever it is. The answer is one line: `killed`, `done` when the
write was over before, or what went wrong.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from pathlib import Path

from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.root import Root
from omnigraph.storage.location import Location
from tests.engine.crash.writes import WRITES


class Killer:
    """An observer that kills its own process before a call; it counts once it is armed."""

    def __init__(self, number: int | None) -> None:
        self._left = number
        self.armed = False

    def __call__(self, op: str, uri: str, /) -> None:
        if not self.armed or self._left is None:
            return
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


def run_and_die(write: str, moment: str, folder: Path) -> None:
    """Open the graph and run the write, up to its moment."""
    timed = moment.startswith("@")
    killer = Killer(None if timed else int(moment))
    graph = OpenGraph.open(Root.at(Location.parse(folder), killer))
    killer.armed = True
    if timed:
        # Nobody handles the signal: the kernel ends all threads at once, inside whatever they do.
        signal.setitimer(signal.ITIMER_REAL, int(moment[1:]) / 1e6)
    WRITES[write].run(graph)


def answer(line: str) -> str:
    """What became of one child."""
    write, moment, folder = line.split(maxsplit=2)
    child = os.fork()
    if child == 0:
        try:
            run_and_die(write, moment, Path(folder))
        except BaseException:  # noqa: BLE001 - the status is the only way to tell
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGKILL, signal.SIGALRM):
        return "killed"
    return "done" if status == 0 else f"failed with status {status}"


def main() -> None:
    # Lance warns of every fork; here none of its threads runs yet.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    for line in sys.stdin:
        print(answer(line.strip()), flush=True)


if __name__ == "__main__":
    main()
