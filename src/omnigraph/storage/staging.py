"""Changes prepared beside a table and made its next version by one commit; the transaction of a version.

A `stage_*` function writes files and moves nothing. `commit_staged` moves the table's newest version
from the one the change was staged on to the next, or fails. Lance by itself would let a commit slide over
other commits it finds compatible, so every change of rows is *fenced*: it also lists the table's first
fragment as changed, and any two fenced changes overlap. A table without fragments has none to list; there
a change becomes a strict overwrite. What the fence cannot see (an index build, a compaction elsewhere) the
check of the landed version does.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, Transaction
from lance import LanceOperation as Op
from lance.debug import list_transactions
from lance.fragment import write_fragments

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import StorageFailure
from omnigraph.storage.durability import require_complete_deletion_files, require_complete_files
from omnigraph.storage.failures import TableFailureKind, is_missing_transaction, table_failure
from omnigraph.storage.tables import (
    PRIMARY_KEY,
    STORAGE_FORMAT,
    Rows,
    Table,
    cast_rows,
    storage_options,
    to_stored_types,
    with_primary_key,
)

BINDING = lance.__version__
"""The release of Lance's Python package in use; the form of its transactions may differ in the next."""


def new_uuid() -> str:
    """A mark by which a change will be recognised once it landed."""
    return str(uuid4())


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows a change adds, replaces and removes; None where only the commit knows."""

    inserted: int | None = 0
    updated: int | None = 0
    deleted: int | None = 0


@dataclass(frozen=True, slots=True)
class Staged:
    """A change whose files are written and which no reader sees."""

    table: Table
    transaction: Transaction = field(repr=False, compare=False)
    counts: Counts = Counts()
    second_phase: Callable[[Table], Staged] | None = field(default=None, repr=False, compare=False)
    """Stages the second version of a change that takes two, on the first one once it landed."""

    @property
    def takes_two_versions(self) -> bool:
        """Whether the change takes two versions."""
        return self.second_phase is not None

    @property
    def uuid(self) -> str:
        """The uuid by which the change is recognised once it landed."""
        return self.transaction.uuid

    def with_uuid(self, uuid: str) -> Staged:
        """Return the same change under a uuid that was recorded before it was staged."""
        old = self.transaction
        return replace(
            self,
            transaction=Transaction(old.read_version, old.operation, uuid, old.transaction_properties),
        )

    def with_properties(self, properties: Mapping[str, str]) -> Staged:
        """Return the same change with these properties for the version it makes."""
        old = self.transaction
        merged = {**(old.transaction_properties or {}), **properties}
        return replace(self, transaction=Transaction(old.read_version, old.operation, old.uuid, merged))


def stage_append(table: Table, rows: Rows) -> Staged:
    """Stage rows to be added; their keys are not looked up."""
    with table.access.call("stage_append", table.uri):
        written = write_fragments(
            to_stored_types(rows, table),
            table.native,
            mode="append",
            return_transaction=True,
            **write_options(table),
        )
        require_complete_files("stage_append", table.location, table.uri, written.operation)
        inserted = _count_rows(written.operation)
        return Staged(table, _fence_change(table, written), Counts(inserted=inserted))


def stage_delete(table: Table, keys: pa.Array | pa.ChunkedArray, key: str = "id") -> Staged:
    """Stage the removal of the rows with these keys; keys that are not stored are ignored."""

    def staged(indexed: bool) -> Staged:
        doomed = pa.table([pc.unique(keys)], schema=pa.schema([table.schema.field(key)]))
        builder = table.native.merge_insert(key).when_matched_delete().use_index(indexed)
        transaction, stats = builder.execute_uncommitted(doomed)
        return Staged(table, _fence_change(table, transaction), Counts(deleted=stats["num_deleted_rows"]))

    return table.run_with_indexes("stage_delete", staged)


def stage_overwrite(table: Table, rows: Rows) -> Staged:
    """Stage the replacement of all rows and columns; the key stays the key, indexes are dropped."""
    with table.access.call("stage_overwrite", table.uri):
        rows = to_stored_types(rows, table)
        schema = with_primary_key(rows.schema, *table.primary_key)
        written = write_fragments(
            cast_rows(rows, schema),
            table.native,
            mode="overwrite",
            return_transaction=True,
            data_storage_version=STORAGE_FORMAT,
            **write_options(table),
        )
        require_complete_files("stage_overwrite", table.location, table.uri, written.operation)
        inserted = _count_rows(written.operation)
        return Staged(
            table, _with_new_uuid(written), Counts(inserted=inserted, deleted=table.native.count_rows())
        )


def stage_restore(table: Table, version: int) -> Staged:
    """Stage the content of an earlier version as the newest.

    It never conflicts and lands above any version: use it only once the outcome is decided. Every other
    change staged before it fails afterwards.
    """
    return Staged(table, build_transaction(table, Op.Restore(version=version)), Counts(None, None, None))


def stage_config(table: Table, changes: Mapping[str, str | None]) -> Staged:
    """Stage settings of the table to be set, or removed where the value is None."""
    return Staged(
        table, build_transaction(table, Op.UpdateConfig(config_updates=Op.UpdateMap(dict(changes))))
    )


def stage_schema_metadata(table: Table, changes: Mapping[str, str | None]) -> Staged:
    """Stage metadata of the table's schema to be set, or removed where the value is None."""
    return Staged(
        table, build_transaction(table, Op.UpdateConfig(schema_metadata_updates=Op.UpdateMap(dict(changes))))
    )


