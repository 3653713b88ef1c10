"""What taking a branch into main costs, by how much was changed and by how much there is.

A fast-forward finds main as it was when the branch was made; for a merge of both sides main has changed as
many other people. What comes before the merge is not counted. Where only the branch changed, doltlite sets a
pointer. We write the rows into main's own table, so that main never depends on files of a branch that is
deleted one day.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.history.people import edits, open_peers, peers
from bench.measure import OURS, QUICK, SHORT, WHOLE, Figure, Result, Times, require_equal, rotate
from bench.worker import Worker

FORWARD, BOTH = "fast-forward", "both sides changed"
TENTH = "a tenth of the table"
BY_THE_ROW = "as many times the rows"


@dataclass(frozen=True, slots=True)
class Part:
    """How many people a branch changes, and of how many: sizes take turns, each with its own databases."""

    changed: int
    people: Sequence[int]
    rounds: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The merges to measure, with how many commits the aged graph has behind it."""

    parts: tuple[Part, ...]
    commits: int
    apart: bool = True


LARGE, SMALL = 1_000_000, 100_000
PLANS = {
    WHOLE: Plan(
        (Part(10, (LARGE, SMALL), 15), Part(1_000, (LARGE, SMALL), 15), Part(100_000, (LARGE,), 5)), 100
    ),
    QUICK: Plan(
        (Part(10, (SMALL, SMALL // 10), 5), Part(1_000, (SMALL, SMALL // 10), 5), Part(10_000, (SMALL,), 3)),
        30,
    ),
    SHORT: Plan((Part(10, (1_000,), 1),), 2, apart=False),
}


def run(size: str) -> Result:
    """Merges of every size, in turns with the other database."""
    plan = PLANS[size]
    parties = peers(plan.commits, apart=plan.apart)
    times: Times = {}
    small: Times = {}
    for part in plan.parts:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            workers = open_peers(parties, part.people, Path(folder), stack)
            _measure(part, workers, times, small)
    return Result(
        times=times,
        figures=(*_growth(plan.parts, times), *_flatness(times, small)),
        facts={
            "people": list(plan.parts[0].people),
            "rounds": [part.rounds for part in plan.parts],
            "commits of the aged": plan.commits,
            "in the smaller table": small,
        },
        absent=tuple(name for name, peer in parties.items() if not peer.installed),
    )


def task(way: str, changed: int) -> str:
    """What it is called: the size of the table is that of the whole run."""
    return f"{way}, {changed:,} rows"


def _measure(part: Part, workers: dict[int, dict[str, Worker]], times: Times, small: Times) -> None:
    # The first round is for warming up.
    for turn in range(2 * (part.rounds + 1)):
        way = (FORWARD, BOTH)[turn % 2]
        for people, by_name in workers.items():
            found = times if people == part.people[0] else small
            for name in rotate(by_name, turn // 2):
                took = _merge(by_name[name], people, part.changed, turn, both=way is BOTH)
                if turn > 1:
                    found.setdefault(task(way, part.changed), {}).setdefault(name, []).append(took)
    for people, by_name in workers.items():
        require_equal(f"{people} people", {name: one.call("totals") for name, one in by_name.items()})


def _merge(one: Worker, people: int, changed: int, turn: int, *, both: bool) -> float:
    theirs, ours = edits(people, changed, turn)
    one.call("part")
    one.call("change", theirs, "work")
    if both:
        one.call("change", ours)
    took: float = one.call("merge")
    one.call("drop")
    return took


def _growth(parts: Sequence[Part], times: Times) -> Iterator[Figure]:
    """A merge of more rows beside as many merges of fewer: above 1 the cost grows faster than the change."""
    for few, many in pairwise(parts):
        for way in (FORWARD, BOTH):
            one, other = (
                statistics.median(times[task(way, part.changed)][OURS]) / part.changed for part in (many, few)
            )
            yield Figure(task(way, many.changed), f"{BY_THE_ROW}, {few.changed:,} each", one / other)


def _flatness(times: Times, small: Times) -> Iterator[Figure]:
    for name, parties in small.items():
        large = statistics.median(times[name][OURS])
        yield Figure(name, TENTH, large / statistics.median(parties[OURS]))
