"""Queries and algorithms here and on Spark, also where this process may not take the memory it needs.

Every measurement has a process of its own: it is asked twice, because the first answer starts Spark or reads
the tables. What a local process cannot do within the limit is `out of memory`.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import omnigraph as og
from bench.loading import data
from bench.loading.memory import watched
from omnigraph.query.engine_choice import choose_by_size, find_spark, snapshot_bytes

WALK = "query q() { match { $a: Person  $a follows{2,2} $b } return { count($b) as n } }"
TASKS: Mapping[str, Callable[[og.Graph, Any], Any]] = {
    "two hops": lambda graph, engine: graph.query(WALK, engine=engine).tuples(),
    "pagerank": lambda graph, engine: len(graph.algorithms.pagerank(max_iterations=5, engine=engine)),
    "components": lambda graph, engine: len(graph.algorithms.connected_components(engine=engine)),
    "triangles": lambda graph, engine: len(graph.algorithms.triangle_count(engine=engine)),
}
OUT_OF_MEMORY = "out of memory"


def run(place: Path, persons: int, edges: int, limit: int, master: str) -> Mapping[str, Any]:
    """All tasks on both engines, with what `auto` would choose."""
    at = place / "graph"
    with og.init(at, schema=data.SCHEMA) as graph:
        graph.load([data.persons(persons), data.edges(persons, edges)], mode="append", engine="local")
        need = snapshot_bytes(graph.snapshot()._pinned)  # noqa: SLF001 - what `auto` looks at
        chosen = choose_by_size(need, find_spark)
    found = {
        task: {engine: _apart(at, engine, task, limit, master) for engine in ("local", "spark")}
        for task in TASKS
    }
    return {"persons": persons, "edges": edges, "limit": limit, "auto": chosen.why, "found": found}


def measure(at: Path, engine: str, task: str, limit: int, master: str) -> Mapping[str, Any]:
    """The seconds of the first and of the second answer, and the memory of all processes."""
    if engine == "spark":
        from omnigraph.pipeline.session import session

        begun = time.perf_counter()
        session(master)
        started = time.perf_counter() - begun
    else:
        started = 0.0
        if limit:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    times = []
    with og.open(at, read_only=True) as graph, watched() as peak:
        for _ in range(2):
            begun = time.perf_counter()
            TASKS[task](graph, engine)
            times.append(time.perf_counter() - begun)
    return {"start": started, "first": times[0], "second": times[1], "memory": peak.to_json()}


def _apart(at: Path, engine: str, task: str, limit: int, master: str) -> Any:
    given = [
        "--graph",
        str(at),
        "--engine",
        engine,
        "--task",
        task,
        "--limit",
        str(limit),
        "--master",
        master,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "bench.spark", "engine", *given], check=False, capture_output=True, text=True
    )
    if done.returncode == 0:
        return json.loads(done.stdout)
    if limit and engine == "local":
        return OUT_OF_MEMORY
    raise RuntimeError(done.stderr)
