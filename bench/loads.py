"""What a load costs, beside others that bring the same files into tables.

From Parquet: persons with a key and edges whose ends are looked up, next to a graph database that copies the
same files, and next to writing Arrow that is ready. From NDJSON: strict lines, checked and stored, next to a
script of one process and to a database that reads leniently; neither of them looks up an end or a key.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.loading import data
from bench.measure import Result, Timing
from bench.read_peers.worker import Peer, Worker, worker

SPARK, LOCAL, LADYBUG, READY = "omnigraph on Spark", "omnigraph, local", "ladybug", "lance, ready rows"
SCRIPT, DUCKDB = "script", "duckdb"
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

    persons: int = 100_000
    follows: int = 2_440_000
    lines: tuple[int, int] = (1_000_000, 5_000_000)
    """Persons and edges of the NDJSON file."""
    rounds: int = 5
    with_spark: bool = True
    """Spark takes longer to start than a short run may."""


WHOLE = Plan()
SHORT = Plan(2_000, 20_000, (2_000, 10_000), rounds=1, with_spark=False)


@dataclass(slots=True)
class _Found:
    """Seconds by task, and the stages of our own loads."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    stages: dict[str, Mapping[str, float]] = field(default_factory=dict)
    rows: dict[str, set[int]] = field(default_factory=dict)


def run(*, short: bool = False) -> Result:
    """Loads of both sorts, turn by turn, each into a graph or a database that is new."""
    return measured(SHORT if short else WHOLE)


def measured(plan: Plan) -> Result:
    """The same for any sizes."""
    load = os.getloadavg()[0]
    found = _Found()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        workers = _workers(plan, Path(folder), stack)
        # The first round is for warming up: Spark compiles as it goes.
        for counted in range(plan.rounds + 1):
            for what, shown in ((PARQUET, _parquet), (NDJSON, _ndjson)):
                for name, seconds in shown(plan, workers, found):
                    if counted:
                        found.seconds.setdefault(f"{what}, {name}", []).append(seconds)
        if SPARK in workers:
            workers[SPARK].call("stop")
    for what, rows in found.rows.items():
        assert len(rows) == 1, f"{what}: all must have stored the same number of rows, not {sorted(rows)}"
    timings = tuple(Timing(name, tuple(seconds)) for name, seconds in found.seconds.items())
    return Result(
        name="loads",
        timings=timings,
        yardsticks=tuple(name for name in found.seconds if name.endswith((READY, SCRIPT))),
        targets={},
        facts={
            "rows": {what: next(iter(rows)) for what, rows in found.rows.items()},
            "stages": found.stages,
            "processors": os.cpu_count(),
            "load before and after": [round(load, 1), round(os.getloadavg()[0], 1)],
            "python": platform.python_version(),
        },
        notes=(*_absent(workers), *_notes({timing.name: timing.median for timing in timings})),
    )


def _workers(plan: Plan, folder: Path, stack: ExitStack) -> dict[str, Worker]:
    workers = {}
    for name, peer in PEERS.items():
        if peer.installed and (plan.with_spark or name != SPARK):
            (folder / name).mkdir()
            workers[name] = stack.enter_context(worker(peer, folder / name))
    workers[PLAIN].call("prepare", data.parquet(plan.persons, plan.follows))
    if SPARK in workers:
        workers[SPARK].call("start", MASTER)
    return workers


def _parquet(plan: Plan, workers: Mapping[str, Worker], found: _Found) -> Iterator[tuple[str, float]]:
    folder = data.parquet(plan.persons, plan.follows)
    files = [folder / "Person.parquet", folder / "Follows.parquet"]
    yield from _ours(PARQUET, files, workers, found)
    if LADYBUG in workers:
        yield LADYBUG, _others(PARQUET, workers[LADYBUG].call("load", folder), found)
    yield READY, _others(PARQUET, workers[PLAIN].call("write"), found)


def _ndjson(plan: Plan, workers: Mapping[str, Worker], found: _Found) -> Iterator[tuple[str, float]]:
    records = data.ndjson(*plan.lines)
    yield from _ours(NDJSON, [records], workers, found)
    yield SCRIPT, _others(NDJSON, workers[PLAIN].call("load", records), found)
    if DUCKDB in workers:
        yield DUCKDB, _others(NDJSON, workers[DUCKDB].call("load", records), found)


def _ours(
    what: str, files: list[Path], workers: Mapping[str, Worker], found: _Found
) -> Iterator[tuple[str, float]]:
    for name, engine in ((SPARK, "spark"), (LOCAL, "local")):
        if name in workers:
            loaded = workers[name].call("load", files, engine)
            found.rows.setdefault(what, set()).add(loaded.rows)
            found.stages[f"{what}, {name}"] = {key: round(each, 2) for key, each in loaded.stages.items()}
            yield name, loaded.seconds


def _others(what: str, answer: tuple[float, int], found: _Found) -> float:
    seconds, rows = answer
    found.rows.setdefault(what, set()).add(rows)
    return seconds


def _absent(workers: Mapping[str, Worker]) -> Iterator[str]:
    return (f"{name} is not measured" for name in PEERS if name not in workers)


def _notes(medians: Mapping[str, float]) -> Iterator[str]:
    limits = (
        (PARQUET, LADYBUG, "at most 1"),
        (PARQUET, READY, "at most 10"),
        (NDJSON, SCRIPT, "at most 0.5"),
        (NDJSON, DUCKDB, "at most 1.67"),
    )
    for ours in (SPARK, LOCAL):
        for what, peer, limit in limits:
            if f"{what}, {ours}" in medians and f"{what}, {peer}" in medians:
                times = medians[f"{what}, {ours}"] / medians[f"{what}, {peer}"]
                yield f"{what}: {ours} / {peer}: {times:.2f}{f' ({limit})' if ours == SPARK else ''}"
