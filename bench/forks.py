"""What work on a branch costs, by the number of types in the graph: make it, write a row, delete it."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path

import omnigraph
from bench.measure import Result, Timing, interleaved

SIZES = (2, 140)
NAME = "work"
STEPS = ("create", "write", "delete")
WHOLE = "all three"


def run(*, short: bool = False) -> Result:
    """The three steps, and all of them together, in turns on a small and a large schema."""
    rounds = 1 if short else 40
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        graphs = {size: _Graph(Path(folder) / str(size), size) for size in SIZES}
        tasks: dict[str, Callable[[], object]] = {}
        for step in STEPS:
            for size, graph in graphs.items():
                tasks[_name(step, size)] = partial(getattr(graph, step))
        timings = interleaved(tasks, rounds=rounds, calls=1)
        for graph in graphs.values():
            graph.require_only_main()
    timings = (*timings, *(_together(timings, size) for size in SIZES))
    medians = {timing.name: timing.median for timing in timings}
    return Result(
        name="forks",
        timings=timings,
        yardsticks=tuple(_name(step, SIZES[0]) for step in (*STEPS, WHOLE)),
        targets={},
        facts={
            "types": list(SIZES),
            "rounds": rounds,
            "load before and after": [round(load, 1), round(os.getloadavg()[0], 1)],
            "python": platform.python_version(),
        },
        notes=tuple(_notes(medians)),
    )


def _notes(medians: Mapping[str, float]) -> Iterator[str]:
    small, large = SIZES
    for step in (*STEPS, WHOLE):
        times = medians[_name(step, large)] / medians[_name(step, small)]
        yield f"{step}: {large} types / {small}: {times:.2f}"


def _name(step: str, types: int) -> str:
    return f"{step}, {types} types"


def _together(timings: tuple[Timing, ...], types: int) -> Timing:
    """The steps of each round, added up."""
    steps = [each.seconds for each in timings if each.name in {_name(step, types) for step in STEPS}]
    return Timing(_name(WHOLE, types), tuple(sum(parts) for parts in zip(*steps, strict=True)))


class _Graph:
    """A graph with so many types and a branch that comes and goes."""

    def __init__(self, at: Path, types: int) -> None:
        schema = "".join(f"node Type{number} {{ name: String @key }}\n" for number in range(types))
        self._graph = omnigraph.init(at, schema=schema)
        self._numbers = count()
        with self._graph.write() as write:
            write.insert("Type1", name="first")

    def create(self) -> None:
        self._graph.branches.create(NAME)

    def write(self) -> None:
        with self._graph.write(NAME) as write:
            write.insert("Type1", name=f"row {next(self._numbers)}")

    def delete(self) -> None:
        self._graph.branches.delete(NAME)

    def require_only_main(self) -> None:
        assert self._graph.branches.list() == ["main"], "every branch must be gone"
        self._graph.close()
