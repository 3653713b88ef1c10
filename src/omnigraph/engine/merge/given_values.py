"""Values that a person wrote into a resolution file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from omnigraph.engine.graph.columns import SYSTEM_COLUMNS
from omnigraph.engine.graph.table_types import TableType
from omnigraph.engine.rows.blobs import read_blobs, reject_external
from omnigraph.engine.rows.json_columns import ParsedColumn, parse_column
from omnigraph.errors import InvalidValue
from omnigraph.lang.types import STRING, Scalar


def build_value_column(
    target: TableType, name: str, given: Mapping[int, Any], size: int, kind: pa.DataType
) -> pa.Array:
    """Return a column with these values at these positions, and null elsewhere; Blobs as bytes."""
    if not given:
        return pa.nulls(size, kind)
    declared = target.owner.properties.get(name)
    if declared is None or not declared.type.nullable:
        _refuse_null(target, name, given)
    values = [given.get(at) for at in range(size)]
    cells = _parse_values(target, name, values)
    for reason in cells.faults.values():
        raise InvalidValue(f"in a decision on {target.kind} type '{target.name}': {reason}")
    if declared is not None and declared.type.scalar is Scalar.BLOB:
        return cells.array.storage.field("data")
    return cells.array.cast(kind)


def _parse_values(target: TableType, name: str, values: list[Any]) -> ParsedColumn:
    if name in SYSTEM_COLUMNS[target.kind]:
        return parse_column(values, name, STRING)
    type_ = target.owner.properties[name].type
    if type_.scalar is Scalar.BLOB:
        return read_blobs(values, name, target.schema.field(name), reject_external)
    return parse_column(values, name, type_)


def _refuse_null(target: TableType, name: str, given: Mapping[int, Any]) -> None:
    if any(value is None for value in given.values()):
        raise InvalidValue(
            f"'{name}' of {target.kind} type '{target.name}' cannot be null",
            remedy="decide on a value for it",
        )
