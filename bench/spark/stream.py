"""A stream of changes into a graph: so many in a second, in batches of some seconds, for a while."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import omnigraph as og
from bench.loading.memory import watched

SCHEMA = "node Person { number: I64 @key  visits: I64 }"
SECONDS_OF_PERSONS = 120
"""Each person changes once in so many seconds, so that most changes of a long run are updates."""


def run(place: Path, rate: int, seconds: int, batch: float, master: str) -> Mapping[str, Any]:
    """The seconds of each batch, and how far the stream was behind its source."""
    from omnigraph.pipeline.session import session
    from omnigraph.spark import register

    spark = session(master)
    register(spark)
    graph = place / "graph"
    og.init(graph, schema=SCHEMA).close()
    # A merge takes one row for each key: no batch may last as long as it takes to meet all persons.
    changes = (
        spark.readStream.format("rate")
        .option("rowsPerSecond", rate)
        .load()
        .selectExpr(f"value % {rate * SECONDS_OF_PERSONS} as number", "value as visits")
    )
    writing = (
        changes.writeStream.format("omnigraph")
        .options(uri=str(graph), type="Person", mode="merge", sink="bench")
        .option("checkpointLocation", str(place / "checkpoint"))
        .trigger(processingTime=f"{batch} seconds")
    )
    with watched() as peak:
        query = writing.start()
        found: list[dict[str, Any]] = []
        ended = threading.Event()
        for _ in range(max(1, round(seconds / batch))):
            ended.wait(batch)
            found += [one for one in _progress(query) if one not in found]
        query.processAllAvailable()
        query.stop()
    return _figures(found, batch, graph) | {"memory": peak.to_json(), "rate": rate, "seconds": seconds}


def _progress(query: Any) -> list[dict[str, Any]]:
    return [
        {
            "batch": one["batchId"],
            "rows": one["numInputRows"],
            "seconds": one["durationMs"].get("triggerExecution", 0) / 1000,
        }
        for one in query.recentProgress
        if one["numInputRows"]
    ]


def _figures(batches: list[dict[str, Any]], batch: float, graph: Path) -> dict[str, Any]:
    """A batch that takes longer than the time between batches delays the next one: that is the lag."""
    times = [one["seconds"] for one in batches]
    quarter = max(1, len(times) // 4)
    lag = max((time / batch for time in times[1:]), default=0.0)
    with og.open(graph, read_only=True) as opened:
        tables = opened.snapshot().tables["node:Person"]
        commits = len(opened.commits.list())
    return {
        "batches": batches,
        "lag in batches": lag,
        "growth": statistics.median(times[-quarter:]) / statistics.median(times[:quarter]) if times else None,
        "rows": tables.rows,
        "commits": commits,
        "target": "lag under 2 batches, growth about 1",
    }
