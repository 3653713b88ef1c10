"""What showing one changed person costs, with the images before and after, by how many people there are.

Each time the change is a new one, so that nothing of it was read before.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.history.people import PEERS, Edit, edits
from bench.measure import Result, Timing
from bench.merges import absent, open_workers, require_equal
from bench.read_peers.worker import Worker

COMMIT, BRANCH = "last commit", "branch against main"
OURS, DOLTLITE = (peer.name for peer in PEERS)
LIMIT = 0.03
"""The seconds that a diff may take, unless doltlite takes longer."""
WHOLE, SHORT = (1_000_000, 100_000), (2_000,)
"""In a short run one size: every database more is a process more."""


def run(*, short: bool = False) -> Result:
    """Diffs of both sorts, in turns with the other database and with the smaller table."""
    sizes, rounds = (SHORT, 1) if short else (WHOLE, 30)
    load = os.getloadavg()[0]
    timings = _measured(sizes, rounds)
    medians = {timing.name: timing.median for timing in timings}
    return Result(
        name="diffs",
        timings=timings,
        yardsticks=tuple(_name(OURS, what, sizes[-1]) for what in (COMMIT, BRANCH)),
        targets={_name(OURS, what, size): LIMIT for what in (COMMIT, BRANCH) for size in sizes},
        facts={
            "people": list(sizes),
            "rounds": rounds,
            "load before and after": [round(load, 1), round(os.getloadavg()[0], 1)],
            "python": platform.python_version(),
        },
        notes=(*absent(), *_notes(sizes, medians)),
    )


def _name(who: str, what: str, people: int) -> str:
    return f"{who}, {what}, 1 of {people:,}"


def _measured(sizes: Sequence[int], rounds: int) -> tuple[Timing, ...]:
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        workers = {size: open_workers(size, Path(folder) / str(size), stack) for size in sizes}
        # The first round is for warming up.
        for turn in range(rounds + 1):
            for size, by_name in workers.items():
                ours, theirs = edits(size, 1, turn)
                shown = {name: _shown(one, ours, theirs) for name, one in by_name.items()}
                require_equal({name: rows for name, (_, rows) in shown.items()})
                for name, (times, _) in shown.items():
                    for what, took in times.items() if turn else ():
                        found.setdefault(_name(name, what, size), []).append(took)
    return tuple(Timing(name, tuple(seconds)) for name, seconds in found.items())


def _shown(one: Worker, main: Edit, branch: Edit) -> tuple[dict[str, float], list[object]]:
    """The times of both diffs, and what they show."""
    one.call("change", main)
    commit, rows = one.call("last_change")
    one.call("part")
    one.call("change", branch, "work")
    against, more = one.call("branch_changes")
    one.call("drop")
    assert len(rows) == len(more) == 1, "one change was made"
    return {COMMIT: commit, BRANCH: against}, [*rows, *more]


def _notes(sizes: Sequence[int], medians: Mapping[str, float]) -> Iterator[str]:
    large = sizes[0]
    for what in (COMMIT, BRANCH):
        ours = medians[_name(OURS, what, large)]
        for small in sizes[1:]:
            yield f"{what}: {large:,} people / {small:,}: {ours / medians[_name(OURS, what, small)]:.2f}"
        peer = medians.get(_name(DOLTLITE, what, large))
        if peer is not None:
            allowed = max(LIMIT, peer)
            yield (
                f"{what}: {OURS} / {DOLTLITE} {ours / peer:.1f}; {ours * 1000:.1f} ms "
                f"of {allowed * 1000:.1f} allowed"
            )
