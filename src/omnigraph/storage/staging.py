"""Changes prepared beside a table and made its next version by one commit.

A `stage_*` function writes files and moves nothing. `commit_staged` moves the table's newest version
from the one the change was staged on to the next, or fails. Lance by itself would let a commit slide over
other commits it finds compatible, so every change of rows is *fenced*: it also lists the table's first
fragment as changed, and any two fenced changes overlap. A table without fragments has none to list; there
a change becomes a strict overwrite. What the fence cannot see (an index build, a compaction elsewhere) the
check of the landed version does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset, Transaction
from lance import LanceOperation as Op
from lance.fragment import write_fragments

from omnigraph.errors import StorageFailure
from omnigraph.storage.lance_errors import Trouble, failure
from omnigraph.storage.tables import (
    PRIMARY_KEY,
    STORAGE_FORMAT,
    Rows,
    Table,
    options,
    under,
    with_primary_key,
)
from omnigraph.storage.transactions import authorship
from omnigraph.storage.whole import require_whole

BINDING = lance.__version__
"""The release of Lance's Python package in use; the form of its transactions may differ in the next."""


def new_mark() -> str:
    """A mark by which a change will be recognised once it landed."""
    return str(uuid4())


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows a change adds, replaces and removes; None where only the commit can tell."""

    inserted: int | None = 0
    updated: int | None = 0
    deleted: int | None = 0


@dataclass(frozen=True, slots=True)
class Staged:
    """A change whose files are written and which no reader sees."""

    table: Table
    transaction: Transaction = field(repr=False, compare=False)
    counts: Counts = Counts()
    then: Callable[[Table], Staged] | None = field(default=None, repr=False, compare=False)
    """The rest of a change that takes two versions, to be staged on what the first one makes."""

    @property
    def in_two(self) -> bool:
        """Whether the change takes two versions."""
        return self.then is not None

    @property
    def uuid(self) -> str:
        """The mark by which the change is recognised once it landed."""
        return self.transaction.uuid

    def marked(self, uuid: str) -> Staged:
        """The same change under a mark that was drawn, and noted, before it was staged."""
        old = self.transaction
        return replace(
            self,
            transaction=Transaction(old.read_version, old.operation, uuid, old.transaction_properties),
        )

    def signed(self, properties: Mapping[str, str]) -> Staged:
        """The same change carrying these properties into the version it makes."""
        old = self.transaction
        merged = {**(old.transaction_properties or {}), **properties}
        return replace(self, transaction=Transaction(old.read_version, old.operation, old.uuid, merged))


def stage_append(table: Table, rows: Rows) -> Staged:
    """Rows to be added; their keys are not looked up."""
    with table.access.call("stage_append", table.uri):
        written = write_fragments(
            rows, table.native, mode="append", return_transaction=True, **writing_to(table)
        )
        require_whole("stage_append", table.location, table.uri, written.operation)
        inserted = _rows_in(written.operation)
        return Staged(table, _fenced(table, written), Counts(inserted=inserted))


def stage_delete(table: Table, keys: pa.Array | pa.ChunkedArray, key: str = "id") -> Staged:
    """The rows with these keys to be removed; keys that are not stored count for nothing."""

    def staged(indexed: bool) -> Staged:
        doomed = pa.table([pc.unique(keys)], schema=pa.schema([table.schema.field(key)]))
        builder = table.native.merge_insert(key).when_matched_delete().use_index(indexed)
        transaction, stats = builder.execute_uncommitted(doomed)
        return Staged(table, _fenced(table, transaction), Counts(deleted=stats["num_deleted_rows"]))

    return table.asked("stage_delete", staged)


def stage_overwrite(table: Table, rows: Rows) -> Staged:
    """These rows, and their columns, to be all there is; the key stays the key, indexes go."""
    with table.access.call("stage_overwrite", table.uri):
        schema = with_primary_key(rows.schema, *table.primary_key)
        written = write_fragments(
            under(rows, schema),
            table.native,
            mode="overwrite",
            return_transaction=True,
            data_storage_version=STORAGE_FORMAT,
            **writing_to(table),
        )
        require_whole("stage_overwrite", table.location, table.uri, written.operation)
        inserted = _rows_in(written.operation)
        return Staged(table, _ours(written), Counts(inserted=inserted, deleted=table.native.count_rows()))


def stage_restore(table: Table, version: int) -> Staged:
    """The content of an earlier version to be the newest again.

    It never conflicts and lands above whatever is there: use it only once the outcome is decided. Every
    other change staged before it fails afterwards.
    """
    return Staged(table, unfenced(table, Op.Restore(version=version)), Counts(None, None, None))


def stage_config(table: Table, changes: Mapping[str, str | None]) -> Staged:
    """Settings of the table to be set, or removed where the value is None."""
    return Staged(table, unfenced(table, Op.UpdateConfig(config_updates=Op.UpdateMap(dict(changes)))))


def stage_schema_metadata(table: Table, changes: Mapping[str, str | None]) -> Staged:
    """Metadata of the table's schema to be set, or removed where the value is None."""
    return Staged(
        table, unfenced(table, Op.UpdateConfig(schema_metadata_updates=Op.UpdateMap(dict(changes))))
    )


