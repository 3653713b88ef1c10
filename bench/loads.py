"""What a load costs, beside others that bring the same files into tables.

From Parquet: persons with a key and edges whose ends are looked up, next to a graph database that copies the
same files, and next to writing Arrow that is ready. From NDJSON: strict lines, checked and stored, next to a
script of one process and to a database that reads leniently; neither of them looks up an end or a key.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.loading import data
from bench.loading.ours import Loaded
from bench.measure import (
    AGAIN,
    AGED,
    OURS,
    QUICK,
    SHORT,
    WHOLE,
    Result,
    Times,
    require_equal,
    rotate,
)
from bench.worker import Peer, Worker, worker

SPARK, LOCAL = "on Spark", "local"
LADYBUG, READY, SCRIPT, DUCKDB = "ladybug", "lance, ready rows", "script", "duckdb"
PLAIN = "Arrow and Lance"
"""The process that writes rows that are ready, and runs the script."""
PARQUET, NDJSON = "Parquet", "NDJSON"
MASTER = "local[*]"
PEERS = {
    SPARK: Peer(SPARK, "bench.loading.ours", "pyspark"),
    LOCAL: Peer(LOCAL, "bench.loading.ours", "omnigraph"),
    LADYBUG: Peer(LADYBUG, "bench.loading.ladybug_peer", "ladybug"),
    PLAIN: Peer(PLAIN, "bench.loading.plain", "lance"),
    DUCKDB: Peer(DUCKDB, "bench.loading.duckdb_peer", "duckdb"),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is loaded, and how often."""

    persons: int
    follows: int
    lines: tuple[int, int]
    """Persons and edges of the NDJSON file."""
    rounds: int
    commits: int
    """How many commits the graph has before, where it is an aged one."""
    spark: bool = True
    """Spark takes longer to start than a short run may."""
    apart: bool = True


PLANS = {
    WHOLE: Plan(100_000, 2_440_000, (1_000_000, 5_000_000), rounds=5, commits=100),
    QUICK: Plan(20_000, 500_000, (50_000, 250_000), rounds=2, commits=30),
    SHORT: Plan(200, 1_000, (200, 1_000), rounds=1, commits=2, spark=False, apart=False),
}


@dataclass(slots=True)
class _Found:
    seconds: Times = field(default_factory=dict)
    stages: dict[str, Mapping[str, float]] = field(default_factory=dict)
    rows: dict[str, dict[str, int]] = field(default_factory=dict)


def run(size: str) -> Result:
    """Loads of both sorts, turn by turn, each into a graph or a database that is new."""
    plan = PLANS[size]
    found = _Found()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        workers = _workers(plan, Path(folder), stack)
        # The first round is for warming up: Spark compiles as it goes.
        for turn in range(plan.rounds + 1):
            for what in (PARQUET, NDJSON):
                _turn(what, _loads(what, plan, workers), turn, found)
        if SPARK in workers:
            workers[SPARK].call("stop")
    for what, rows in found.rows.items():
        require_equal(f"rows from {what}", rows)
    return Result(
        times=_by_engine(found.seconds),
        limits=(READY,),
        facts={
            "rows": {what: next(iter(rows.values())) for what, rows in found.rows.items()},
            "seconds of stages": found.stages,
            "rounds": plan.rounds,
            "commits of the aged": plan.commits,
        },
        absent=tuple(name for name in PEERS if name not in workers),
    )


def _workers(plan: Plan, folder: Path, stack: ExitStack) -> dict[str, Worker]:
    workers = {}
    for name, peer in PEERS.items():
        if peer.installed and (plan.spark or name != SPARK):
            (folder / name).mkdir()
            where = peer if plan.apart or name not in (LOCAL, PLAIN) else replace(peer, apart=False)
            workers[name] = stack.enter_context(worker(where, folder / name))
    workers[PLAIN].call("prepare", data.parquet(plan.persons, plan.follows))
    if SPARK in workers:
        workers[SPARK].call("start", MASTER)
    return workers


def _loads(what: str, plan: Plan, workers: Mapping[str, Worker]) -> dict[str, Callable[[], Any]]:
    """Everybody's load of the same files, by name; ours once for each engine and sort of graph."""
    loads: dict[str, Callable[[], Any]] = {}
    folder = data.parquet(plan.persons, plan.follows) if what == PARQUET else None
    files = [folder / f"{name}.parquet" for name in ("Person", "Follows")] if folder else []
    files = files or [data.ndjson(*plan.lines)]
    for name, engine in ((SPARK, "spark"), (LOCAL, "local")):
        if name in workers:
            load = partial(workers[name].call, "load", files, engine)
            loads[f"{name} / {OURS}"] = loads[f"{name} / {AGAIN}"] = load
            if folder:
                loads[f"{name} / {AGED}"] = partial(load, plan.commits)
    if folder:
        loads[READY] = partial(workers[PLAIN].call, "write")
    else:
        loads[SCRIPT] = partial(workers[PLAIN].call, "load", files[0])
    peer = LADYBUG if folder else DUCKDB
    if peer in workers:
        loads[peer] = partial(workers[peer].call, "load", folder or files[0])
    return loads


def _turn(what: str, loads: Mapping[str, Callable[[], Any]], turn: int, found: _Found) -> None:
    for name in rotate(loads, turn):
        answer = loads[name]()
        if isinstance(answer, Loaded):
            seconds, rows = answer.seconds, answer.rows
            found.stages[f"{what}, {name}"] = answer.stages
        else:
            seconds, rows = answer
        found.rows.setdefault(what, {})[name] = rows
        if turn:
            found.seconds.setdefault(what, {}).setdefault(name, []).append(seconds)


def _by_engine(seconds: Times) -> Times:
    """A task for each engine of ours, with the same times of the others in both."""
    found: Times = {}
    for what, parties in seconds.items():
        others = {name: each for name, each in parties.items() if " / " not in name}
        for engine in (SPARK, LOCAL):
            ours = {
                name.removeprefix(f"{engine} / "): each
                for name, each in parties.items()
                if name.startswith(f"{engine} / ")
            }
            if ours:
                found[f"{what}, {engine}"] = {**ours, **others}
    return found
