"""What is measured and how: parties take turns, so that a busy machine slows all of them alike."""

from __future__ import annotations

import gc
import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

OURS = "omnigraph"
AGAIN = "omnigraph again"
"""The same once more: how far two equal things are apart tells what noise does."""
AGED = "omnigraph, aged"
"""The same rows in a graph that has many small commits behind it and was not put in order since."""
OWN = (OURS, AGAIN, AGED)
FRESH_GRAPH = "a fresh graph"

WHOLE, QUICK, SHORT = "whole", "quick", "short"
"""The sizes: what targets are stated for; about ten minutes; seconds, to see that everything runs."""

PEER, LIMIT, OURSELVES = "peer", "physical limit", "ourselves"
"""What a figure compares with: another database; the least that the work can cost; another case of ours."""

Times = dict[str, dict[str, list[float]]]
"""Seconds by task and party."""


@dataclass(frozen=True, slots=True)
class Figure:
    """How we compare in one task: ours divided by the other, so that below 1 we are faster."""

    what: str
    against: str
    fresh: float
    aged: float | None = None
    kind: str = OURSELVES

    @property
    def worst(self) -> float:
        """The larger one of a fresh and of an aged graph."""
        return self.fresh if self.aged is None else max(self.fresh, self.aged)


@dataclass(frozen=True, slots=True)
class Result:
    """All that one workload measured."""

    times: Times
    limits: tuple[str, ...] = ()
    """The parties that do only what cannot be left out."""
    figures: tuple[Figure, ...] = ()
    """Those that are not simply a task of ours beside another party's."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Sizes and what else belongs to the numbers."""
    absent: tuple[str, ...] = ()
    """The parties that could not be measured."""
    processor: Times = field(default_factory=dict)
    """Of some tasks the time that processors worked, of all threads together."""

    def all_figures(self) -> list[Figure]:
        """Ours beside everybody else, task by task, and the others after them."""
        found = [figure for task, parties in self.times.items() for figure in self._of(task, parties)]
        return [*found, *self.figures]

    def noise(self) -> dict[str, float]:
        """How long the same took once more, by task; without noise that is 1."""
        return {
            task: ratio(parties[AGAIN], parties[OURS])
            for task, parties in self.times.items()
            if AGAIN in parties and OURS in parties
        }

    def to_json(self) -> dict[str, Any]:
        """Everything measured, as plain values."""
        return asdict(self)

    def _of(self, task: str, parties: Mapping[str, Sequence[float]]) -> Iterator[Figure]:
        if OURS not in parties:
            return
        ours, aged = parties[OURS], parties.get(AGED)
        for name, seconds in parties.items():
            if name not in OWN:
                later = None if aged is None else ratio(aged, seconds)
                yield Figure(task, name, ratio(ours, seconds), later, self._kind(name))
        if aged is not None:
            yield Figure(task, FRESH_GRAPH, ratio(aged, ours))

    def _kind(self, party: str) -> str:
        if party in self.limits:
            return LIMIT
        return OURSELVES if party.startswith(OURS) else PEER


def ratio(one: Sequence[float], other: Sequence[float]) -> float:
    """That of the medians."""
    return statistics.median(one) / statistics.median(other)


def geometric_means(result: Result, prefix: str, name: str) -> Iterator[Figure]:
    """One figure for each party over all tasks that begin alike."""
    figures = [one for one in result.all_figures() if one.what.startswith(prefix)]
    for against in dict.fromkeys(one.against for one in figures):
        them = [one for one in figures if one.against == against]
        aged = [one.aged for one in them if one.aged is not None]
        yield Figure(
            f"{prefix}{name}",
            against,
            statistics.geometric_mean(one.fresh for one in them),
            statistics.geometric_mean(aged) if aged else None,
            them[0].kind,
        )


def rotate(names: Iterable[str], turn: int) -> list[str]:
    """All of them, each time another one first."""
    listed = list(names)
    first = turn % len(listed)
    return listed[first:] + listed[:first]


def time_in_turns(
    tasks: Mapping[tuple[str, str], Callable[[], object]], rounds: int, calls: int = 1
) -> Times:
    """Time each task of each party `rounds` times, turn by turn; a time is the mean of `calls` calls."""
    found: Times = {}
    for task in tasks.values():
        task()
    with without_collections():
        for _ in range(rounds):
            for (what, who), task in tasks.items():
                found.setdefault(what, {}).setdefault(who, []).append(_time(task, calls))
            gc.collect()
    return found


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect garbage now instead of in between."""
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextmanager
def setting(name: str, value: str) -> Iterator[None]:
    """A variable of the environment, for this process and those that it starts meanwhile."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def require_equal(what: str, found: Mapping[str, object]) -> None:
    """Fail unless all databases say the same."""
    values = list(found.values())
    assert all(value == values[0] for value in values), f"{what}: all must have the same: {found}"


def same_answers(
    question: str, found: Mapping[str, Sequence[tuple[object, ...]]], ranked: int | None = None
) -> None:
    """Fail unless all databases gave the same rows, in whatever order.

    Where only the first few by column `ranked` were asked for, rows that share the last place may differ:
    there were more of them than were wanted.
    """
    (first, expected), *others = ((name, _canonical(rows, ranked)) for name, rows in found.items())
    for name, rows in others:
        assert rows == expected, f"{question}: {first} gave {expected[:5]}, {name} gave {rows[:5]}"


def _canonical(rows: Sequence[tuple[object, ...]], ranked: int | None) -> list[tuple[object, ...]]:
    plain = sorted((tuple(map(_plain, row)) for row in rows), key=repr)
    if ranked is None or not rows:
        return plain
    last = _plain(rows[-1][ranked])
    return sorted(((last,) if row[ranked] == last else row for row in plain), key=repr)


def _plain(value: object) -> object:
    return float(f"{value:.12g}") if isinstance(value, float) and math.isfinite(value) else value


def _time(task: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        task()
    return (time.perf_counter() - start) / calls
