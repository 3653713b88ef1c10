"""The rows that single statements of a mutation write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from omnigraph.engine.graph.columns import ID, SOURCE, TARGET
from omnigraph.engine.graph.table_types import TableType
from omnigraph.engine.rows.blobs import read_blobs, reject_external
from omnigraph.engine.rows.ids import compose_ids, render_keys
from omnigraph.engine.rows.json_columns import build_column
from omnigraph.errors import InvalidValue
from omnigraph.lang.types import Scalar
from omnigraph.lang.values import Stored

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
