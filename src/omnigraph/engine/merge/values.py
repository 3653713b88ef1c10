"""Values that a person wrote into a decision."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from omnigraph.engine.columns import SYSTEM_COLUMNS
from omnigraph.engine.write.blobs import no_external, read_blobs
from omnigraph.engine.write.cells import Cells, read_cells
from omnigraph.engine.write.target import Target
from omnigraph.errors import InvalidValue
from omnigraph.lang.types import STRING, Scalar


def value_column(
    target: Target, name: str, given: Mapping[int, Any], size: int, kind: pa.DataType
) -> pa.Array:
    """A column that has these values at these places, and null elsewhere; Blobs as bytes."""
    if not given:
        return pa.nulls(size, kind)
    declared = target.owner.properties.get(name)
    if declared is None or not declared.type.nullable:
        _refuse_null(target, name, given)
    values = [given.get(at) for at in range(size)]
    cells = _cells(target, name, values)
    for reason in cells.faults.values():
        raise InvalidValue(f"in a decision on {target.kind} type '{target.name}': {reason}")
    if declared is not None and declared.type.scalar is Scalar.BLOB:
        return cells.array.storage.field("data")
    return cells.array.cast(kind)


def _cells(target: Target, name: str, values: list[Any]) -> Cells:
    if name in SYSTEM_COLUMNS[target.kind]:
        return read_cells(values, name, STRING)
    type_ = target.owner.properties[name].type
    if type_.scalar is Scalar.BLOB:
        return read_blobs(values, name, target.schema.field(name), no_external)
    return read_cells(values, name, type_)


def _refuse_null(target: Target, name: str, given: Mapping[int, Any]) -> None:
    if any(value is None for value in given.values()):
        raise InvalidValue(
            f"'{name}' of {target.kind} type '{target.name}' cannot be null",
            remedy="decide on a value for it",
        )