def stage_primary_key(table: Table, column: str) -> Staged:
    """Stage marking a required column as the key of a table without one; it can never be changed."""
    if table.primary_key or column not in table.schema.names:
        reason = f"its columns are {table.schema.names} and its key is {list(table.primary_key)}"
        raise table_failure(TableFailureKind.INVALID, "stage_primary_key", table.uri, reason)
    mark = Op.UpdateMap({PRIMARY_KEY.decode(): "true"})
    marked = {field.id(): mark for field in table.native.lance_schema.fields() if field.name() == column}
    return Staged(table, build_transaction(table, Op.UpdateConfig(field_metadata_updates=marked)))


def commit_staged(staged: Staged, *, is_newest: bool = False) -> Table:
    """Commit the change and return the table at its version, right after the one it was staged on.

    `is_newest` says that the caller has just found that version to be the newest, with the lock held. Then a
    commit of rows by a process that lost the lock is still a `Conflict`; one that changes no row, such as an
    index, makes it `Displaced`.

    Fails with `Moved` when the table is not at that version any more, `Conflict` when another commit was
    faster: then nothing of it is visible. `Displaced` means that it landed higher up, `Undecided` that it
    may have landed or may still land. A change that landed although the store's answer was lost, or that is
    committed a second time, is recognised by its mark and is a success.
    """
    table, base = staged.table, staged.transaction.read_version
    restores = isinstance(staged.transaction.operation, Op.Restore)
    is_newest = is_newest and not isinstance(staged.transaction.operation, Op.Overwrite)
    if not is_newest and not _is_at_newest(staged):
        head = table.latest_version()
        landed = _open_landed(staged, head)
        if landed is not None:
            return landed
        if head != base and not restores:
            raise _moved_error(staged, head)
    table.before_commit()
    try:
        with table.access.call("commit", table.uri):
            native = LanceDataset.commit(table.native, staged.transaction, max_retries=0)
    except StorageFailure as error:
        return _resolve_failed_commit(staged, error)
    if native.version != base + 1 and not restores:
        raise _displaced_error(staged, native.version)
    return table.with_handle(native).make_durable(table, staged.transaction)


def _is_at_newest(staged: Staged) -> bool:
    """Whether the table is still at the version the change was staged on."""
    if isinstance(staged.transaction.operation, Op.Overwrite):
        # It takes the next number whatever is above, and so must not find that one collected.
        return staged.table.latest_version() == staged.table.version
    return staged.table.is_newest()


