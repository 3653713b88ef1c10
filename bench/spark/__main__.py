"""`python -m bench.spark FIGURE ...`: one figure at a size of your choice, as JSON."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.spark import engines, loads, stream

Run = Callable[[Path, argparse.Namespace], Mapping[str, Any]]

FIGURES: Mapping[str, Run] = {
    "copy": lambda place, how: loads.copy(place, how.persons, how.edges, how.rounds, how.master),
    "executors": lambda _, how: loads.executors(how.persons, how.edges, how.rounds),
    "skip-bad": lambda place, how: loads.skip_bad(place, how.persons, how.edges, how.rounds, how.master),
    "merge": lambda place, how: loads.merge(place, how.persons, how.rounds, how.master),
    "stream": lambda place, how: stream.run(place, how.rate, how.seconds, how.batch, how.master),
    "engines": lambda place, how: engines.run(place, how.persons, how.edges, how.limit, how.master),
    # What `engines` and `executors` start, each in a process of its own.
    "engine": lambda _, how: engines.measure(how.graph, how.engine, how.task, how.limit, how.master),
    "executor": lambda place, how: loads.one_load(place, how.persons, how.edges, how.master),
}


def main(arguments: list[str] | None = None) -> int:
    """Measure one figure and print it."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--persons", type=int, help="a tenth of the edges, if not given")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--rate", type=int, default=1_000, help="changes in a second")
    parser.add_argument("--seconds", type=int, default=300, help="how long the stream lasts")
    parser.add_argument("--batch", type=float, default=5.0, help="seconds between batches")
    parser.add_argument("--limit", type=int, default=0, help="bytes that a process here may take; 0: any")
    parser.add_argument("--graph", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--engine", choices=("local", "spark"), help=argparse.SUPPRESS)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    how = parser.parse_args(arguments)
    how.persons = how.persons or max(100, how.edges // 10)
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as place:
        found = FIGURES[how.figure](Path(place), how)
    print(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
