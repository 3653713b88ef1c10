"""A process that kills itself: `python -m tests.engine.moves.killed OPERATION NUMBER WORK PLACE...`.

WORK is `open`, `write` or `copy`. It opens a graph for writing, writes to a branch, or copies it, and dies
before the NUMBERth storage call of an operation. It ends with 0 when there were fewer.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from omnigraph.engine.copying.copier import copy_graph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.open import open_graph
from omnigraph.graph import Graph
from omnigraph.storage.location import Location
from tests.engine.moves.branching import add


class Killer:
    """An observer that ends its process at a call."""

    def __init__(self, operation: str, number: int) -> None:
        self._operation = operation
        self._left = number
        self._lock = threading.Lock()

    def __call__(self, op: str, uri: str, /) -> None:
        if op != self._operation:
            return
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    operation, number, work, *places = sys.argv[1:]
    killer = Killer(operation, int(number))
    if work == "open":
        open_graph(Root.at(Location.parse(places[0]), killer))
    elif work == "write":
        graph = Graph(open_graph(Root.at(Location.parse(places[0]), killer)))
        add(graph, "lost", branch=places[1])
    else:
        source, destination = map(Location.parse, places)
        copy_graph(open_graph(Root.at(source), read_only=True), destination, observe=killer)


if __name__ == "__main__":
    main()