def find_landed(staged: Staged, until: int) -> int | None:
    """Return the version this change made, searching up to `until`; None when it made none of them."""
    for version in range(staged.transaction.read_version + 1, until + 1):
        if read_transaction(staged.table, version).uuid == staged.uuid:
            return version
    return None


def _resolve_failed_commit(staged: Staged, error: StorageFailure) -> Table:
    """Return the table if the change landed after all; else raise the failure or `Undecided`."""
    uri = staged.table.uri
    try:
        landed = _open_landed(staged, staged.table.latest_version())
    except StorageFailure as second:
        if second.kind == TableFailureKind.DISPLACED:
            raise
        # Even a conflict may be the answer to a second attempt of the client whose first one landed.
        raise table_failure(
            TableFailureKind.UNDECIDED, "commit", uri, f"{error.message}; then {second.message}"
        ) from error
    if landed is not None:
        return landed
    if error.kind in (TableFailureKind.TRANSIENT, TableFailureKind.UNKNOWN):
        raise table_failure(TableFailureKind.UNDECIDED, "commit", uri, error.message) from error
    raise error


def _open_landed(staged: Staged, head: int) -> Table | None:
    table, base = staged.table, staged.transaction.read_version
    version = find_landed(staged, head)
    if version is None:
        return None
    if version != base + 1 and not isinstance(staged.transaction.operation, Op.Restore):
        raise _displaced_error(staged, version)
    with table.access.call("open", table.uri):
        landed = table.with_handle(table.native.checkout_version(version))
    return landed.make_durable(table, staged.transaction)


def _moved_error(staged: Staged, head: int) -> StorageFailure:
    base = staged.transaction.read_version
    reason = f"the change was prepared on version {base} and the newest version is {head}"
    return table_failure(TableFailureKind.MOVED, "commit", staged.table.uri, reason)


def _displaced_error(staged: Staged, version: int) -> StorageFailure:
    base = staged.transaction.read_version
    reason = f"the change was prepared on version {base} and became version {version}"
    return table_failure(TableFailureKind.DISPLACED, "commit", staged.table.uri, reason)


def build_transaction(table: Table, operation: Op.BaseOperation) -> Transaction:
    """Return a transaction for an operation that changes no rows, or that conflicts strictly anyway."""
    return Transaction(table.version, operation, new_uuid(), {})


def build_fenced_append(table: Table, fragments: Sequence[Any]) -> Transaction:
    """Return a fenced transaction that adds fragments which are written already."""
    return _fence_change(table, build_transaction(table, Op.Append(list(fragments))))


def build_fenced_update(table: Table, operation: Op.Update) -> Transaction:
    """Return a fenced transaction that replaces rows by those of fragments which are written already."""
    return _fence_change(table, build_transaction(table, operation))


def _fence_change(table: Table, written: Transaction) -> Transaction:
    """Return the transaction in a form that conflicts with every other fenced one."""
    operation: Any = written.operation
    fragments = table.native.get_fragments()
    if not fragments:
        new = operation.fragments if isinstance(operation, Op.Append) else operation.new_fragments
        return _with_new_uuid(written, Op.Overwrite(table.native.lance_schema, list(new)))
    first = min(fragments, key=lambda fragment: int(fragment.fragment_id))
    if isinstance(operation, Op.Append):
        return _with_new_uuid(written, _append_as_update(table, operation, first.metadata))
    known = {int(fragment.fragment_id): fragment.metadata for fragment in fragments}
    require_complete_deletion_files("stage", table.location, table.uri, operation, known)
    touched = {fragment.id for fragment in operation.updated_fragments} | set(operation.removed_fragment_ids)
    if first.fragment_id not in touched:
        operation.updated_fragments = [*operation.updated_fragments, first.metadata]
    return _with_new_uuid(written, operation)


