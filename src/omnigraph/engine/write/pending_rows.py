"""The rows that statements of a mutation write, and the pending rows of a table, which later statements see.

Of several writes to one id the last one counts, and a pending row hides the stored one with its id.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.stored_rows import StoredRows
from omnigraph.engine.constraints.table_change import NO_IDS, TableChange, exclude, is_among, last_rows
from omnigraph.engine.graph.table_types import ID, SOURCE, TARGET, TableType
from omnigraph.engine.rows.blobs import is_blob, read_blobs, reject_external, require_blob_bytes, to_writable
from omnigraph.engine.rows.ids import key_ids
from omnigraph.engine.rows.json_columns import build_column
from omnigraph.engine.rows.predicate import one_of
from omnigraph.errors import BadRequest, InternalError, InvalidValue, ResourceLimitExceeded
from omnigraph.lang.types import Scalar
from omnigraph.lang.values import Stored
from omnigraph.storage.blobs import blob_sizes, read_blob_bytes
from omnigraph.storage.tables import Table

ROWS_SETTING = "OMNIGRAPH_MUTATION_ROWS"
BYTES_SETTING = "OMNIGRAPH_MUTATION_BYTES"
UPDATE_SETTING = "OMNIGRAPH_UPDATE_ROWS"

_ALONE = "run the update in a query of its own, where it may match any number of rows"

Evaluate = Callable[[pa.Table], Any]
"""For each row of a table whether it is wanted."""


@dataclass(frozen=True, slots=True)
class PendingLimits:
    """How much one commit may write to one table."""

    rows: int = 8192
    bytes: int = 32 * 2**20
    updated_rows: int | None = None
    """How many rows an update may match that is the only statement about its type; None for any number."""

    @classmethod
    def configured(cls) -> PendingLimits:
        """Those of the environment: `OMNIGRAPH_MUTATION_ROWS`, `..._BYTES` and `OMNIGRAPH_UPDATE_ROWS`."""
        usual = cls()
        return cls(
            _read_setting(ROWS_SETTING, usual.rows),
            _read_setting(BYTES_SETTING, usual.bytes),
            _read_setting(UPDATE_SETTING, 0) if UPDATE_SETTING in os.environ else None,
        )


def _read_setting(name: str, usual: int) -> int:
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
    def is_untouched(self) -> bool:
        """Whether nothing was written or deleted yet."""
        return not self._rows_in and not len(self._deleted)

    def require_matches(self, count: Callable[[], int]) -> None:
        """Fail when an update matches more rows than a setting allows; counts them only if there is one."""
        limit = self._limits.updated_rows
        if limit is not None and (actual := count()) > limit:
            raise ResourceLimitExceeded(f"keyed entities for {self.target.key}", limit=limit, actual=actual)

    def refuse_more(self, actual: int) -> ResourceLimitExceeded:
        """Return the error for another statement about a type with an update that memory does not hold."""
        limit, resource = self._limits.rows, f"keyed entities for {self.target.key}"
        return ResourceLimitExceeded(resource, limit=limit, actual=actual, remedy=_ALONE)

    def has_room(self, rows: int, size: int) -> bool:
        """Whether so many more rows, of so many bytes, are not too much for one commit."""
        fits = self._bytes_in + size <= self._limits.bytes
        return fits and self._rows_in + rows <= self._limits.rows

    @property
    def room(self) -> int:
        """How many rows may still be written."""
        return self._limits.rows - self._rows_in

    def require_room(self, rows: int, size: int, remedy: str | None = None) -> None:
        """Fail when so many more rows, of so many bytes, are too much for one commit."""
        for what, actual, limit in (
            ("keyed entities", self._rows_in + rows, self._limits.rows),
            ("keyed entity bytes", self._bytes_in + size, self._limits.bytes),
        ):
            if actual > limit:
                raise ResourceLimitExceeded(
                    f"{what} for {self.target.key}", limit=limit, actual=actual, remedy=remedy
                )


Values = Mapping[str, Stored]
"""Converted values by property; a property that is left out is null."""


def build_nodes(target: TableType, values: Sequence[Values], new_ids: pa.Array) -> pa.Table:
    """Whole rows; the ids follow from the keys, and are the new ones where the type has no key."""
    columns = _build_properties(target, values)
    if not target.identity:
        return _build_table(target, {**columns, ID: new_ids})
    for name in target.identity:
        if columns[name].null_count:
            raise missing_value_error(target, name)
    return _build_table(target, {**columns, ID: key_ids(target, columns)})


def build_edges(
    target: TableType,
    sources: Sequence[str],
    targets: Sequence[str],
    values: Sequence[Values],
    new_ids: pa.Array,
) -> pa.Table:
    """Whole rows of edges between nodes given by their ids; their own are new where the type has no key."""
    ends = {SOURCE: pa.array(sources, pa.string()), TARGET: pa.array(targets, pa.string())}
    columns = {**_build_properties(target, values), **ends}
    for name in target.identity:
        if columns[name].null_count:
            raise missing_value_error(target, name)
    return _build_table(target, {**columns, ID: key_ids(target, columns) if target.identity else new_ids})


def assign_values(rows: pa.Table, target: TableType, values: Values) -> pa.Table:
    """Whole rows, with some properties set to the same value in all of them; those may be missing before."""
    columns = {name: rows.column(name) for name in rows.column_names}
    for name in values:
        columns[name] = repeat_value(target, name, values[name], rows.num_rows)
        _refuse_nulls(target, name, columns[name])
    return _build_table(target, columns)


def repeat_value(target: TableType, name: str, value: Stored, rows: int) -> pa.Array:
    """One value of a property as a column of so many rows."""
    return _build_column(target, name, [value]).take(pa.array(np.zeros(rows, np.int64)))


def _build_properties(target: TableType, values: Sequence[Values]) -> dict[str, pa.Array]:
    columns = {}
    for name in target.owner.properties:
        columns[name] = _build_column(target, name, [row.get(name) for row in values])
        if name not in target.identity:
            _refuse_nulls(target, name, columns[name])
    return columns


def _build_column(target: TableType, name: str, values: Sequence[Stored]) -> pa.Array:
    type_ = target.owner.properties[name].type
    if type_.scalar is not Scalar.BLOB:
        return build_column(values, type_)
    cells = read_blobs(values, name, target.schema.field(name), reject_external)
    for reason in cells.faults.values():
        raise InvalidValue(reason)
    return cells.array


def _refuse_nulls(target: TableType, name: str, column: pa.Array) -> None:
    if column.null_count and not target.owner.properties[name].type.nullable:
        raise missing_value_error(target, name)


def missing_value_error(target: TableType, name: str) -> InvalidValue:
    """A property of a row that must have a value has none."""
    if name in target.identity:
        return InvalidValue(
            f"insert @key property '{name}' cannot contain null",
            remedy=f"assign `{name}`; the id of a {target.name} follows from it",
        )
    return InvalidValue(f"missing required property '{name}'", remedy=f"assign `{name}`; it cannot be null")


def _build_table(target: TableType, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    return pa.Table.from_arrays([columns[name] for name in target.schema.names], schema=target.schema)


_ROW_ID = "_rowid"


def read_matched_rows(
    table: Table, pending: PendingRows, where: str, wanted: Evaluate, assigned: Collection[str]
) -> pa.Table | None:
    """The rows that an update matches, pending ones last, without the columns that it assigns.

    None when they are all stored and more than memory is to hold.
    """
    schema = pa.schema([field for field in pending.target.schema if field.name not in assigned])
    blobs = [field.name for field in filter(is_blob, schema)]
    size, parts = 0, []
    for part in _read_visible(table, pending, where, schema.names, with_row_ids=bool(blobs)):
        parts.append(part)
        size += _count_bytes(part, blobs)
        count = sum(part.num_rows for part in parts)
        if pending.is_untouched and not pending.has_room(count, size):
            pending.require_matches(lambda: table.count(where))
            return None
        if count > pending.room:
            count = _count_all(table, pending, where, wanted)
        pending.require_room(count, size, _ALONE)
    if pending.is_untouched:
        pending.require_matches(lambda: sum(part.num_rows for part in parts))
    stored = _fill_blob_bytes(table, pa.concat_tables(parts), blobs) if parts else schema.empty_table()
    return pending.read(stored, wanted)


def _read_visible(
    table: Table, pending: PendingRows, where: str, columns: Sequence[str], *, with_row_ids: bool
) -> Iterator[pa.Table]:
    """The stored rows that nothing pending hides, some at a time; at most one more than there is room for."""
    most = pending.room + 1 + len(pending.hiding)
    for batch in table.batches(columns, where=where, limit=most, row_ids=with_row_ids):
        yield pending.unhidden(pa.Table.from_batches([batch]))


def _count_bytes(rows: pa.Table, blobs: Sequence[str]) -> int:
    described = (blob_sizes(chunk) for name in blobs for chunk in rows.column(name).chunks)
    plain = rows.drop_columns([*blobs, _ROW_ID]) if blobs else rows
    return int(plain.nbytes) + sum(int(pc.sum(sizes, min_count=0).as_py()) for sizes in described)


def _count_all(table: Table, pending: PendingRows, where: str, wanted: Evaluate) -> int:
    """Count all rows that an update matches, for the error that they are too many."""
    if not len(pending.hiding):
        return table.count(where)
    unhidden = f"({where}) AND NOT ({one_of(ID, pending.hiding.to_pylist())})"
    return table.count(unhidden) + int(pc.sum(wanted(pending.rows()), min_count=0).as_py())


def _fill_blob_bytes(table: Table, rows: pa.Table, blobs: Sequence[str]) -> pa.Table:
    """The rows with the bytes of Blobs in the place of what was said of them."""
    if not blobs:
        return rows
    row_ids = rows.column(_ROW_ID).combine_chunks()
    for name in blobs:
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, read_blob_bytes(table, name, row_ids))
    return rows.drop_columns([_ROW_ID])
