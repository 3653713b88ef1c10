"""Read what changed in a table between two versions, at a cost that follows the change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import StorageFailure
from omnigraph.storage.column_types import to_logical
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.fragments import Fragment
from omnigraph.storage.tables import Table
from omnigraph.storage.version_files import data_file_name

CREATED_AT = "_row_created_at_version"
UPDATED_AT = "_row_last_updated_at_version"


@dataclass(frozen=True, slots=True)
class Delta:
    """The rows that differ between two versions of one table.

    `begin` may be of the branch that `end`'s branch was forked from, exactly at the fork. No restore to
    an older version may lie between the two. A row rewritten with the values it had counts as updated.
    """

    begin: Table
    end: Table

    def inserted(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of `end` that `begin` does not have, with the version columns."""
        with self.end.access.call("delta", self.end.uri):
            return _select_columns(self._native_delta().get_inserted_rows(), columns)

    def updated(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows that both have and that were written in between, as `end` has them."""
        with self.end.access.call("delta", self.end.uri):
            return _select_columns(self._native_delta().get_updated_rows(), columns)

    def written(self, columns: Sequence[str], most: int) -> pa.Table | None:
        """Return the added and updated rows of `end` with their row ids; `CREATED_AT` distinguishes the two.

        None when there may be more than `most`. They are in fragments that `begin` does not have: to look
        for them in others would cost as much as there are rows.
        """
        new = diff_fragments(self.begin, self.end).right
        if sum(one.rows for one in new) > most:
            return None
        wanted = dict.fromkeys([*columns, "_rowid", CREATED_AT, UPDATED_AT])
        read = self.end.scan(list(wanted), fragments=[one.id for one in new], ordered=False)
        # Not as a filter of the scan: to plan one takes longer than to read a few rows.
        is_new = pc.greater(read.column(UPDATED_AT), self.begin.version)
        return read if pc.all(is_new).as_py() else read.filter(is_new)

    def deleted_row_ids(self, inserted: int | None = None) -> pa.Array:
        """Return the row ids that `begin` has and `end` does not.

        A known count of inserted rows mostly proves that there are none.
        """
        if inserted is not None and self.begin.count() + inserted == self.end.count():
            return pa.array([], pa.uint64())
        # Lance reads the description of `begin` again, and its files from the place that is recorded there.
        if self.end.uri in self.end.access.relocated:
            return self._compare_row_ids()
        try:
            with self.end.access.call("delta", self.end.uri):
                found = self._native_delta().get_deleted_row_ids().read_all()
                return found.column("_rowid").combine_chunks()
        except StorageFailure as failure:
            if self.end.branch is None or failure.kind != TableFailureKind.RECLAIMED:
                raise
            # Another process uses the graph at another place, and may have rewritten `begin` for that.
            return self._compare_row_ids()

    def _compare_row_ids(self) -> pa.Array:
        """The same from the row ids of all fragments that are not alike; their descriptions hold these."""
        differ = diff_fragments(self.begin, self.end)
        before = _row_ids(self.begin, (*differ.left, *differ.both))
        return pa.array(np.setdiff1d(before, _row_ids(self.end, (*differ.right, *differ.both))), pa.uint64())

    def deleted(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows that `begin` has and `end` does not, as `begin` has them."""
        gone = self.deleted_row_ids()
        if len(gone) == 0:
            wanted = self.begin.schema.names if columns is None else list(columns)
            return pa.schema([self.begin.schema.field(name) for name in wanted]).empty_table()
        return self.begin.take(gone, columns)

    def _native_delta(self) -> Any:
        # Values come from the handle, whatever the end version says: it must stand at the end.
        return self.end.native.delta(begin_version=self.begin.version, end_version=self.end.version)


def _row_ids(table: Table, fragments: Sequence[Fragment]) -> npt.NDArray[np.uint64]:
    found = table.scan([], fragments=[one.id for one in fragments], row_ids=True, ordered=False)
    ids: npt.NDArray[np.uint64] = found.column("_rowid").to_numpy().astype(np.uint64)
    return ids


def _select_columns(reader: pa.RecordBatchReader, columns: Sequence[str] | None) -> pa.Table:
    """Some columns of all rows; the others, which can be large, are let go of on the way."""
    if columns is None:
        return to_logical(reader.read_all())
    wanted = pa.schema([reader.schema.field(name) for name in columns])
    return to_logical(pa.Table.from_batches((batch.select(list(columns)) for batch in reader), wanted))


@dataclass(frozen=True, slots=True)
class FragmentDiff:
    """The fragments of two versions of one table that do not have the same rows in both."""

    left: tuple[Fragment, ...]
    """Those that only the one has."""
    right: tuple[Fragment, ...]
    """Those that only the other has."""
    both: tuple[Fragment, ...]
    """Those that both have, with different rows deleted."""
    deleted: int
    """By how many deleted rows these differ, judged by their counts."""

    @property
    def rows(self) -> int:
        """How many rows the two can differ in at most."""
        return sum(one.rows for one in (*self.left, *self.right)) + self.deleted


def diff_fragments(left: Table, right: Table) -> FragmentDiff:
    """Return the fragments that two versions of one table do not share, from their descriptions alone."""
    ours, theirs = _describe_fragments(left), _describe_fragments(right)
    same = [name for name in ours if name in theirs and ours[name][1] != theirs[name][1]]
    return FragmentDiff(
        tuple(one for name, (one, _) in ours.items() if name not in theirs),
        tuple(one for name, (one, _) in theirs.items() if name not in ours),
        tuple(ours[name][0] for name in same),
        sum(abs(_count_deletions(ours[name][1]) - _count_deletions(theirs[name][1])) for name in same),
    )


_Deletion = tuple[int, int, int] | None


def _describe_fragments(table: Table) -> dict[object, tuple[Fragment, _Deletion]]:
    """Return fragments by id and files, with their deletions; base ids are ignored: forks renumber them."""
    found: dict[object, tuple[Fragment, _Deletion]] = {}
    for fragment in table.native.get_fragments():
        stored = fragment.metadata
        name = (stored.id, tuple((data_file_name(file), tuple(file.fields)) for file in stored.files))
        gone = stored.deletion_file
        mark = None if gone is None else (gone.read_version, gone.id, gone.num_deleted_rows)
        size = sum(file.file_size_bytes or 0 for file in stored.files)
        found[name] = Fragment(stored.id, stored.num_rows, size), mark
    return found


def _count_deletions(mark: _Deletion) -> int:
    return 0 if mark is None else mark[2]
