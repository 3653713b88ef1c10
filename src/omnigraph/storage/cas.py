"""The one-shot compare-and-swap on rows: either all of them land on what was read, or none."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.storage.lance_errors import Trouble, failure
from omnigraph.storage.tables import Table


@dataclass(frozen=True, slots=True)
class Swapped:
    """The table right after the swap and what it did."""

    table: Table
    inserted: int
    updated: int


def merge_rows(table: Table, rows: pa.Table, key: str) -> Swapped:
    """Insert or replace rows by `key`, as decided from what `table` showed at its version.

    Fails with `Contention` when any of the rows was written since, by anyone. Rows that were only read
    are not protected: rewrite one shared row in every swap if the decision rests on others. Lance may let
    the swap slide over commits that touch other rows, so the landed version can be higher than the next.
    """
    _refuse_unsafe_key(table, rows, key)
    with table.access.call("merge_rows", table.uri):
        native = copy.copy(table.native)
        builder = native.merge_insert(key).when_matched_update_all().when_not_matched_insert_all()
        # A retry inside Lance would apply the rows to a base nobody looked at, and an index on the key
        # would switch the conflict check for new rows off.
        done = builder.conflict_retries(0).use_index(False).execute(rows)
        return Swapped(table.moved(native), done["num_inserted_rows"], done["num_updated_rows"])


def _refuse_unsafe_key(table: Table, rows: pa.Table, key: str) -> None:
    if table.primary_key != (key,):
        reason = f"'{key}' is not its primary key, so two writers could insert the same row"
        raise failure(Trouble.INVALID, "merge_rows", table.uri, reason)
    if pc.count_distinct(rows.column(key)).as_py() != rows.num_rows:
        raise failure(Trouble.DUPLICATE_KEYS, "merge_rows", table.uri, f"two rows have the same '{key}'")
