"""What a publish costs, by the number of commits before it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance.fragment import write_fragments

from bench.measure import OURS, QUICK, SHORT, WHOLE, Result, time_in_turns
from omnigraph.engine.graph.coordinator import Coordinator
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.create import create_graph
from omnigraph.engine.upkeep.manifest_upkeep import FRAGMENT_LIMIT, run_manifest_upkeep
from omnigraph.storage.location import Location

BARE = "lance appends and commits"


@dataclass(frozen=True, slots=True)
class Plan:
    """How many commits there were before, and how often a publish is measured then."""

    depths: tuple[int, ...]
    rounds: int


PLANS = {
    WHOLE: Plan((0, 100, 1000, 5000), 60),
    QUICK: Plan((0, 100, 1000), 30),
    SHORT: Plan((0, 5), 2),
}


def run(size: str) -> Result:
    """Publishes on graphs of several ages, next to a bare commit of one row."""
    plan = PLANS[size]
    with tempfile.TemporaryDirectory() as folder:
        writers = {depth: _writer(Path(folder) / str(depth), depth) for depth in plan.depths}
        new, *aged = plan.depths
        tasks: dict[tuple[str, str], Callable[[], object]] = {("publish", OURS): writers[new]}
        tasks |= {("publish", f"{OURS}, after {depth:,} commits"): writers[depth] for depth in aged}
        tasks["publish", BARE] = _bare_writer(f"{folder}/bare")
        times = time_in_turns(tasks, plan.rounds)
        for depth, writer in writers.items():
            # Genesis, the history, one call to warm up, and one in each round.
            assert writer.commits() == 1 + depth + 1 + plan.rounds, "every publish must be there"
    return Result(times=times, limits=(BARE,), facts={"commits before": list(plan.depths)})


class _Writer:
    """One process that publishes to a graph and keeps its manifest cheap."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._main = Coordinator(root, "main")

    def __call__(self) -> None:
        with self._root.locks.hold(["main"]):
            run_manifest_upkeep(
                self._main, publish(self._main, ManifestChanges(), NewCommit(self._root.new_id()))
            )

    def commits(self) -> int:
        """How many there are, counted again."""
        return len(Coordinator(self._root, "main").load().state.commits)


def _writer(at: Path, depth: int) -> _Writer:
    root = Root.at(Location.parse(at))
    create_graph(root, "".join(f"node Type{number} {{ name: String @key }}\n" for number in range(8)))
    writer = _Writer(root)
    for _ in range(depth):
        writer()
    return writer


def _bare_writer(uri: str) -> Callable[[], None]:
    """One row more in a table of Lance's own, compacted as often as a manifest is."""
    row = pa.table({"id": ["x"], "value": [1]})
    state: dict[str, Any] = {
        "table": lance.write_dataset(row, uri, enable_stable_row_ids=True),
        "left": FRAGMENT_LIMIT,
    }

    def append() -> None:
        table = state["table"]
        staged = write_fragments(row, table, mode="append", return_transaction=True)
        state["table"] = table = lance.LanceDataset.commit(table, staged, max_retries=0)
        state["left"] -= 1
        if not state["left"]:
            table.optimize.compact_files()
            state["left"] = FRAGMENT_LIMIT

    return append
