"""Chooses where a read or an algorithm runs: a model of what this process needs and of what Spark costs.

In this process the time goes with the bytes that are built from tables and kept: codes of nodes, neighbours
of edges, columns. While they fit into the read cache, this process is faster by one or two orders of
magnitude, because nothing is planned, shipped and shuffled. Beyond that it builds them again for every
question. Spark has a fixed cost that no small question repays. docs/pipeline.md has the figures behind the
constants, and `python -m bench.spark engines` measures them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.lang.query import plan as p
from omnigraph.query.read_cache import shared_cache
from omnigraph.storage.cache_budget import machine_memory

BYTES_OF_EDGE, BYTES_OF_NODE = 128, 160
"""What an edge and a node take at most while an algorithm runs here, ids of common length included."""
BUILT_PER_SECOND = 150 * 2**20
"""Bytes that one process builds from tables in a second."""
MOST_OF_MEMORY = 0.5
"""The share of the machine that one question may take; the rest is for what it returns, and for others."""


class SparkState(Enum):
    """How far Spark is from running a job, with the seconds until one with two shuffles has ended."""

    WARM = 2.0
    COLD = 12.0
    MISSING = float("inf")


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Where something runs, and why."""

    engine: str
    why: str


def choose_by_size(need: int, find_spark: Callable[[], SparkState]) -> EngineChoice:
    """Choose by the bytes that this process would need; Spark is looked for only if they are many."""
    kept, most = shared_cache().limit, int(machine_memory() * MOST_OF_MEMORY)
    if need <= kept:
        return EngineChoice("local", f"about {need} bytes fit into memory")
    spark = find_spark()
    if spark is SparkState.MISSING:
        return EngineChoice("local", "Spark is not installed")
    if need > most:
        return EngineChoice("spark", f"about {need} bytes are more than {most}")
    seconds = need / BUILT_PER_SECOND
    if seconds <= spark.value:
        return EngineChoice(
            "local", f"about {seconds:.1f} s here, and {spark.value:.0f} s until Spark answers"
        )
    return EngineChoice("spark", f"about {need} bytes are more than {kept}, and take {seconds:.0f} s here")


def find_spark() -> SparkState:
    """Return how far Spark is from running a job."""
    from omnigraph.engine.load.spool import get_frames

    state: SparkState = get_frames().spark_state()
    return state


def memory_needed(nodes: int, edges: int) -> int:
    """About how much memory the codes of nodes and the neighbours of edges take in this process."""
    return nodes * BYTES_OF_NODE + edges * BYTES_OF_EDGE


def snapshot_bytes(snapshot: Snapshot) -> int:
    """What an algorithm over a whole snapshot needs."""
    return _bytes_of({key: entry.row_count or 0 for key, entry in snapshot.entries.items()})


def query_bytes(plan: p.Plan, snapshot: Snapshot) -> int:
    """What a query needs at most: all of the tables that it reads."""
    rows = {key: entry.row_count or 0 for key, entry in snapshot.entries.items()}
    return _bytes_of({key: rows.get(key, 0) for key in tables_read(plan)})


def tables_read(plan: p.Plan) -> set[str]:
    """Return the tables that a plan reads, in its blocks too."""
    found = set()
    for below in p.plans_within(plan):
        match below:
            case p.Scan(type_name=type_name):
                found.add(table_key("node", type_name))
            case p.Expand(target_type=target_type, edge_type=edge_type):
                found |= {table_key("node", target_type), table_key("edge", edge_type)}
    return found


def _bytes_of(rows: Mapping[str, Any]) -> int:
    counts = {"node": 0, "edge": 0}
    for key, count in rows.items():
        counts[key.partition(":")[0]] += count
    return memory_needed(counts["node"], counts["edge"])
