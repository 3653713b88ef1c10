"""Run figures of the server and print them; raw numbers go to a file of JSON."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.server import costs, liveness, open_loop, results
from bench.server.serving import Setting, make_graph

Figure = Callable[[Setting], dict[str, Any]]

FIGURES: dict[str, tuple[Figure, int, float]] = {
    "open-loop": (open_loop.run, 100_000, 60),
    "point-reads": (costs.point_reads, 100_000, 10),
    "writes": (costs.writes, 10_000, 60),
    "results": (results.run, 1_000_000, 0),
    "health": (liveness.health, 100_000, 20),
    "memory": (liveness.memory, 10_000, 600),
}
"""What measures each, and the rows and seconds of the whole form."""


def main(arguments: list[str] | None = None) -> int:
    """Run the named figures, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m bench.server", description="Figures of the server.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of: {', '.join(FIGURES)}")
    parser.add_argument("--seconds", type=float, help="how long each takes")
    parser.add_argument("--rows", type=int, help="how many people the graph has")
    parser.add_argument("--workers", type=int, default=1, help="how many processes serve")
    parser.add_argument("--results", type=Path, help="a file for the numbers")
    given = parser.parse_args(arguments)
    unknown = set(given.names) - FIGURES.keys()
    if unknown:
        parser.error(f"no figure called {', '.join(sorted(unknown))}")
    found = {}
    for name in given.names or FIGURES:
        figure, rows, seconds = FIGURES[name]
        found[name] = _measure(figure, given.rows or rows, given.seconds or seconds, given.workers)
        print(f"{name}\n{json.dumps(found[name], indent=2)}", flush=True)
    if given.results is not None:
        given.results.write_text(json.dumps(found, indent=2), encoding="utf-8")
    return 0


def _measure(figure: Figure, rows: int, seconds: float, workers: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "people.omni"
        make_graph(place, rows)
        return figure(Setting(place, rows, seconds, ("--workers", str(workers))))


if __name__ == "__main__":
    sys.exit(main())
