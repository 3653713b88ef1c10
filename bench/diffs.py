"""What showing one changed person costs, with the images before and after, by how many people there are.

Each time the change is a new one, so that nothing of it was read before.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.history.people import DOLTLITE, Edit, edits, open_peers, peers
from bench.measure import AGED, OURS, QUICK, SHORT, WHOLE, Figure, Result, Times, require_equal, rotate
from bench.merges import TENTH
from bench.worker import Worker

COMMIT, BRANCH = "last commit", "branch against main"
ALLOWED_SECONDS = 0.03
ALLOWED = "30 ms, or doltlite's time if that is longer"


@dataclass(frozen=True, slots=True)
class Plan:
    """How many people there are, and how often a diff is asked for."""

    people: tuple[int, ...]
    rounds: int
    commits: int
    apart: bool = True


PLANS = {
    WHOLE: Plan((1_000_000, 100_000), 30, commits=100),
    QUICK: Plan((100_000, 10_000), 15, commits=30),
    SHORT: Plan((1_000,), 1, commits=2, apart=False),
}


def run(size: str) -> Result:
    """Diffs of both sorts, in turns with the other database and with the smaller table."""
    plan = PLANS[size]
    parties = peers(plan.commits, apart=plan.apart)
    found: dict[int, Times] = {people: {} for people in plan.people}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        workers = open_peers(parties, plan.people, Path(folder), stack)
        # The first round is for warming up.
        for turn in range(plan.rounds + 1):
            for people, by_name in workers.items():
                took_each = _turn(by_name, people, turn)
                for (what, name), took in took_each.items() if turn else ():
                    found[people].setdefault(what, {}).setdefault(name, []).append(took)
    times, *small = found.values()
    return Result(
        times=times,
        figures=(*_compare_with_allowed(times), *_flatness(times, small)),
        facts={
            "people": list(plan.people),
            "rounds": plan.rounds,
            "commits of the aged": plan.commits,
            "in the smaller table": small,
        },
        absent=tuple(name for name, peer in parties.items() if not peer.installed),
    )


def _turn(workers: dict[str, Worker], people: int, turn: int) -> dict[tuple[str, str], float]:
    ours, theirs = edits(people, 1, turn)
    shown = {name: _time_diffs(workers[name], ours, theirs) for name in rotate(workers, turn)}
    require_equal(f"{people} people", {name: rows for name, (_, rows) in shown.items()})
    return {(what, name): took for name, (times, _) in shown.items() for what, took in times.items()}


def _time_diffs(one: Worker, main: Edit, branch: Edit) -> tuple[dict[str, float], list[object]]:
    """The times of both diffs, and what they show."""
    one.call("change", main)
    commit, rows = one.call("last_change")
    one.call("part")
    one.call("change", branch, "work")
    against, more = one.call("branch_changes")
    one.call("drop")
    assert len(rows) == len(more) == 1, "one change was made"
    return {COMMIT: commit, BRANCH: against}, [*rows, *more]


def _compare_with_allowed(times: Times) -> Iterator[Figure]:
    for what, parties in times.items():
        medians = {name: statistics.median(seconds) for name, seconds in parties.items()}
        allowed = max(ALLOWED_SECONDS, medians.get(DOLTLITE, 0.0))
        yield Figure(what, ALLOWED, medians[OURS] / allowed, medians[AGED] / allowed)


def _flatness(times: Times, small: list[Times]) -> Iterator[Figure]:
    for each in small:
        for what, parties in each.items():
            yield Figure(what, TENTH, statistics.median(times[what][OURS]) / statistics.median(parties[OURS]))
