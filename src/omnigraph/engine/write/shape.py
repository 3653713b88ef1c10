"""Records of one type -> rows with ids, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.columns import ID, SOURCE, TARGET
from omnigraph.engine.write.blobs import Refusal, no_external, read_blobs
from omnigraph.engine.write.cells import Cells, read_cells
from omnigraph.engine.write.checks import value_faults
from omnigraph.engine.write.ids import LoadIds, composed, rendered
from omnigraph.engine.write.ndjson import RESERVED, Records, json_text
from omnigraph.engine.write.target import Target
from omnigraph.engine.write.violations import Flags, Numbers, Violation, entity_name
from omnigraph.lang.schema.catalog import Property
from omnigraph.lang.types import Scalar
from omnigraph.lang.values import legible

_Fault = tuple[int, int, str]
"""Row, place of the column in its table, reason: in the order in which they are told."""

_FIELDS, _OWN_ID = -2, -1


@dataclass(frozen=True, slots=True)
class Shaped:
    """The rows of one type in one split that have no fault of their own."""

    key: str
    rows: pa.RecordBatch
    """In the columns of the table."""
    generated: Flags
    """Which ids are new ones, so that nothing stored can have them."""
    lines: Numbers
    file: str
    file_number: int
    violations: tuple[Violation, ...] = ()
    """Everything that is wrong with the other rows, in input order."""

    @property
    def count(self) -> int:
        """How many records it was made of that are fine."""
        return int(self.rows.num_rows)


def shape(records: Records, target: Target, ids: LoadIds, *, external: Refusal = no_external) -> Shaped:
    """The rows that records say, with everything checked that needs no other row."""
    faults: list[_Fault] = _field_faults(records.data, target)
    columns: dict[str, pa.Array] = {}
    for place, declared in enumerate(target.owner.properties.values()):
        cells = _cells(records.data, target, declared, external)
        columns[declared.name] = cells.array
        faults += ((row, place, reason) for row, reason in cells.faults.items())
        faults += ((row, place, reason) for row, reason in _missing(cells, declared))
    places = {name: place for place, name in enumerate(target.owner.properties)}
    faults += ((it.row, places[it.column], it.reason) for it in value_faults(columns, target))
    own = _Ids.read(records, target, ids, columns)
    faults += own.faults
    for column, ends in ((SOURCE, records.sources), (TARGET, records.targets)):
        if target.kind == "edge":
            columns[column] = pa.array(ends, pa.string())
    columns[ID] = own.array
    return _clean(records, target, columns, own.generated, faults)


def _clean(
    records: Records, target: Target, columns: Mapping[str, pa.Array], generated: Flags, faults: list[_Fault]
) -> Shaped:
    arrays = [columns[name] for name in target.schema.names]
    rows = pa.RecordBatch.from_arrays(arrays, schema=target.schema)
    if not faults:
        return Shaped(records.key, rows, generated, records.lines, records.file, records.file_number)
    good = np.ones(len(records.data), np.bool_)
    good[[row for row, _, _ in faults]] = False
    ids = columns[ID]
    violations = [
        Violation(records.file, int(records.lines[row]), entity_name(target.key, ids[row].as_py()), reason)
        for row, _, reason in sorted(faults)
    ]
    return Shaped(
        records.key,
        rows.filter(pa.array(good)),
        generated[good],
        records.lines[good],
        records.file,
        records.file_number,
        tuple(violations),
    )


def _field_faults(data: Sequence[Mapping[str, Any]], target: Target) -> list[_Fault]:
    """Members that are no properties."""
    known = {*target.owner.properties, ID}
    if set(chain.from_iterable(data)) <= known:
        return []
    faults = []
    for row, members in enumerate(data):
        for name in members:
            if name in known:
                continue
            if name in RESERVED:
                reason = f"input field '{name}' is reserved physical state"
            else:
                reason = f"unknown input field '{legible(name)}' for '{target.key}'"
            faults.append((row, _FIELDS, reason))
    return faults


def _cells(data: Sequence[Mapping[str, Any]], target: Target, declared: Property, external: Refusal) -> Cells:
    name = declared.name
    values = [members.get(name) for members in data]
    if declared.type.scalar is Scalar.BLOB:
        return read_blobs(values, name, target.schema.field(name), external)
    return read_cells(values, name, declared.type)


def _missing(cells: Cells, declared: Property) -> list[tuple[int, str]]:
    """Rows without a value that must have one; a value that does not fit has its own fault."""
    if declared.type.nullable or not cells.array.null_count:
        return []
    if declared.type.scalar in (Scalar.VECTOR, Scalar.BLOB):
        kind = declared.type.scalar.value.lower()
        reason = f"non-nullable {kind} property '{declared.name}' has null values"
    else:
        reason = f"non-nullable property '{declared.name}' has null or invalid values"
    rows = np.flatnonzero(cells.array.is_null().to_numpy(zero_copy_only=False)).tolist()
    return [(row, reason) for row in rows if row not in cells.faults]


@dataclass(frozen=True, slots=True)
class _Ids:
    """The ids of rows, and what is wrong with the given ones."""

    array: pa.Array
    generated: Flags
    faults: list[_Fault]

    @classmethod
    def read(cls, records: Records, target: Target, ids: LoadIds, columns: Mapping[str, pa.Array]) -> _Ids:
        given, faults = _given_ids(records.data, target)
        if target.identity:
            types = target.owner.properties
            array = composed([rendered(columns[name], types[name].type) for name in target.identity])
            return cls(array, np.zeros(len(array), np.bool_), faults + _mismatches(given, array, target))
        new = ids.ids(records.file_number, records.offsets)
        if given is None:
            return cls(new, np.ones(len(new), np.bool_), faults)
        generated = given.is_null().to_numpy(zero_copy_only=False)
        return cls(pc.coalesce(given, new), generated, faults)


def _given_ids(data: Sequence[Mapping[str, Any]], target: Target) -> tuple[pa.Array | None, list[_Fault]]:
    """The ids that records bring along; None when none does."""
    given = [members.get(ID) for members in data]
    if set(map(type, given)) <= {str}:
        return pa.array(given, pa.string()), []
    faults: list[_Fault] = []
    for row, members in enumerate(data):
        if ID in members and not isinstance(given[row], str):
            shown = json_text(given[row])
            reason = f"input entity of type '{target.name}' field 'id' must be a string, got {shown}"
            faults.append((row, _OWN_ID, reason))
            given[row] = None
    if all(value is None for value in given):
        return None, faults
    return pa.array(given, pa.string()), faults


def _mismatches(given: pa.Array | None, keyed: pa.Array, target: Target) -> list[_Fault]:
    if given is None:
        return []
    other = pc.fill_null(pc.not_equal(given, keyed), False)
    return [
        (
            row,
            _OWN_ID,
            _mismatch(target, given[row].as_py(), keyed[row].as_py()),
        )
        for row in np.flatnonzero(other.to_numpy(zero_copy_only=False)).tolist()
    ]


def _mismatch(target: Target, given: str, keyed: str) -> str:
    return (
        f"node {target.name} explicit id '{legible(given)}' "
        f"does not match its canonical @key id '{legible(keyed)}'"
    )
