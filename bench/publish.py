"""What a publish costs, by the number of commits before it."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
from lance.fragment import write_fragments

from bench.measure import Result, interleaved
from omnigraph.engine.coordinator import Coordinator
from omnigraph.engine.initialise import initialise
from omnigraph.engine.publish import Changes, Lineage
from omnigraph.engine.root import Root
from omnigraph.engine.upkeep import publish_and_tidy
from omnigraph.storage.location import Location

DEPTHS = (0, 100, 1000, 5000)
SHORT_DEPTHS = (0, 40)
APPEND = "lance: append and commit"
_COMPACT_EVERY = 30


def run(*, short: bool = False) -> Result:
    """Publishes on graphs of several ages, next to a bare commit of one row."""
    depths = SHORT_DEPTHS if short else DEPTHS
    rounds = 5 if short else 60
    with tempfile.TemporaryDirectory() as folder:
        writers = {depth: _writer(Path(folder) / str(depth), depth) for depth in depths}
        tasks: dict[str, Callable[[], object]] = {
            f"publish after {depth} commits": writer for depth, writer in writers.items()
        }
        tasks[APPEND] = _bare_writer(f"{folder}/bare")
        timings = interleaved(tasks, rounds=rounds, calls=1)
        for depth, writer in writers.items():
            # Genesis, the history, one call to warm up, and one in each round.
            assert writer.commits() == 1 + depth + 1 + rounds, "every publish must be there"
    return Result(
        name="publish",
        timings=timings,
        yardsticks=(APPEND, f"publish after {depths[0]} commits"),
        targets={},
        facts={"depths": list(depths), "lance": lance.__version__, "python": platform.python_version()},
    )


class _Writer:
    """One process that publishes to a graph and keeps its manifest cheap."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._main = Coordinator(root, "main")

    def __call__(self) -> None:
        with self._root.locks.hold(["main"]) as held:
            publish_and_tidy(self._main, held, Changes(), Lineage(self._root.new_id()))

    def commits(self) -> int:
        """How many there are, counted anew."""
        return len(Coordinator(self._root, "main").load().state.commits)


def _writer(at: Path, depth: int) -> _Writer:
    root = Root.at(Location.parse(at))
    initialise(root, "".join(f"node Type{number} {{ name: String @key }}\n" for number in range(8)))
    writer = _Writer(root)
    for _ in range(depth):
        writer()
    return writer


def _bare_writer(uri: str) -> Callable[[], None]:
    """One row more in a table of Lance's own, compacted as often as a manifest is."""
    row = pa.table({"id": ["x"], "value": [1]})
    state = {"table": lance.write_dataset(row, uri, enable_stable_row_ids=True), "left": _COMPACT_EVERY}

    def append() -> None:
        table = state["table"]
        staged = write_fragments(row, table, mode="append", return_transaction=True)
        state["table"] = table = lance.LanceDataset.commit(table, staged, max_retries=0)
        state["left"] -= 1
        if not state["left"]:
            table.optimize.compact_files()
            state["left"] = _COMPACT_EVERY

    return append
