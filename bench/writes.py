"""What a one-row insert costs over one and two tables, by the number of commits before it.

At each depth it takes turns with new graphs, with other embedded databases of the same depth, and with the
bare calls such a write cannot do without.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import lance

from bench.made import make_once
from bench.measure import (
    AGAIN,
    AGED,
    OURS,
    QUICK,
    SHORT,
    WHOLE,
    Result,
    Times,
    require_equal,
    rotate,
    setting,
)
from bench.worker import Peer, Worker, copy, own, worker
from omnigraph.engine.upkeep.manifest_upkeep import SETTING as COLLECTION

BARE = "bare calls"
OTHERS = {name: Peer(name, f"bench.writing.{name}_peer", name) for name in ("doltlite", "ladybug")}
MODULE = "bench.writing.ours"


@dataclass(frozen=True, slots=True)
class Plan:
    """How many commits there were before, and how often an insert is measured then."""

    depths: tuple[int, ...]
    rounds: int
    apart: bool = True


PLANS = {
    WHOLE: Plan((0, 100, 1000, 5000), 30),
    QUICK: Plan((0, 100, 500), 15),
    SHORT: Plan((0, 3), 2, apart=False),
}


def run(size: str) -> Result:
    """Inserts into databases of each depth; all of a depth take turns."""
    plan = PLANS[size]
    times: Times = {}
    # Old versions of the manifest would go after a while; here every commit of the past is left to weigh.
    # All folders stay to the end: for minutes after many files were deleted a new one takes longer to make.
    with setting(COLLECTION, "1e9"), tempfile.TemporaryDirectory() as folder:
        rows = {depth: _measure(depth, plan, Path(folder) / str(depth), times) for depth in plan.depths}
    return Result(
        times=times,
        limits=(BARE,),
        facts={"rows of both tables by depth": rows, "rounds": plan.rounds},
        absent=tuple(name for name, peer in OTHERS.items() if not peer.installed),
    )


def task(tables: int, depth: int) -> str:
    """What it is called."""
    return f"one row into {tables} table{'s' if tables > 1 else ''}, after {depth:,} commits"


def _measure(depth: int, plan: Plan, folder: Path, times: Times) -> tuple[int, ...]:
    """Databases with so many commits behind them, and what one more costs in each; gives what they stored."""
    folder.mkdir()
    with ExitStack() as stack:
        workers = _workers(depth, plan, folder, stack)
        # The first round is for warming up.
        for turn in range(plan.rounds + 1):
            for tables in (1, 2):
                for name in rotate(workers, turn):
                    took = workers[name].call("insert", tables)
                    if turn:
                        times.setdefault(task(tables, depth), {}).setdefault(name, []).append(took)
        grown = [name for name in workers if name in OTHERS or name == (AGED if depth else OURS)]
        stored = {name: workers[name].call("rows") for name in grown}
    require_equal(f"after {depth} commits", stored)
    return next(iter(stored.values()))


def _workers(depth: int, plan: Plan, folder: Path, stack: ExitStack) -> dict[str, Worker]:
    """New graphs, the bare calls, and those that have the depth."""
    ours = own(MODULE, commits=depth, apart=plan.apart)
    names = (OURS, AGAIN, AGED) if depth else (OURS, AGAIN)
    bare = Peer(BARE, "bench.writing.bare", "omnigraph", apart=plan.apart)
    parties = {**{name: ours[name] for name in names}, BARE: bare}
    parties |= {name: peer for name, peer in OTHERS.items() if peer.installed}
    if depth:
        copy(_aged_graph(depth, plan), folder / AGED)
    workers = {name: stack.enter_context(worker(peer, folder / name)) for name, peer in parties.items()}
    for name, one in workers.items():
        if name in OTHERS:
            one.call("grow", depth)
    return workers


def _aged_graph(depth: int, plan: Plan) -> Path:
    """A graph with so many commits, kept from the first run on: to make one takes minutes.

    It goes on from the one of the depth before.
    """

    def make(at: Path) -> None:
        before = plan.depths[plan.depths.index(depth) - 1]
        if before:
            copy(_aged_graph(before, plan), at)
        with worker(own(MODULE, commits=depth, apart=plan.apart)[AGED], at) as one:
            one.call("grow", depth)

    return make_once(f"writes-lance-{lance.__version__}-{depth}", make)