def stage_primary_key(table: Table, column: str) -> Staged:
    """A required column of a table without a key to be marked as its key; it can never be changed."""
    if table.primary_key or column not in table.schema.names:
        reason = f"its columns are {table.schema.names} and its key is {list(table.primary_key)}"
        raise failure(Trouble.INVALID, "stage_primary_key", table.uri, reason)
    mark = Op.UpdateMap({PRIMARY_KEY.decode(): "true"})
    marked = {field.id(): mark for field in table.native.lance_schema.fields() if field.name() == column}
    return Staged(table, unfenced(table, Op.UpdateConfig(field_metadata_updates=marked)))


def commit_staged(staged: Staged) -> Table:
    """The table at the version this change made, right after the one it was staged on.

    Fails with `Moved` when the table is not at that version any more, `Conflict` when another commit was
    faster: then nothing of it is visible. `Displaced` means that it landed higher up, `Undecided` that it
    may have landed or may still land. A change that landed although the store's answer was lost, or that is
    committed a second time, is recognised by its mark and is a success.
    """
    table, base = staged.table, staged.transaction.read_version
    restores = isinstance(staged.transaction.operation, Op.Restore)
    if not _stands_still(staged):
        head = table.latest_version()
        landed = _landed_before(staged, head)
        if landed is not None:
            return landed
        if head != base and not restores:
            raise _moved(staged, head)
    try:
        with table.access.call("commit", table.uri):
            native = LanceDataset.commit(table.native, staged.transaction, max_retries=0)
    except StorageFailure as error:
        return _despite(staged, error)
    if native.version != base + 1 and not restores:
        raise _displaced(staged, native.version)
    return table.moved(native).settled(table)


def _stands_still(staged: Staged) -> bool:
    """Whether the table is still at the version the change was staged on."""
    if isinstance(staged.transaction.operation, Op.Overwrite):
        # It takes the next number whatever is above, and so must not find that one collected.
        return staged.table.latest_version() == staged.table.version
    return staged.table.stands_still()


def find_landed(staged: Staged, until: int) -> int | None:
    """The version this change made, looked for up to `until`; None when it is in none of them."""
    for version in range(staged.transaction.read_version + 1, until + 1):
        if authorship(staged.table, version).uuid == staged.uuid:
            return version
    return None


def _despite(staged: Staged, error: StorageFailure) -> Table:
    """The change if it landed although its commit failed; else the failure, or that nobody can tell."""
    uri = staged.table.uri
    try:
        landed = _landed_before(staged, staged.table.latest_version())
    except StorageFailure as second:
        if second.kind == Trouble.DISPLACED:
            raise
        # Even a conflict may be the answer to a second attempt of the client whose first one landed.
        raise failure(Trouble.UNDECIDED, "commit", uri, f"{error.message}; then {second.message}") from error
    if landed is not None:
        return landed
    if error.kind in (Trouble.TRANSIENT, Trouble.UNKNOWN):
        raise failure(Trouble.UNDECIDED, "commit", uri, error.message) from error
    raise error


