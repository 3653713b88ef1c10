"""The rows that single statements of a mutation write."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.constraints.pending_rows import Evaluate, PendingRows
from omnigraph.engine.graph.table_types import ID, SOURCE, TARGET, TableType
from omnigraph.engine.rows.blobs import is_blob, read_blobs, reject_external
from omnigraph.engine.rows.ids import compose_ids, render_keys
from omnigraph.engine.rows.json_columns import build_column
from omnigraph.engine.rows.predicate import one_of
from omnigraph.errors import InvalidValue
from omnigraph.lang.types import Scalar
from omnigraph.lang.values import Stored
from omnigraph.storage.blobs import blob_sizes, read_blob_bytes
from omnigraph.storage.tables import Table

Values = Mapping[str, Stored]
"""Converted values by property; a property that is left out is null."""


def build_nodes(target: TableType, values: Sequence[Values], new_ids: pa.Array) -> pa.Table:
    """Whole rows; the ids follow from the keys, and are the new ones where the type has no key."""
    columns = _properties(target, values)
    if not target.identity:
        return _table(target, {**columns, ID: new_ids})
    for name in target.identity:
        if columns[name].null_count:
            raise missing_value_error(target, name)
    types = target.owner.properties
    keyed = compose_ids([render_keys(columns[name], types[name].type) for name in target.identity])
    return _table(target, {**columns, ID: keyed})


def build_edges(
    target: TableType,
    sources: Sequence[str],
    targets: Sequence[str],
    values: Sequence[Values],
    new_ids: pa.Array,
) -> pa.Table:
    """Whole rows of edges between nodes given by their ids."""
    ends = {SOURCE: pa.array(sources, pa.string()), TARGET: pa.array(targets, pa.string())}
    return _table(target, {**_properties(target, values), **ends, ID: new_ids})


def assign_values(rows: pa.Table, target: TableType, values: Values) -> pa.Table:
    """Whole rows, with some properties set to the same value in all of them; those may be missing before."""
    columns = {name: rows.column(name) for name in rows.column_names}
    for name in values:
        column = _column(target, name, [values[name]])
        columns[name] = column.take(pa.array([0] * rows.num_rows, pa.int64()))
        _refuse_missing(target, name, columns[name])
    return _table(target, columns)


def _properties(target: TableType, values: Sequence[Values]) -> dict[str, pa.Array]:
    columns = {}
    for name in target.owner.properties:
        columns[name] = _column(target, name, [row.get(name) for row in values])
        if name not in target.identity:
            _refuse_missing(target, name, columns[name])
    return columns


def _column(target: TableType, name: str, values: Sequence[Stored]) -> pa.Array:
    type_ = target.owner.properties[name].type
    if type_.scalar is not Scalar.BLOB:
        return build_column(values, type_)
    cells = read_blobs(values, name, target.schema.field(name), reject_external)
    for reason in cells.faults.values():
        raise InvalidValue(reason)
    return cells.array


def _refuse_missing(target: TableType, name: str, column: pa.Array) -> None:
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


def _table(target: TableType, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    return pa.Table.from_arrays([columns[name] for name in target.schema.names], schema=target.schema)


_ROW_ID = "_rowid"


def read_matched_rows(
    table: Table, pending: PendingRows, where: str, wanted: Evaluate, assigned: Collection[str]
) -> pa.Table:
    """The rows that an update matches, pending ones last, without the columns that it assigns."""
    schema = pa.schema([field for field in pending.target.schema if field.name not in assigned])
    blobs = [field.name for field in filter(is_blob, schema)]
    size, parts = 0, []
    for part in _read_visible(table, pending, where, schema.names, with_row_ids=bool(blobs)):
        parts.append(part)
        size += _size(part, blobs)
        count = sum(part.num_rows for part in parts)
        if count > pending.room:
            count = _count_all(table, pending, where, wanted)
        pending.require_room(count, size)
    stored = _fill_blob_bytes(table, pa.concat_tables(parts), blobs) if parts else schema.empty_table()
    return pending.read(stored, wanted)


def _read_visible(
    table: Table, pending: PendingRows, where: str, columns: Sequence[str], *, with_row_ids: bool
) -> Iterator[pa.Table]:
    """The stored rows that nothing pending hides, some at a time; at most one more than there is room for."""
    most = pending.room + 1 + len(pending.hiding)
    for batch in table.batches(columns, where=where, limit=most, row_ids=with_row_ids):
        yield pending.unhidden(pa.Table.from_batches([batch]))


def _size(rows: pa.Table, blobs: Sequence[str]) -> int:
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
