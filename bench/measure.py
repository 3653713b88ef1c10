"""Timing several tasks side by side, so that a busy machine slows all of them alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Timing:
    """One task: the time of one call in each round."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The typical time of one call."""
        return statistics.median(self.seconds)


@dataclass(frozen=True, slots=True)
class Result:
    """A benchmark's timings, and the tasks each of them is compared with."""

    name: str
    timings: tuple[Timing, ...]
    yardsticks: tuple[str, ...]
    targets: Mapping[str, float]
    """The time in seconds that a task should stay under."""
    facts: Mapping[str, Any]
    """What was measured: sizes, versions."""
    notes: tuple[str, ...] = ()
    """What the numbers say, a line each."""

    def ratio(self, timing: Timing, yardstick: str) -> float:
        """How often the yardstick runs while the task runs once; above 1 the task is slower."""
        return timing.median / next(each.median for each in self.timings if each.name == yardstick)

    def to_json(self) -> dict[str, Any]:
        """Everything measured, as plain values."""
        medians = {timing.name: timing.median for timing in self.timings}
        ratios = {
            timing.name: {yardstick: self.ratio(timing, yardstick) for yardstick in self.yardsticks}
            for timing in self.timings
        }
        return {**asdict(self), "medians": medians, "ratios": ratios}


def interleaved(tasks: Mapping[str, Callable[[], object]], rounds: int, calls: int) -> tuple[Timing, ...]:
    """Time each task `rounds` times, turn by turn; a time is the mean of `calls` calls."""
    found: dict[str, list[float]] = {name: [] for name in tasks}
    for task in tasks.values():
        task()
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, task in tasks.items():
                found[name].append(_time(task, calls))
            gc.collect()
    finally:
        if collecting:
            gc.enable()
    return tuple(Timing(name, tuple(seconds)) for name, seconds in found.items())


def _time(task: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        task()
    return (time.perf_counter() - start) / calls
