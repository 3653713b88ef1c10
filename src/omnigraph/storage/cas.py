"""The one-shot compare-and-swap on rows: either all of them land on what was read, or none."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, Transaction
from lance import LanceOperation as Op
from lance.fragment import LanceFragment, write_fragments

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import StorageFailure
from omnigraph.storage.durability import require_complete_deletion_files, require_complete_files
from omnigraph.storage.failures import TableFailureKind, table_failure
from omnigraph.storage.staging import new_uuid, write_options
from omnigraph.storage.tables import Table, cast_rows

_OFFSET_BITS = 32
"""An address is the number of a fragment, and below it the position of the row in that."""


@dataclass(frozen=True, slots=True)
class SwapResult:
    """The table right after the swap, and where the last of the rows is."""

    table: Table
    last_address: int | None = None
    """None where the swap does not know it."""
    made_by: Any | None = field(default=None, repr=False, compare=False)
    """Lance's transaction, where it is known."""


def merge_rows(table: Table, rows: pa.Table, key: str) -> SwapResult:
    """Insert or replace rows by `key`, as decided from what `table` showed at its version.

    Fails with `Contention` when any of the rows was written since, by anyone. Rows that were only read
    are not protected: rewrite one shared row in every swap if the decision rests on others. Lance may let
    the swap slide over commits that touch other rows, so the landed version can be higher than the next.

    It reads the keys of all fragments. A caller that knows the row to replace uses `replace_row`.
    """
    _refuse_unsafe_key(table, rows, key)
    table.before_commit()
    with table.access.call("merge_rows", table.uri):
        native = copy.copy(table.native)
        builder = native.merge_insert(key).when_matched_update_all().when_not_matched_insert_all()
        # A retry inside Lance would apply the rows to a base that was never read, and an index on the key
        # would switch the conflict check for new rows off.
        builder.conflict_retries(0).use_index(False).execute(rows)
        return SwapResult(table.with_handle(native))


def replace_row(table: Table, rows: pa.Table, key: str, address: int) -> SwapResult:
    """Add rows of which the last one replaces the row at an address, and the others have new keys.

    Fails with `Contention` when the fragment of the replaced row was changed since, by this function or by
    `merge_rows`: so two swaps of the same row always collide, as they do there. Like there, the swap may
    slide over commits that touch other fragments.
    """
    _refuse_unsafe_key(table, rows, key)
    with _report_contention(table), table.access.call("merge_rows", table.uri):
        return _commit_swap(_write_swap(table, rows, address))


@dataclass(frozen=True, slots=True)
class StagedSwap:
    """A replacement of a row whose files are written and which no reader sees."""

    table: Table
    made_by: Transaction = field(repr=False, compare=False)
    rows: int


def stage_row(table: Table, rows: pa.Table, key: str, address: int) -> StagedSwap:
    """Write the files of what `replace_row` does."""
    _refuse_unsafe_key(table, rows, key)
    with table.access.call("stage_row", table.uri):
        return _write_swap(table, rows, address)


def commit_row(staged: StagedSwap) -> SwapResult:
    """Commit a staged replacement; fails as `replace_row` does."""
    table = staged.table
    with _report_contention(table), table.access.call("merge_rows", table.uri):
        return _commit_swap(staged)


def _write_swap(table: Table, rows: pa.Table, address: int) -> StagedSwap:
    table.before_commit()
    native = table.native
    fragment, offset = divmod(address, 1 << _OFFSET_BITS)
    rows = cast_rows(rows.select(native.schema.names), native.schema)
    added = write_fragments(rows, native, mode="append", **write_options(table))
    holder = _open_fragment(table, fragment)
    left = holder.delete_rows([offset])
    operation = Op.Update(
        removed_fragment_ids=[fragment] if left is None else [],
        updated_fragments=[] if left is None else [left],
        new_fragments=list(added),
        update_mode="rewrite_rows",
        fields_for_preserving_frag_bitmap=[column.id() for column in native.lance_schema.fields()],
    )
    require_complete_files("merge_rows", table.location, table.uri, operation)
    known = {fragment: holder.metadata}
    require_complete_deletion_files("merge_rows", table.location, table.uri, operation, known)
    return StagedSwap(table, Transaction(table.version, operation, new_uuid(), {}), rows.num_rows)


@contextmanager
def _report_contention(table: Table) -> Iterator[None]:
    try:
        yield
    except StorageFailure as error:
        if error.kind != TableFailureKind.CONFLICT:
            raise
        raise table_failure(
            TableFailureKind.CONTENTION, "merge_rows", table.uri, "another writer was faster"
        ) from error


def _commit_swap(staged: StagedSwap) -> SwapResult:
    table, made_by = staged.table, staged.made_by
    landed = table.with_handle(LanceDataset.commit(table.native, made_by, max_retries=0))
    if landed.version != table.version + 1:
        return SwapResult(landed)
    newest = max(int(one.fragment_id) for one in landed.native.get_fragments())
    return SwapResult(landed, (newest << _OFFSET_BITS) + staged.rows - 1, made_by)


def replace_rows(table: Table, where: str, rows: pa.Table) -> Table:
    """Delete the rows that satisfy `where` and add others, in one version, on exactly what `table` shows."""
    table.before_commit()
    native = table.native
    with table.access.call("merge_rows", table.uri):
        rows = cast_rows(rows.select(native.schema.names), native.schema)
        added = write_fragments(rows, native, mode="append", **write_options(table))
        changed, gone, known = [], [], {}
        for fragment in native.get_fragments():
            left = fragment.delete(where)
            if left is None:
                gone.append(fragment.fragment_id)
            elif left.num_deletions != fragment.num_deletions:
                changed.append(left)
                known[fragment.fragment_id] = fragment.metadata
        operation = Op.Update(
            removed_fragment_ids=gone,
            updated_fragments=changed,
            new_fragments=list(added),
            update_mode="rewrite_rows",
            fields_for_preserving_frag_bitmap=[column.id() for column in native.lance_schema.fields()],
        )
        require_complete_files("merge_rows", table.location, table.uri, operation)
        require_complete_deletion_files("merge_rows", table.location, table.uri, operation, known)
        made_by = Transaction(table.version, operation, new_uuid(), {})
        landed = table.with_handle(LanceDataset.commit(native, made_by, max_retries=0))
    return landed.make_durable(table, made_by)


def _open_fragment(table: Table, number: int) -> LanceFragment:
    found = table.native.get_fragment(number)
    if found is None:
        raise table_failure(TableFailureKind.INVALID, "merge_rows", table.uri, f"it has no fragment {number}")
    return found


def find_row(table: Table, key: str, value: str) -> int | None:
    """Return the address of the row with a key; None when there is none."""
    with table.access.call("find_row", table.uri):
        quoted = value.replace("'", "''")
        scanner = table.native.scanner(columns=[key], filter=f"{key} = '{quoted}'", with_row_address=True)
        found = scanner.to_table().column("_rowaddr").to_pylist()
    return found[0] if found else None


def _refuse_unsafe_key(table: Table, rows: pa.Table, key: str) -> None:
    if table.primary_key != (key,):
        reason = f"'{key}' is not its primary key, so two writers could insert the same row"
        raise table_failure(TableFailureKind.INVALID, "merge_rows", table.uri, reason)
    if pc.count_distinct(rows.column(key)).as_py() != rows.num_rows:
        raise table_failure(
            TableFailureKind.DUPLICATE_KEYS, "merge_rows", table.uri, f"two rows have the same '{key}'"
        )
