"""What one operation wrote to a table and has not stored yet; later statements see it.

Of several writes to one id the last one counts, and a pending row hides the stored one with its id.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.stored_rows import StoredRows
from omnigraph.engine.constraints.table_change import NO_IDS, TableChange, exclude, is_among, last_rows
from omnigraph.engine.graph.table_types import ID, TableType
from omnigraph.engine.rows.blobs import require_blob_bytes, to_writable
from omnigraph.errors import BadRequest, InternalError, ResourceLimitExceeded

ROWS_SETTING = "OMNIGRAPH_MUTATION_ROWS"
BYTES_SETTING = "OMNIGRAPH_MUTATION_BYTES"

Evaluate = Callable[[pa.Table], Any]
"""For each row of a table whether it is wanted."""


@dataclass(frozen=True, slots=True)
class PendingLimits:
    """How much one commit may write to one table."""

    rows: int = 8192
    bytes: int = 32 * 2**20

    @classmethod
    def configured(cls) -> PendingLimits:
        """Those of the environment: `OMNIGRAPH_MUTATION_ROWS` and `OMNIGRAPH_MUTATION_BYTES`."""
        usual = cls()
        return cls(_setting(ROWS_SETTING, usual.rows), _setting(BYTES_SETTING, usual.bytes))


def _setting(name: str, usual: int) -> int:
    value = os.environ.get(name, str(usual))
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise BadRequest(f"{name} is '{value}'", remedy="set it to a number from 1 on, or unset it")
    return int(value)


@dataclass(frozen=True, slots=True)
class FinalWrites:
    """What remains of all writes to a table."""

    added: pa.Table
    changed: pa.Table
    """New versions of stored rows."""
    deleted: pa.ChunkedArray
    """Ids of stored rows that go."""


class PendingRows:
    """The writes of one operation to one table."""

    def __init__(self, target: TableType, limits: PendingLimits | None = None) -> None:
        self.target = target
        self._limits = limits or PendingLimits.configured()
        self._written: list[pa.Table] = []
        self._distinct = True
        self._deleted = NO_IDS
        self._adds_only = True
        self._rows_in = 0
        self._bytes_in = 0

    def put(self, rows: pa.Table, *, fresh: bool = False) -> None:
        """Whole rows that are inserted, or take the place of those with their ids.

        `fresh` promises that the ids were just made, which saves looking for them among the stored ones.
        """
        if not rows.schema.equals(self.target.schema):
            raise InternalError(f"rows for '{self.target.key}' have other columns than its table")
        if not rows.num_rows:
            return
        require_blob_bytes(rows)
        self.require_room(rows.num_rows, rows.nbytes)
        self._rows_in += rows.num_rows
        self._bytes_in += rows.nbytes
        self._written.append(rows)
        # What is known to be distinct is one batch; a single row is.
        self._distinct = len(self._written) == rows.num_rows == 1
        self._adds_only = self._adds_only and fresh
        if len(self._deleted):
            self._deleted = exclude(self._deleted, rows.column(ID))

    def delete(self, ids: pa.ChunkedArray) -> None:
        """Rows to go, pending or stored."""
        new = exclude(ids, self._deleted)
        self._deleted = pa.chunked_array([*self._deleted.chunks, *new.chunks], pa.string())
        kept = (rows.filter(pa.array(~is_among(rows.column(ID), ids))) for rows in self._written)
        self._written = [rows for rows in kept if rows.num_rows]

    @property
    def deleted(self) -> pa.ChunkedArray:
        """The ids of rows to go."""
        return self._deleted

    def rows(self) -> pa.Table:
        """The pending rows, one per id, in the order of their last write."""
        if not self._written:
            return self.target.schema.empty_table()
        if self._distinct:
            return self._written[0]
        every = pa.concat_tables(self._written)
        last = last_rows(every.column(ID))
        winners = np.flatnonzero(last == np.arange(len(last)))
        rows = every if len(winners) == every.num_rows else every.take(pa.array(winners))
        self._written = [rows]
        self._distinct = True
        return rows

    def read(self, stored: pa.Table, wanted: Evaluate) -> pa.Table:
        """The stored rows given, all of them wanted, less those written since; then wanted pending rows."""
        if ID not in stored.column_names:
            raise InternalError(f"a read of '{self.target.key}' beside pending rows needs their ids")
        pending = self.rows()
        visible = to_writable(self.unhidden(stored), self.target.schema)
        if not pending.num_rows:
            return visible
        return pa.concat_tables([visible, pending.filter(wanted(pending)).select(visible.column_names)])

    @property
    def hiding(self) -> pa.ChunkedArray:
        """The ids whose stored rows count no more, if there are any."""
        return pa.chunked_array([*self.rows().column(ID).chunks, *self._deleted.chunks], pa.string())

    def unhidden(self, stored: pa.Table) -> pa.Table:
        """Those of some stored rows that were not written since."""
        hidden = is_among(stored.column(ID), self.hiding)
        return stored.filter(pa.array(~hidden)) if hidden.any() else stored

    def change(self) -> TableChange:
        """What the checks look at."""
        return TableChange(self.target, self.rows(), self._deleted, adds_only=self._adds_only)

    def final(self, stored: StoredRows) -> FinalWrites:
        """Split the writes by whether their row is already stored."""
        rows = self.rows()
        if self._adds_only:
            return FinalWrites(rows, rows.slice(0, 0), self._deleted)
        known = is_among(rows.column(ID), stored.existing(self.target.key, rows.column(ID)))
        return FinalWrites(rows.filter(pa.array(~known)), rows.filter(pa.array(known)), self._deleted)

    @property
    def room(self) -> int:
        """How many rows may still be written."""
        return self._limits.rows - self._rows_in

    def require_room(self, rows: int, size: int) -> None:
        """Fail when so many more rows, of so many bytes, are too much for one commit."""
        for what, actual, limit in (
            ("keyed entities", self._rows_in + rows, self._limits.rows),
            ("keyed entity bytes", self._bytes_in + size, self._limits.bytes),
        ):
            if actual > limit:
                raise ResourceLimitExceeded(f"{what} for {self.target.key}", limit=limit, actual=actual)