def _landed_before(staged: Staged, head: int) -> Table | None:
    table, base = staged.table, staged.transaction.read_version
    version = find_landed(staged, head)
    if version is None:
        return None
    if version != base + 1 and not isinstance(staged.transaction.operation, Op.Restore):
        raise _displaced(staged, version)
    with table.access.call("open", table.uri):
        landed = table.moved(table.native.checkout_version(version))
    return landed.settled(table)


def _moved(staged: Staged, head: int) -> StorageFailure:
    base = staged.transaction.read_version
    reason = f"the change was prepared on version {base} and the newest version is {head}"
    return failure(Trouble.MOVED, "commit", staged.table.uri, reason)


def _displaced(staged: Staged, version: int) -> StorageFailure:
    base = staged.transaction.read_version
    reason = f"the change was prepared on version {base} and became version {version}"
    return failure(Trouble.DISPLACED, "commit", staged.table.uri, reason)


def unfenced(table: Table, operation: Op.BaseOperation) -> Transaction:
    """A transaction of ours for an operation that changes no rows, or that is strict by itself."""
    return Transaction(table.version, operation, new_mark(), {})


def fenced_append(table: Table, fragments: Sequence[Any]) -> Transaction:
    """A transaction of ours that adds fragments which are written already."""
    return _fenced(table, unfenced(table, Op.Append(list(fragments))))


def fenced_update(table: Table, operation: Op.Update) -> Transaction:
    """A transaction of ours that replaces rows by those of fragments which are written already."""
    return _fenced(table, unfenced(table, operation))


def _fenced(table: Table, written: Transaction) -> Transaction:
    """The transaction in a form that conflicts with every other fenced one."""
    operation: Any = written.operation
    fragments = table.native.get_fragments()
    if not fragments:
        new = operation.fragments if isinstance(operation, Op.Append) else operation.new_fragments
        return _ours(written, Op.Overwrite(table.native.lance_schema, list(new)))
    first = min(fragments, key=lambda fragment: int(fragment.fragment_id))
    if isinstance(operation, Op.Append):
        return _ours(written, _append_as_update(table, operation, first.metadata))
    touched = {fragment.id for fragment in operation.updated_fragments} | set(operation.removed_fragment_ids)
    if first.fragment_id not in touched:
        operation.updated_fragments = [*operation.updated_fragments, first.metadata]
    return _ours(written, operation)


def _append_as_update(table: Table, operation: Op.Append, first: Any) -> Op.Update:
    return Op.Update(
        new_fragments=list(operation.fragments),
        updated_fragments=[first],
        update_mode="rewrite_rows",
        # All columns of the new rows are new, so no index may take their fragments for covered.
        fields_for_preserving_frag_bitmap=[column.id() for column in table.native.lance_schema.fields()],
    )


def _ours(written: Transaction, operation: Op.BaseOperation | None = None) -> Transaction:
    return Transaction(written.read_version, operation or written.operation, new_mark(), {})


def _rows_in(operation: Any) -> int:
    return sum(fragment.physical_rows for fragment in operation.fragments)


def writing_to(table: Table) -> dict[str, Any]:
    """What Lance must be told to write files beside a table."""
    found = options(table.location)
    return {"storage_options": found} if found else {}


def refuse_duplicates(table: Table, keys: pa.ChunkedArray, operation: str) -> None:
    """Raise `StorageFailure` when a key is there twice: Lance adds both rows without a word."""
    if pc.count_distinct(keys).as_py() != len(keys):
        raise failure(
            Trouble.DUPLICATE_KEYS, operation, table.uri, "two rows of the change have the same key"
        )
