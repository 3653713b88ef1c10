"""Sixteen threads that insert disjoint keys into one branch, next to one thread alone."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from bench.measure import OURS, QUICK, SHORT, WHOLE, Result, setting
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.write.mutate import mutate
from omnigraph.engine.write.transaction import Author
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.storage.location import Location

THREADS = 16
ALONE = "omnigraph, 1 thread"
QUERY = "query q($k: String) { insert P { k: $k } }"


@dataclass(frozen=True, slots=True)
class Turn:
    """So many threads that inserted at the same time."""

    latencies: tuple[float, ...]
    rate: float
    """Inserts a second, all threads together."""
    slowest: float
    """How much longer than the mean the last thread took."""


PLANS = {WHOLE: (5, 8), QUICK: (3, 4), SHORT: (2, 1)}
"""Rounds, and how many rows each thread inserts in one."""


def run(size: str) -> Result:
    """Latencies of single inserts, and how many a second there were; alone and together in turns."""
    rounds, each = PLANS[size]
    # What is measured is how long a writer waits, not when it gives up.
    with setting("OMNIGRAPH_LOCK_WAIT", "600"), tempfile.TemporaryDirectory() as folder:
        one, many = Crew(Path(folder) / "alone", 1), Crew(Path(folder) / "crowd", THREADS)
        # Equally many rows: what an insert costs follows the number of commits before it.
        turns = [(one.insert(each * THREADS), many.insert(each)) for _ in range(rounds)]
    alone, crowd = ([each for turn in side for each in turn.latencies] for side in zip(*turns, strict=True))
    return Result(
        times={f"insert, {THREADS} threads": {OURS: crowd, ALONE: alone}},
        facts={
            "inserts a second alone": _median(first.rate for first, _ in turns),
            "together": _median(second.rate for _, second in turns),
            "together / alone": _median(second.rate / first.rate for first, second in turns),
            "p99 seconds together": statistics.quantiles(crowd, n=100)[98],
            "slowest thread / mean": _median(second.slowest for _, second in turns),
        },
    )


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


class Crew:
    """Threads that share one graph."""

    def __init__(self, at: Path, threads: int) -> None:
        root = Root.at(Location.parse(at))
        create_graph(root, "node P { k: String @key }")
        self._graph = OpenGraph.open(root)
        self._threads = threads
        compiled = compile_query(QUERY, self._graph.schema().catalog)
        assert isinstance(compiled, CompiledMutation)
        self._compiled = compiled
        self._keys = count()
        self._stored = 0

    def insert(self, each: int) -> Turn:
        """Every thread inserts so many rows, one commit each."""
        latencies: list[float] = []
        ends: list[float] = []
        start = threading.Barrier(self._threads + 1)

        def work() -> None:
            start.wait()
            begun = time.perf_counter()
            for _ in range(each):
                before = time.perf_counter()
                mutate(self._graph, self._compiled, {"k": f"k{next(self._keys)}"}, Author("main"))
                latencies.append(time.perf_counter() - before)
            ends.append(time.perf_counter() - begun)

        crew = [threading.Thread(target=work) for _ in range(self._threads)]
        for one in crew:
            one.start()
        start.wait()
        begun = time.perf_counter()
        for one in crew:
            one.join()
        elapsed = time.perf_counter() - begun
        self._stored += self._threads * each
        stored = open_table(self._graph, self._graph.snapshot(AtBranch()), "node:P").count()
        assert stored == self._stored, "every insert must be there"
        return Turn(tuple(latencies), self._threads * each / elapsed, max(ends) / statistics.fmean(ends))
