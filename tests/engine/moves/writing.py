"""A process that writes to a graph without end: `python -m tests.engine.moves.writing PLACE NAME`.

Each commit adds a person, and with him an edge to himself, so that a state without one of the two was never
published. It writes to main and to branches, merges them into each other, makes and deletes some, compacts
and cleans up, and prints a line after each turn.
"""

from __future__ import annotations

import sys
from itertools import count

from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph
from tests.engine.moves.branching import open_at


def add(graph: Graph, name: str, branch: str) -> None:
    """A person and his edge, in one commit."""
    with graph.write(branch) as tx:
        tx.insert("Person", name=name)
        tx.insert_edge("Knows", name, name)


def turn(graph: Graph, name: str, number: int) -> None:
    own = f"{name}-{number % 3}"
    add(graph, f"{name}{number}m", "main")
    match number % 6:
        case 0:
            graph.branches.create(own)
        case 1:
            graph.merge("main", "shared", strategy="theirs")
        case 2:
            graph.merge("shared", "main", strategy="theirs")
        case 3:
            graph.cleanup(keep=1)
        case 4:
            graph.optimize("shared")
        case 5 if f"{name}-0" in graph.branches:
            graph.branches.delete(f"{name}-0")
    add(graph, f"{name}{number}s", "shared")
    if own in graph.branches:
        add(graph, f"{name}{number}o", own)


def main() -> None:
    place, name = sys.argv[1:]
    with open_at(place) as graph:
        for number in count():
            try:
                turn(graph, name, number)
            except OmnigraphError as refused:
                # Two of them get in each other's way; what counts is what they published.
                print("refused", refused.code, refused.message, file=sys.stderr)
            print(number, flush=True)


if __name__ == "__main__":
    main()
