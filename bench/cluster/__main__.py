"""`python -m bench.cluster`: what plan, apply of nothing and boot cost, against the least they could."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.cluster.declared import declare
from omnigraph import graph as graphs
from omnigraph.cluster.apply import ApplyOptions, apply
from omnigraph.cluster.plan_command import plan
from omnigraph.cluster.refresh import import_graphs
from omnigraph.lang.query.compile import check_query
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.source import Source
from omnigraph.server.auth import Tokens
from omnigraph.server.boot import MOST_AT_ONCE, boot
from omnigraph.server.cluster_source import ClusterSource
from omnigraph.server.settings import Bind, ServeOptions

RUNS = 3
MOST_PLAN, MOST_APPLY, MOST_BOOT = 1.5, 1.2, 1.3
MOST_WITH_QUERIES = 2.0
"""A boot also plans and describes each query, for its warnings."""


class FailedCheck(Exception):
    """A result that is not what the figure is about."""


def best(work: Callable[[], object]) -> float:
    """Return the shortest of some runs, in seconds."""
    spent = []
    for _ in range(RUNS):
        begun = time.perf_counter()
        work()
        spent.append(time.perf_counter() - begun)
    return min(spent)


def require(holds: bool, what: str) -> None:
    if not holds:
        raise FailedCheck(what)


class Opened:
    """Counts the files below a folder that are opened while it watches."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._watching = False
        self.files: Counter[str] = Counter()
        sys.addaudithook(self._note)

    def during(self, work: Callable[[], object]) -> Counter[str]:
        self.files.clear()
        self._watching = True
        try:
            work()
        finally:
            self._watching = False
        return Counter(self.files)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._watching and event == "open" and str(arguments[0]).startswith(self._folder):
            self.files[str(arguments[0])] += 1


def compile_files(folder: Path) -> None:
    """Read and compile every schema and every query of a cluster once."""
    for schema in sorted(folder.glob("*.pg")):
        catalog = compile_schema(Source.from_bytes(schema.read_bytes(), str(schema)))
        for file in sorted(schema.with_suffix("").glob("*.gq")):
            source = Source.from_bytes(file.read_bytes(), str(file))
            for query in parse_queries(source).queries:
                check_query(query, catalog, source)


def open_all(folder: Path) -> None:
    """Open every graph, as many at a time as a server does."""
    places = sorted((folder / "graphs").glob("*.omni"))
    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        for graph in pool.map(graphs.open, places):
            graph.close()


def serve(folder: Path) -> None:
    """Open everything that a server of the cluster opens."""
    options = ServeOptions(None, Bind("127.0.0.1", 0), unauthenticated=True)
    boot(ClusterSource(str(folder)).load(), Tokens(), options).close()


def deploy(folder: Path, count: int, queries: int) -> None:
    """Declare and apply a cluster."""
    declare(folder, count, queries)
    require(import_graphs(folder).findings.ok, "the import failed")
    require(apply(folder, ApplyOptions("bench")).converged, "the first apply did not converge")


def measure(folder: Path, count: int, queries: int) -> list[dict[str, Any]]:
    """Return the figures, with proof that each run did what it is about."""
    deploy(folder, count, queries)
    opened = Opened(folder).during(lambda: plan(folder))
    sources = [times for path, times in opened.items() if path.endswith((".pg", ".gq"))]
    require(set(sources) == {1}, "plan read a file twice")
    require(not any("/graphs/" in path for path in opened), "plan opened a graph")
    require(not apply(folder, ApplyOptions("bench")).state_written, "apply of nothing wrote the ledger")
    compiled = best(lambda: compile_files(folder))
    planned = best(lambda: plan(folder))
    applied = best(lambda: apply(folder, ApplyOptions("bench")))
    bare = folder / "bare"
    deploy(bare, count, 0)
    opening, booting = best(lambda: open_all(bare)), best(lambda: serve(bare))
    whole = best(lambda: serve(folder))
    return [
        figure("plan / compiling the files once", planned, compiled, MOST_PLAN),
        figure("apply of nothing / plan", applied, planned, MOST_APPLY),
        figure(f"server boot / opening {MOST_AT_ONCE} at a time", booting, opening, MOST_BOOT),
        figure("boot with queries / opening and compiling", whole, opening + compiled, MOST_WITH_QUERIES),
    ]


def figure(name: str, ours: float, least: float, most: float) -> dict[str, Any]:
    return {"name": name, "seconds": ours, "least": least, "ratio": ours / least, "goal": most}


def main() -> int:
    """Measure, print, and return 1 when a goal was missed."""
    options = argparse.ArgumentParser(description="Figures about clusters.")
    options.add_argument("--graphs", type=int, default=100)
    options.add_argument("--queries", type=int, default=1000)
    options.add_argument("--json", type=Path, help="also write the figures to a file")
    asked = options.parse_args()
    with TemporaryDirectory(prefix="bench-cluster-") as folder:
        found = measure(Path(folder), asked.graphs, asked.queries)
    for one in found:
        kept = "ok" if one["ratio"] <= one["goal"] else "missed"
        print(
            f"{one['name']}: {one['seconds']:.3f} s / {one['least']:.3f} s = {one['ratio']:.2f} "
            f"(goal {one['goal']}, {kept})"
        )
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=2), encoding="utf-8")
    return int(any(one["ratio"] > one["goal"] for one in found))


if __name__ == "__main__":
    sys.exit(main())
