"""What very many edges cost that bring ids of their own, from Parquet into a branch.

Ids are checked to be unique and ends to be there. In turns with it Spark copies the same files as they are.
Every number of tasks at a time has a Spark of its own. Memory is that of all processes together at its
highest, in the first load of each size.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.loading import data
from bench.loading.ours import Loaded
from bench.measure import AGAIN, AGED, OURS, QUICK, SHORT, WHOLE, Figure, Result, Times, rotate
from bench.worker import Peer, Worker, worker

COPY = "Spark copies Parquet"
HALF = "half the edges"
ONE_TASK = "one task at a time"


@dataclass(frozen=True, slots=True)
class Plan:
    """How many edges between how many persons, and on what."""

    persons: int
    edges: int
    masters: Sequence[str]
    """Without any, loads run in one process and nothing is copied."""
    rounds: int
    commits: int
    apart: bool = True


PLANS = {
    WHOLE: Plan(1_000_000, 10_000_000, ("local[1]", "local[2]"), rounds=2, commits=100),
    QUICK: Plan(50_000, 500_000, ("local[2]",), rounds=2, commits=30),
    SHORT: Plan(200, 1_000, (), rounds=1, commits=2, apart=False),
}


@dataclass(slots=True)
class _Found:
    times: Times = field(default_factory=dict)
    memory: dict[str, Mapping[str, int]] = field(default_factory=dict)
    stages: dict[str, Mapping[str, float]] = field(default_factory=dict)

    def add(self, task: str, who: str, seconds: float) -> None:
        self.times.setdefault(task, {}).setdefault(who, []).append(seconds)


def run(size: str) -> Result:
    """Loads and copies in turns, of the edges and of twice as many."""
    plan = PLANS[size]
    found = _Found()
    for edges in (plan.edges, 2 * plan.edges):
        data.edges(plan.persons, edges)
    for master in plan.masters or ("local",):
        _on(master, plan, found)
    return Result(
        times=found.times,
        limits=(COPY,),
        figures=tuple(_figures(plan, found)),
        facts={
            "persons": plan.persons,
            "edges": [plan.edges, 2 * plan.edges],
            "bytes of memory at the highest": found.memory,
            "seconds of stages": found.stages,
            "rounds": plan.rounds,
            "commits of the aged": plan.commits,
        },
        absent=() if plan.masters else (COPY,),
    )


def task(edges: int, master: str) -> str:
    """What it is called."""
    return f"{edges:,} edges, {master}"


def _on(master: str, plan: Plan, found: _Found) -> None:
    """All that is measured with one Spark, or with none."""
    sizes = (plan.edges, 2 * plan.edges)
    last = master == (plan.masters or (master,))[-1]
    peer = Peer(OURS, "bench.loading.ours", OURS, apart=plan.apart)
    with tempfile.TemporaryDirectory() as created, worker(peer, Path(created)) as ours:
        if plan.masters:
            ours.call("start", master)
        for edges in sizes:
            # For warming up, and for the memory: before Spark has copied anything.
            found.memory[task(edges, master)] = _load(ours, plan, edges).memory
        if plan.masters:
            ours.call("copy", data.edges(plan.persons, plan.edges))
        for turn in range(plan.rounds):
            for edges in sizes:
                own = (OURS, AGAIN, AGED) if last and edges == plan.edges else (OURS,)
                parties = (*own, COPY) if plan.masters else own
                _turn(ours, plan, edges, rotate(parties, turn), task(edges, master), found)
        if plan.masters:
            ours.call("stop")


def _turn(ours: Worker, plan: Plan, edges: int, parties: Sequence[str], name: str, found: _Found) -> None:
    for party in parties:
        if party == COPY:
            found.add(name, COPY, ours.call("copy", data.edges(plan.persons, edges)))
        else:
            loaded = _load(ours, plan, edges, plan.commits if party == AGED else 0)
            found.add(name, party, loaded.seconds)
            found.stages[f"{name}, {party}"] = loaded.stages


def _load(ours: Worker, plan: Plan, edges: int, commits: int = 0) -> Loaded:
    engine = "spark" if plan.masters else "local"
    files = (data.persons(plan.persons), data.edges(plan.persons, edges))
    loaded: Loaded = ours.call("load_edges", *files, engine, commits)
    assert loaded.rows == edges, "every edge must be there"
    return loaded


def _figures(plan: Plan, found: _Found) -> Iterator[Figure]:
    masters: Any = plan.masters or ("local",)
    for master in masters:
        small, large = (found.memory[task(size, master)] for size in (plan.edges, 2 * plan.edges))
        for part in ("total", "java", "python"):
            if small[part]:
                yield Figure(f"memory, {part}, {master}", HALF, large[part] / small[part])
    if len(masters) > 1:
        one, many = (found.times[task(plan.edges, each)][OURS] for each in (masters[0], masters[-1]))
        yield Figure(
            task(plan.edges, masters[-1]), ONE_TASK, statistics.median(many) / statistics.median(one)
        )
