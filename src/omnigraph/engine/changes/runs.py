"""Pairs that are too many for memory: sorted runs in files, read together in the order of ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.changes.change import Stat
from omnigraph.engine.changes.meeting import Meeting, buckets_for, emitted
from omnigraph.engine.changes.pairs import LEFT, RIGHT, SCHEMA, Pairs
from omnigraph.engine.changes.side import Side
from omnigraph.engine.columns import ID
from omnigraph.engine.load.runner import Runner
from omnigraph.storage.temporary import TemporaryFolder, write_rows

ROWS_READ = 65_536
"""How many rows of all runs together are in memory at a time."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The entities of a type that differ, by id, in files of this process."""

    left: Side | None
    right: Side | None
    stat: Stat
    """How many there are of each sort."""
    files: tuple[Path, ...] = field(repr=False)
    folder: TemporaryFolder = field(repr=False)
    after: str | None = None

    def beyond(self, entity: str) -> Runs:
        """Those after an id."""
        return replace(self, after=entity)

    def portions(self) -> Iterator[Pairs]:
        """All of them in their order, some at a time."""
        for table in merged([_read(file) for file in self.files]):
            found = table if self.after is None else table.filter(pc.greater(table.column(ID), self.after))
            if found.num_rows:
                yield Pairs(self.left, self.right, found)


def compared(meeting: Meeting, runner: Runner) -> Runs:
    """The entities that differ between two sides, found bucket by bucket."""
    buckets = buckets_for(meeting.rows(), runner.cores)
    answers = runner.grouped(
        "compare", meeting.parts(), emitted, partial(_differing, meeting), buckets, streamed=True
    )
    return _written(meeting, answers, max(1, ROWS_READ // buckets))


def _differing(meeting: Meeting, rows: dict[str, pa.Table]) -> pa.Table:
    return meeting.pairs(rows.get(LEFT), rows.get(RIGHT)).table


def _written(meeting: Meeting, answers: Iterable[pa.Table], at_once: int) -> Runs:
    folder, files, stat = TemporaryFolder("changes"), [], Stat()
    for number, run in enumerate(answers):
        if not run.num_rows:
            continue
        file = folder.path / f"{number}.arrow"
        write_rows(file, SCHEMA, run.cast(SCHEMA).combine_chunks().to_batches(max_chunksize=at_once))
        files.append(file)
        more = Pairs(*meeting.placed, run).stat
        stat = Stat(stat.inserted + more.inserted, stat.updated + more.updated, stat.deleted + more.deleted)
    return Runs(*meeting.placed, stat, tuple(files), folder)


def _read(file: Path) -> Iterator[pa.Table]:
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
            yield pa.Table.from_batches([pa.ipc.read_record_batch(message, SCHEMA)])


def merged(runs: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Rows of sorted runs, all together in order; of every run one portion is in memory."""
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
