"""What changed in a table between two versions, at a cost that follows the change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph.storage.tables import Table


@dataclass(frozen=True, slots=True)
class Delta:
    """The rows that differ between two versions of one table.

    `begin` may be of the branch that `end`'s branch was forked from, exactly at the fork. No restore to
    an older version may lie between the two. A row rewritten with the values it had counts as updated.
    """

    begin: Table
    end: Table

    def inserted(self) -> pa.Table:
        """The rows of `end` that `begin` does not have, with the version columns."""
        with self.end.access.call("delta", self.end.uri):
            return self._native().get_inserted_rows().read_all()

    def updated(self) -> pa.Table:
        """The rows both have and that were written in between, as `end` has them."""
        with self.end.access.call("delta", self.end.uri):
            return self._native().get_updated_rows().read_all()

    def deleted_row_ids(self) -> pa.Array:
        """The row ids that `begin` has and `end` does not."""
        with self.end.access.call("delta", self.end.uri):
            found = self._native().get_deleted_row_ids().read_all()
            return found.column("_rowid").combine_chunks()

    def deleted(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows that `begin` has and `end` does not, as `begin` has them."""
        gone = self.deleted_row_ids()
        if len(gone) == 0:
            wanted = self.begin.schema.names if columns is None else list(columns)
            return pa.schema([self.begin.schema.field(name) for name in wanted]).empty_table()
        return self.begin.take(gone, columns)

    def _native(self) -> Any:
        # Values come from the handle, whatever the end version says: it must stand at the end.
        return self.end.native.delta(begin_version=self.begin.version, end_version=self.end.version)
