"""What very many edges cost that bring ids of their own, from Parquet into a branch.

Ids are checked to be unique and ends to be there. In turns with it Spark copies the same files as they are.
Every number of tasks at a time has a Spark of its own. Memory is that of all processes together at its
highest, in the first load of each size.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.loading import data
from bench.loading.ours import Loaded
from bench.measure import Result, Timing
from bench.read_peers.worker import Peer, Worker, worker

LOAD, COPY = "load", "Spark copies Parquet"
LIMIT = 1.5
OURS = Peer("omnigraph", "bench.loading.ours", "omnigraph")


@dataclass(frozen=True, slots=True)
class Plan:
    """How many edges between how many persons, and on what."""

    persons: int = 1_000_000
    edges: int = 10_000_000
    masters: Sequence[str] = ("local[1]", "local[2]")
    """Without any, loads run in one process and nothing is copied."""
    rounds: int = 2


WHOLE = Plan()
SHORT = Plan(2_000, 20_000, (), rounds=1)


@dataclass(slots=True)
class _Found:
    seconds: dict[str, list[float]] = field(default_factory=dict)
    memory: dict[str, Mapping[str, int]] = field(default_factory=dict)
    stages: dict[str, Mapping[str, float]] = field(default_factory=dict)


def run(*, short: bool = False) -> Result:
    """Loads and copies in turns, of the edges and of twice as many."""
    return measured(SHORT if short else WHOLE)


def measured(plan: Plan) -> Result:
    """The same for any sizes."""
    load = os.getloadavg()[0]
    found = _Found()
    for edges in (plan.edges, 2 * plan.edges):
        data.edges(plan.persons, edges)
    for master in plan.masters or ("local",):
        _on(master, plan, found)
    timings = tuple(Timing(name, tuple(seconds)) for name, seconds in found.seconds.items())
    medians = {timing.name: timing.median for timing in timings}
    return Result(
        name="bulk",
        timings=timings,
        yardsticks=(),
        targets={},
        facts={
            "persons": plan.persons,
            "edges": [plan.edges, 2 * plan.edges],
            "memory": found.memory,
            "stages": found.stages,
            "processors": os.cpu_count(),
            "load before and after": [round(load, 1), round(os.getloadavg()[0], 1)],
            "python": platform.python_version(),
        },
        notes=tuple(_notes(plan, medians, found)),
    )


def _name(what: str, edges: int, master: str) -> str:
    return f"{what}, {edges:,} edges, {master}"


def _on(master: str, plan: Plan, found: _Found) -> None:
    """All that is measured with one Spark, or with none."""
    sizes = (plan.edges, 2 * plan.edges)
    with tempfile.TemporaryDirectory() as created, worker(OURS, Path(created)) as ours:
        if plan.masters:
            ours.call("start", master)
        for edges in sizes:
            # For warming up, and for the memory: before Spark has copied anything.
            found.memory[_name(LOAD, edges, master)] = _load(ours, plan, edges).memory
        if plan.masters:
            ours.call("copy", data.edges(plan.persons, plan.edges))
        for _ in range(plan.rounds):
            for edges in sizes:
                loaded = _load(ours, plan, edges)
                name = _name(LOAD, edges, master)
                found.seconds.setdefault(name, []).append(loaded.seconds)
                found.stages[name] = {stage: round(seconds, 2) for stage, seconds in loaded.stages.items()}
                if plan.masters:
                    took = ours.call("copy", data.edges(plan.persons, edges))
                    found.seconds.setdefault(_name(COPY, edges, master), []).append(took)
        if plan.masters:
            ours.call("stop")


def _load(ours: Worker, plan: Plan, edges: int) -> Loaded:
    engine = "spark" if plan.masters else "local"
    loaded: Loaded = ours.call(
        "load_edges", data.persons(plan.persons), data.edges(plan.persons, edges), engine
    )
    assert loaded.rows == edges, "every edge must be there"
    return loaded


def _notes(plan: Plan, medians: Mapping[str, float], found: _Found) -> Iterator[str]:
    edges = plan.edges
    for master in plan.masters:
        for size in (edges, 2 * edges):
            times = medians[_name(LOAD, size, master)] / medians[_name(COPY, size, master)]
            yield f"{size:,} edges, {master}: {LOAD} / {COPY}: {times:.2f} (at most {LIMIT:g})"
    if len(plan.masters) > 1:
        first, *others = plan.masters
        for master in others:
            times = medians[_name(LOAD, edges, first)] / medians[_name(LOAD, edges, master)]
            yield f"{LOAD}, {edges:,} edges: {first} / {master}: {times:.2f}"
    for master in plan.masters or ("local",):
        small, large = (found.memory[_name(LOAD, size, master)] for size in (edges, 2 * edges))
        for part in ("total", "java", "python"):
            yield (
                f"memory, {master}, {part}: {small[part] / 1e6:.0f} MB, with twice the edges "
                f"{large[part] / 1e6:.0f} MB ({large[part] / max(small[part], 1):.2f})"
            )
