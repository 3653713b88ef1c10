"""What an operation does to one table, as the checks see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.stored_rows import StoredRows
from omnigraph.engine.graph.table_types import ID, TableType
from omnigraph.engine.rows.violations import Flags, Numbers

NO_IDS = pa.chunked_array([], pa.string())


@dataclass(frozen=True, slots=True)
class TableChange:
    """The rows a table gets and the ids it loses."""

    target: TableType
    rows: pa.Table
    """New rows and new versions of stored ones: one row per id, in input order."""
    deleted: pa.ChunkedArray = field(default_factory=lambda: NO_IDS)
    """Ids of stored rows that go; none of them is among the rows."""
    replaces: bool = False
    """The rows are all there is afterwards."""
    adds_only: bool = False
    """No stored row has the id of one of the rows."""

    @property
    def ids(self) -> pa.ChunkedArray:
        """The ids of the rows."""
        return self.rows.column(ID)

    @property
    def gone(self) -> pa.ChunkedArray:
        """The ids whose stored version, if there is one, counts no longer."""
        if self.adds_only:
            return self.deleted
        return pa.chunked_array([*self.ids.chunks, *self.deleted.chunks], pa.string())


Changes = Mapping[str, TableChange]
"""By table."""


def replace_all_rows(target: TableType, rows: pa.Table, stored: StoredRows) -> TableChange:
    """The change that replaces all rows of a table."""
    before = stored.ids(target.key)
    return TableChange(target, rows, exclude(before, rows.column(ID)), replaces=True)


def is_among(values: pa.ChunkedArray | pa.Array, known: pa.ChunkedArray | pa.Array) -> Flags:
    """For each value whether it is among the known ones."""
    if not len(values) or not len(known):
        return np.zeros(len(values), np.bool_)
    return np.asarray(pc.is_in(values, value_set=pc.unique(known)))


def exclude(values: pa.ChunkedArray, known: pa.ChunkedArray | pa.Array) -> pa.ChunkedArray:
    """The values that are not among the known ones."""
    return values.filter(pa.array(~is_among(values, known)))


def unique_texts(parts: Iterable[pa.ChunkedArray]) -> pa.Array:
    """Every text of some columns once."""
    chunks = [chunk for part in parts for chunk in part.chunks]
    return pc.unique(pa.chunked_array(chunks, pa.string()))


def first_rows(texts: pa.ChunkedArray | pa.Array) -> Numbers:
    """For each row the number of the first row with the same text; a null is only like itself."""
    return _choose_rows(texts, first=True)


def last_rows(texts: pa.ChunkedArray | pa.Array) -> Numbers:
    """For each row the number of the last row with the same text; a null is only like itself."""
    return _choose_rows(texts, first=False)


def _choose_rows(texts: pa.ChunkedArray | pa.Array, *, first: bool) -> Numbers:
    rows = np.arange(len(texts), dtype=np.int64)
    if not len(texts):
        return rows
    column = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    coded = column.dictionary_encode()
    codes = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False)
    known = codes >= 0
    chosen = np.empty(len(coded.dictionary), np.int64)
    order = rows[known][::-1] if first else rows[known]
    chosen[codes[order]] = order  # of several values for one place the last one stays
    rows[known] = chosen[codes[known]]
    return rows
