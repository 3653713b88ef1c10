"""Sixteen threads that insert disjoint keys into one branch, next to one thread alone."""

from __future__ import annotations

import platform
import statistics
import tempfile
import threading
import time
from pathlib import Path

import lance

from bench.measure import Result, Timing
from omnigraph.engine.initialise import initialise
from omnigraph.engine.opened import AtBranch, OpenGraph
from omnigraph.engine.pinned import open_table
from omnigraph.engine.root import Root
from omnigraph.engine.write.mutate import mutate
from omnigraph.engine.write.transaction import Author
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.storage.location import Location

THREADS = 16
ALONE = "insert, 1 thread"
QUERY = "query q($k: String) { insert P { k: $k } }"


def run(*, short: bool = False) -> Result:
    """Latencies of single inserts, and how many a second there were."""
    each = 3 if short else 12
    with tempfile.TemporaryDirectory() as folder:
        alone, alone_rate, _ = _measured(Path(folder) / "alone", threads=1, each=each * 2)
        crowd, crowd_rate, slowest = _measured(Path(folder) / "crowd", threads=THREADS, each=each)
    return Result(
        name="threads",
        timings=(Timing(ALONE, alone), Timing(f"insert, {THREADS} threads", crowd)),
        yardsticks=(ALONE,),
        targets={},
        facts={
            "inserts a second": f"{alone_rate:.1f} alone, {crowd_rate:.1f} together",
            "p99 ms together": f"{statistics.quantiles(crowd, n=100)[98] * 1000:.0f}",
            "slowest thread / mean": f"{slowest:.2f}",
            "lance": lance.__version__,
            "python": platform.python_version(),
        },
    )


def _measured(at: Path, *, threads: int, each: int) -> tuple[tuple[float, ...], float, float]:
    """All latencies, inserts a second, and how much longer than the mean the last thread took."""
    root = Root.at(Location.parse(at))
    initialise(root, "node P { k: String @key }")
    graph = OpenGraph.open(root)
    compiled = compile_query(QUERY, graph.schema().catalog)
    assert isinstance(compiled, CompiledMutation)
    latencies: list[float] = []
    ends: list[float] = []
    start = threading.Barrier(threads + 1)

    def work(number: int) -> None:
        start.wait()
        begun = time.perf_counter()
        for turn in range(each):
            before = time.perf_counter()
            mutate(graph, compiled, {"k": f"{number}-{turn}"}, Author("main"))
            latencies.append(time.perf_counter() - before)
        ends.append(time.perf_counter() - begun)

    crew = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for one in crew:
        one.start()
    start.wait()
    begun = time.perf_counter()
    for one in crew:
        one.join()
    elapsed = time.perf_counter() - begun
    stored = open_table(graph, graph.snapshot(AtBranch()), "node:P").count()
    assert stored == threads * each == len(latencies), "every insert must be there"
    return tuple(latencies), threads * each / elapsed, max(ends) / statistics.fmean(ends)
