"""What taking a branch into main costs, by how much was changed and by how much there is.

A fast-forward finds main as it was when the branch was made; for a merge of both sides main has changed as
many other people. What comes before the merge is not counted.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.history.people import PEERS, data, edits, group
from bench.measure import Result, Timing
from bench.read_peers.worker import Worker, worker

FORWARD, BOTH = "fast-forward", "both sides changed"
OURS, DOLTLITE = (peer.name for peer in PEERS)
LIMIT, LIMIT_ROWS = 15.0, 1_000
"""How many times as long as doltlite a merge of so many rows on both sides may take.

Where only the branch changed, doltlite sets a pointer. We write the rows into main's own table, so that main
never depends on files of a branch that is deleted one day.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """How many people a branch changes, and of how many: sizes take turns, each with its own databases."""

    changed: int
    people: Sequence[int]
    rounds: int


LARGE, SMALL = 1_000_000, 100_000
WHOLE = (Plan(10, (LARGE, SMALL), 15), Plan(1_000, (LARGE, SMALL), 15), Plan(100_000, (LARGE,), 5))
SHORT = (Plan(10, (2_000,), 1),)
"""One size: every database more is a process more."""


def run(*, short: bool = False) -> Result:
    """Merges of every size, in turns with the other database."""
    plans = SHORT if short else WHOLE
    load = os.getloadavg()[0]
    timings = tuple(timing for plan in plans for timing in _measured(plan))
    medians = {timing.name: timing.median for timing in timings}
    least = plans[0]
    return Result(
        name="merges",
        timings=timings,
        yardsticks=tuple(_name(OURS, way, least.changed, least.people[0]) for way in (FORWARD, BOTH)),
        targets={},
        facts={
            "people": list(least.people),
            "rounds": [plan.rounds for plan in plans],
            "load before and after": [round(load, 1), round(os.getloadavg()[0], 1)],
            "python": platform.python_version(),
        },
        notes=(*absent(), *notes(plans, medians)),
    )


def _name(who: str, way: str, changed: int, people: int) -> str:
    return f"{who}, {way}, {changed:,} of {people:,}"


def _measured(plan: Plan) -> tuple[Timing, ...]:
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        workers = {people: open_workers(people, Path(folder) / str(people), stack) for people in plan.people}
        # The first round is for warming up.
        for turn in range(2 * (plan.rounds + 1)):
            way = (FORWARD, BOTH)[turn % 2]
            for people, by_name in workers.items():
                for name, one in by_name.items():
                    took = _merge(one, people, plan.changed, turn, both=way is BOTH)
                    if turn > 1:
                        found.setdefault(_name(name, way, plan.changed, people), []).append(took)
        for by_name in workers.values():
            require_equal({name: one.call("totals") for name, one in by_name.items()})
    return tuple(Timing(name, tuple(seconds)) for name, seconds in found.items())


def _merge(one: Worker, people: int, changed: int, turn: int, *, both: bool) -> float:
    theirs, ours = edits(people, changed, turn)
    one.call("part")
    one.call("change", theirs, "work")
    if both:
        one.call("change", ours)
    took: float = one.call("merge")
    one.call("drop")
    return took


def open_workers(people: int, folder: Path, stack: ExitStack) -> dict[str, Worker]:
    """Every database that is installed, each with a copy of its own of so many people."""
    workers = {}
    folder.mkdir()
    for peer in PEERS:
        if peer.installed:
            kept = peer.database(group(people), data(people))
            copy = folder / peer.name
            if kept.is_dir():
                shutil.copytree(kept, copy)
            else:
                shutil.copy(kept, copy)
            workers[peer.name] = stack.enter_context(worker(peer, copy))
    return workers


def require_equal(found: Mapping[str, object]) -> None:
    """Fail unless all databases say the same."""
    values = list(found.values())
    assert all(value == values[0] for value in values), f"all must have the same: {found}"


def absent() -> Iterator[str]:
    """A line for each database that cannot be measured."""
    return (f"{peer.name} is not installed, and so not measured" for peer in PEERS if not peer.installed)


def notes(plans: Sequence[Plan], medians: Mapping[str, float]) -> Iterator[str]:
    """What the medians say: growth with the change, growth with the table, and the other database."""
    least = plans[0]
    for way in (FORWARD, BOTH):
        for plan in plans:
            changed, large = plan.changed, plan.people[0]
            ours = medians[_name(OURS, way, changed, large)]
            title = f"{way}, {changed:,} rows"
            if plan is not least:
                few = medians[_name(OURS, way, least.changed, large)]
                each = (ours - few) / (changed - least.changed)
                yield f"{title} / {least.changed}: {ours / few:.2f}; {each * 1e6:.0f} us for each more"
            for small in plan.people[1:]:
                times = ours / medians[_name(OURS, way, changed, small)]
                yield f"{title}: {large:,} people / {small:,}: {times:.2f}"
            peer = medians.get(_name(DOLTLITE, way, changed, large))
            if peer is not None:
                limit = f" (at most {LIMIT:g})" if changed == LIMIT_ROWS and way is BOTH else ""
                yield f"{title}: {OURS} / {DOLTLITE}: {ours / peer:.1f}{limit}"