def _append_as_update(table: Table, operation: Op.Append, first: Any) -> Op.Update:
    return Op.Update(
        new_fragments=list(operation.fragments),
        updated_fragments=[first],
        update_mode="rewrite_rows",
        # All columns of the new rows are new, so no index may take their fragments for covered.
        fields_for_preserving_frag_bitmap=[column.id() for column in table.native.lance_schema.fields()],
    )


def _with_new_uuid(written: Transaction, operation: Op.BaseOperation | None = None) -> Transaction:
    return Transaction(written.read_version, operation or written.operation, new_uuid(), {})


def _count_rows(operation: Any) -> int:
    return sum(fragment.physical_rows for fragment in operation.fragments)


def write_options(table: Table) -> dict[str, Any]:
    """Return the arguments with which Lance writes files beside a table."""
    found = storage_options(table.location)
    return {"storage_options": found} if found else {}


def refuse_duplicates(table: Table, keys: pa.ChunkedArray, operation: str) -> None:
    """Raise `StorageFailure` when a key occurs twice: Lance would silently add both rows."""
    if pc.count_distinct(keys).as_py() != len(keys):
        raise table_failure(
            TableFailureKind.DUPLICATE_KEYS, operation, table.uri, "two rows of the change have the same key"
        )


MAINTENANCE = frozenset({"Rewrite", "ReserveFragments", "CreateIndex", "UpdateConfig"})
"""Operations that change how rows are stored or found, and never which rows there are."""

UNKNOWN = "Unknown"

_PRINT = re.compile(
    r"Transaction \{\s+read_version: (?P<read_version>\d+),"
    r'\s+uuid: "(?P<uuid>[^"]+)",'
    r"\s+operation: (?P<operation>\w+)"
)


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """The transaction behind one version; `uuid` is None where Lance does not expose it."""

    version: int
    operation: str
    """Lance's name of the operation: Append, Update, Delete, Overwrite, Restore, CreateIndex, ..."""
    uuid: str | None
    read_version: int | None
    properties: Mapping[str, str] = field(default_factory=dict)
    restored: int | None = None
    """The version a Restore went back to."""

    @property
    def is_maintenance(self) -> bool:
        """Whether the version holds the same rows as the one before it."""
        return self.operation in MAINTENANCE


def read_transaction(table: Table, version: int) -> TransactionInfo:
    """Return the transaction of `version` of this branch; fails with `NotFound` when it is not stored."""
    with table.access.call("read_transaction", table.uri):
        try:
            # A handle is locked while it reads, and this one is shared: use a copy.
            found = copy.copy(table.native).read_transaction(version)
        except TypeError as error:
            if not is_missing_transaction(error):
                raise
            return _parse_debug_print(table, version)
        if found is None:
            return TransactionInfo(version, UNKNOWN, None, None)
        if type(found.operation) is Op.BaseOperation:
            return _parse_debug_print(table, version)
        return _from_lance(version, found)


def read_transactions(table: Table, after: int, until: int) -> tuple[TransactionInfo, ...]:
    """Return the transactions of the versions after one and up to another, in order."""
    return tuple(read_transaction(table, version) for version in range(after + 1, until + 1))


def _parse_debug_print(table: Table, version: int) -> TransactionInfo:
    """Read Lance's debug print, for operations its Python package has no class for, or cannot build."""
    printed = list_transactions(table.native.checkout_version(version), 1)
    found = _PRINT.match(printed[0]) if printed else None
    if found is None:
        return TransactionInfo(version, UNKNOWN, None, None)
    return TransactionInfo(version, found["operation"], found["uuid"], int(found["read_version"]))


def _from_lance(version: int, found: Transaction) -> TransactionInfo:
    operation = found.operation
    return TransactionInfo(
        version=version,
        operation=type(operation).__name__,
        uuid=found.uuid,
        read_version=found.read_version,
        properties=dict(found.transaction_properties or {}),
        restored=operation.version if isinstance(operation, Op.Restore) else None,
    )
