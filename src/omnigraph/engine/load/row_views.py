"""Rows as the checks of a whole load see them: those of the load by position, and those stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.load.load_job import LoadJob
from omnigraph.engine.load.staging import StagedItem, StagedType
from omnigraph.engine.rows.violations import Numbers
from omnigraph.storage.fragments import group_by_rows, list_fragments
from omnigraph.storage.pieces import read_piece

POSITION = "position"
"""Where a row stands in the input: the number of its item, then its place among the rows of its type."""

_ROWS_PER_TASK = 4 << 20

Dropped = Mapping[str, NDArray[np.int64]]
"""The positions, by table and in order, of rows that do not count."""


def split_positions(positions: Numbers) -> tuple[Numbers, Numbers]:
    """The item and the place in it behind positions."""
    return positions >> 32, positions & 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class NewRows:
    """The rows of one type in one item of a load."""

    key: str
    item: int
    staged: StagedType = field(repr=False)

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.staged.rows

    def columns(self, job: LoadJob, columns: Sequence[str]) -> pa.Table:
        """Some columns of all rows."""
        access, place = job.root.tables.access, job.pieces(self.key)
        batches = [
            batch for piece in self.staged.pieces for batch in read_piece(access, place, piece, columns)
        ]
        return pa.Table.from_batches(batches).select(list(columns))

    def read(self, job: LoadJob, columns: Sequence[str], dropped: Dropped) -> pa.Table:
        """Some columns, and the positions, of the rows that count."""
        found = self.columns(job, columns)
        positions = (self.item << 32) + np.arange(found.num_rows, dtype=np.int64)
        found = found.append_column(POSITION, pa.array(positions))
        gone = dropped.get(self.key)
        if gone is None or not len(gone):
            return found
        return found.filter(pa.array(~np.isin(positions, gone)))


@dataclass(frozen=True, slots=True)
class StoredPart:
    """A part of the rows that a table has at the version a load was prepared on."""

    key: str
    entry: TableEntry
    fragments: tuple[int, ...] = field(repr=False)
    rows: int
    """How many there are."""

    def columns(self, job: LoadJob, columns: Sequence[str]) -> pa.Table:
        """Some columns of the rows."""
        root, entry = job.root, self.entry
        table = root.tables.open(root.layout.table(entry.path), entry.version, branch=entry.owner)
        return table.scan(list(columns), fragments=self.fragments, ordered=False)


View = NewRows | StoredPart


def list_new_rows(items: Sequence[StagedItem], key: str) -> list[NewRows]:
    """The views of a load's rows of one type, in input order."""
    return [
        NewRows(key, one.item.number, staged)
        for one in items
        for staged in one.types
        if staged.key == key and staged.pieces
    ]


def list_stored_parts(job: LoadJob, entry: TableEntry) -> list[StoredPart]:
    """The views of a stored table: together all of its rows."""
    root = job.root
    table = root.tables.open(root.layout.table(entry.path), entry.version, branch=entry.owner)
    return [
        StoredPart(entry.key, entry, tuple(one.id for one in some), sum(one.rows for one in some))
        for some in group_by_rows(list_fragments(table), _ROWS_PER_TASK)
    ]
