"""The rows that single statements of a mutation write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from omnigraph.engine.columns import ID, SOURCE, TARGET
from omnigraph.engine.write.blobs import no_external, read_blobs
from omnigraph.engine.write.cells import column_of
from omnigraph.engine.write.ids import composed, rendered
from omnigraph.engine.write.target import Target
from omnigraph.errors import InvalidValue
from omnigraph.lang.types import Scalar
from omnigraph.lang.values import Stored

Values = Mapping[str, Stored]
"""Converted values by property; a property that is left out is null."""


def inserted_nodes(target: Target, values: Sequence[Values], new_ids: pa.Array) -> pa.Table:
    """Whole rows; the ids follow from the keys, and are the new ones where the type has no key."""
    columns = _properties(target, values)
    if not target.identity:
        return _table(target, {**columns, ID: new_ids})
    for name in target.identity:
        if columns[name].null_count:
            raise missing(target, name)
    types = target.owner.properties
    keyed = composed([rendered(columns[name], types[name].type) for name in target.identity])
    return _table(target, {**columns, ID: keyed})


def inserted_edges(
    target: Target,
    sources: Sequence[str],
    targets: Sequence[str],
    values: Sequence[Values],
    new_ids: pa.Array,
) -> pa.Table:
    """Whole rows of edges between nodes given by their ids."""
    ends = {SOURCE: pa.array(sources, pa.string()), TARGET: pa.array(targets, pa.string())}
    return _table(target, {**_properties(target, values), **ends, ID: new_ids})


def assigned(rows: pa.Table, target: Target, values: Values) -> pa.Table:
    """Whole rows, with some properties set to the same value in all of them; those may be missing before."""
    columns = {name: rows.column(name) for name in rows.column_names}
    for name in values:
        column = _column(target, name, [values[name]])
        columns[name] = column.take(pa.array([0] * rows.num_rows, pa.int64()))
        _refuse_missing(target, name, columns[name])
    return _table(target, columns)


def _properties(target: Target, values: Sequence[Values]) -> dict[str, pa.Array]:
    columns = {}
    for name in target.owner.properties:
        columns[name] = _column(target, name, [row.get(name) for row in values])
        if name not in target.identity:
            _refuse_missing(target, name, columns[name])
    return columns


def _column(target: Target, name: str, values: Sequence[Stored]) -> pa.Array:
    type_ = target.owner.properties[name].type
    if type_.scalar is not Scalar.BLOB:
        return column_of(values, type_)
    cells = read_blobs(values, name, target.schema.field(name), no_external)
    for reason in cells.faults.values():
        raise InvalidValue(reason)
    return cells.array


def _refuse_missing(target: Target, name: str, column: pa.Array) -> None:
    if column.null_count and not target.owner.properties[name].type.nullable:
        raise missing(target, name)


def missing(target: Target, name: str) -> InvalidValue:
    """A property of a row that must have a value has none."""
    if name in target.identity:
        return InvalidValue(
            f"insert @key property '{name}' cannot contain null",
            remedy=f"assign `{name}`; the id of a {target.name} follows from it",
        )
    return InvalidValue(f"missing required property '{name}'", remedy=f"assign `{name}`; it cannot be null")


def _table(target: Target, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    return pa.Table.from_arrays([columns[name] for name in target.schema.names], schema=target.schema)
