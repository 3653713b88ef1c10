"""Row pairs that do not fit in memory: sorted runs in files, merged in the order of ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.changes.change import ChangeCounts
from omnigraph.engine.changes.comparison import TableComparison, count_buckets, emit_rows
from omnigraph.engine.changes.row_pairs import LEFT, PAIRS_SCHEMA, RIGHT, RowPairs
from omnigraph.engine.changes.table_side import TableSide
from omnigraph.engine.graph.columns import ID
from omnigraph.engine.tasks.runner import Runner
from omnigraph.storage.temporary_folders import TemporaryFolder, write_rows

ROWS_READ = 65_536
"""How many rows of all runs are in memory at a time."""


@dataclass(frozen=True, slots=True)
class SortedRuns:
    """The entities of a type that differ, by id, in files of this process."""

    left: TableSide | None
    right: TableSide | None
    stat: ChangeCounts
    """How many there are of each sort."""
    files: tuple[Path, ...] = field(repr=False)
    folder: TemporaryFolder = field(repr=False)
    after: str | None = None

    def beyond(self, entity: str) -> SortedRuns:
        """Return the pairs after an id."""
        return replace(self, after=entity)

    def portions(self) -> Iterator[RowPairs]:
        """Yield all pairs in order, a portion at a time."""
        for table in merge_runs([_read_run(file) for file in self.files]):
            found = table if self.after is None else table.filter(pc.greater(table.column(ID), self.after))
            if found.num_rows:
                yield RowPairs(self.left, self.right, found)


def compare_by_tasks(comparison: TableComparison, runner: Runner) -> SortedRuns:
    """Return the entities that differ between two sides, compared bucket by bucket."""
    buckets = count_buckets(comparison.estimate_rows(), runner.cores)
    answers = runner.grouped(
        "compare", comparison.parts(), emit_rows, partial(_compare_bucket, comparison), buckets, streamed=True
    )
    return _write_runs(comparison, answers, max(1, ROWS_READ // buckets))


def _compare_bucket(comparison: TableComparison, rows: dict[str, pa.Table]) -> pa.Table:
    return comparison.compare_bucket(rows.get(LEFT), rows.get(RIGHT)).table


def _write_runs(comparison: TableComparison, answers: Iterable[pa.Table], at_once: int) -> SortedRuns:
    folder, files, stat = TemporaryFolder("changes"), [], ChangeCounts()
    for number, run in enumerate(answers):
        if not run.num_rows:
            continue
        file = folder.path / f"{number}.arrow"
        write_rows(
            file, PAIRS_SCHEMA, run.cast(PAIRS_SCHEMA).combine_chunks().to_batches(max_chunksize=at_once)
        )
        files.append(file)
        more = RowPairs(*comparison.numbered_sides, run).stat
        stat = ChangeCounts(
            stat.inserted + more.inserted, stat.updated + more.updated, stat.deleted + more.deleted
        )
    return SortedRuns(*comparison.numbered_sides, stat, tuple(files), folder)


def _read_run(file: Path) -> Iterator[pa.Table]:
    """The portions of a run; between two of them its file is closed, as there may be thousands of runs."""
    at = 0
    while True:
        with pa.OSFile(str(file), "rb") as source:
            source.seek(at)
            try:
                message = pa.ipc.read_message(source)
            except EOFError:
                return
            at = source.tell()
        if message.type == "record batch":
            yield pa.Table.from_batches([pa.ipc.read_record_batch(message, PAIRS_SCHEMA)])


def merge_runs(runs: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Yield the rows of sorted runs in order; one portion of every run is in memory."""
    heads = {number: next(run) for number, run in enumerate(runs)}
    while heads:
        # What is not beyond the end of any portion cannot be preceded by anything that is still unread.
        bound = min(head.column(ID)[-1].as_py() for head in heads.values())
        taken = []
        for number, head in list(heads.items()):
            ready = pc.sum(pc.less_equal(head.column(ID), bound)).as_py()
            taken.append(head.slice(0, ready))
            rest = head.slice(ready) if ready < head.num_rows else next(runs[number], None)
            if rest is None:
                del heads[number]
            else:
                heads[number] = rest
        yield pa.concat_tables(taken).sort_by(ID)
