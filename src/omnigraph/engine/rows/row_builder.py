"""Records of one type -> rows with ids, and what is wrong with the others; a whole split, from its bytes."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import END_NAMES, ID, SOURCE, TARGET, TableType, table_types_of
from omnigraph.engine.rows.blobs import Refusal, read_blobs, reject_external
from omnigraph.engine.rows.ids import IdSource, key_ids
from omnigraph.engine.rows.json_columns import ParsedColumn, parse_column
from omnigraph.engine.rows.lines import Limits, Split
from omnigraph.engine.rows.ndjson import RESERVED, format_json, parse_split
from omnigraph.engine.rows.patch_rows import (
    PRESENT,
    pack_present,
    patch_columns,
    patch_schema,
)
from omnigraph.engine.rows.records import RawColumns, TypeRecords, Values, to_objects
from omnigraph.engine.rows.value_checks import find_value_faults
from omnigraph.engine.rows.violations import Flags, Numbers, Origins, Violation, format_entity
from omnigraph.lang.schema.catalog import Property
from omnigraph.lang.schema.identity import AcceptedSchema
from omnigraph.lang.types import Scalar
from omnigraph.lang.values import shorten_legibly

Fault = tuple[int, int, str]
"""Row, place of the column in its table, reason: in the order in which they are reported."""

FIELDS, OWN_ID = -2, -1
"""Places of faults that are not about a property."""


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """The rows of one type in one split that have no fault of their own."""

    key: str
    rows: pa.RecordBatch
    """In the columns of the table."""
    generated: Flags
    """Which ids are new ones, so that nothing stored can have them."""
    lines: Numbers
    file: str
    file_number: int | Numbers
    """One for all rows, or one for each where small files were read together."""
    violations: tuple[Violation, ...] = ()
    """Everything that is wrong with the other rows, in input order."""
    nulls: Mapping[str, int] = field(default_factory=dict)
    """How many values of columns are missing, by property; not counted in records."""

    @property
    def count(self) -> int:
        """How many records it was made of that are fine."""
        return int(self.rows.num_rows)


def build_rows(
    records: TypeRecords,
    target: TableType,
    ids: IdSource,
    *,
    external: Refusal = reject_external,
    patches: bool = False,
) -> CheckedRows:
    """The rows that records say, with everything checked that needs no other row."""
    raw = records.raw
    cells = {
        declared.name: _parse_cells(raw.columns[declared.name], target, declared, external)
        for declared in target.owner.properties.values()
    }
    ends = {}
    if target.kind == "edge":
        ends = {SOURCE: _text_column(raw.sources), TARGET: _text_column(raw.targets)}
    given, wrong = _given_ids(raw.ids, target)
    origin = Origin(records.file, records.file_number, records.lines, records.offsets)
    faults = _field_faults(raw, target) + wrong
    present = None if not patches else _find_present(raw, ends)
    return build_rows_from_columns(cells, ends, given, origin, target, ids, faults, present)


def _find_present(raw: RawColumns, ends: Mapping[str, pa.Array]) -> Flags:
    """Which columns each record gives; an end is never null, so one that is null is missing."""
    assert raw.present is not None
    known = [end.is_valid().to_numpy(zero_copy_only=False)[:, None] for end in ends.values()]
    return np.concatenate([*known, raw.present], axis=1)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the rows of a block stand in their file."""

    file: str
    file_number: int
    lines: Numbers
    """Lines, or rows where a file has no lines; counted from 1."""
    positions: Numbers
    """What generated ids are made from: the byte at which a line begins, or the number of the row."""


def build_rows_from_columns(
    cells: Mapping[str, ParsedColumn],
    ends: Mapping[str, pa.Array],
    given: pa.Array | None,
    origin: Origin,
    target: TableType,
    ids: IdSource,
    faults: Sequence[Fault] = (),
    present: Flags | None = None,
) -> CheckedRows:
    """Rows from the cells of every property, the ends of edges and given ids; `faults` are known already.

    `present` is for a patch: which of `patch_columns` each row gives. Others may be missing.
    """
    found = list(faults)
    columns = {name: one.array for name, one in cells.items()}
    given_cells = {} if present is None else dict(zip(patch_columns(target), present.T, strict=True))
    for place, declared in enumerate(target.owner.properties.values()):
        own = cells[declared.name]
        given_here = None if declared.name in target.identity else given_cells.get(declared.name)
        found += ((row, place, reason) for row, reason in own.faults.items())
        found += ((row, place, reason) for row, reason in _find_nulls(own, declared, given_here))
    places = {name: place for place, name in enumerate(target.owner.properties)}
    found += ((it.row, places[it.column], it.reason) for it in find_value_faults(columns, target))
    if present is not None and target.identity:
        found += _require_ends(ends, target)
    if present is None or target.identity:
        array, generated, wrong = _build_ids(given, origin, target, ids, {**columns, **ends})
    else:
        array, generated, wrong = _require_ids(given, target, found, len(origin.lines))
    schema, every = target.schema, {**columns, **ends, ID: array}
    if present is not None:
        schema, every = patch_schema(target), {**every, PRESENT: pack_present(present)}
    rows = pa.RecordBatch.from_arrays([every[name] for name in schema.names], schema=schema)
    return _keep_checked(origin, target, rows, generated, found + wrong)


def _require_ends(ends: Mapping[str, pa.Array], target: TableType) -> list[Fault]:
    """Rows of a patch without an end that is part of the key."""
    return [
        (row, FIELDS, f"a patch of '{target.name}' requires field '{END_NAMES[name]}', a part of its key")
        for name, end in ends.items()
        for row in np.flatnonzero(end.is_null().to_numpy(zero_copy_only=False)).tolist()
    ]


def _require_ids(
    given: pa.Array | None, target: TableType, faults: Sequence[Fault], rows: int
) -> tuple[pa.Array, Flags, list[Fault]]:
    """As `_build_ids`, for a patch of a type without a key, which makes no new ids."""
    array = pa.nulls(rows, pa.string()) if given is None else given
    known = {row for row, place, _ in faults if place == OWN_ID}
    missing = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist()
    reason = f"a patch of '{target.name}' requires field 'id', because the type has no key"
    wrong = [(row, OWN_ID, reason) for row in missing if row not in known]
    return array, np.zeros(rows, np.bool_), wrong


def _keep_checked(
    origin: Origin, target: TableType, rows: pa.RecordBatch, generated: Flags, faults: list[Fault]
) -> CheckedRows:
    if not faults:
        return CheckedRows(target.key, rows, generated, origin.lines, origin.file, origin.file_number)
    good = np.ones(rows.num_rows, np.bool_)
    good[[row for row, _, _ in faults]] = False
    ids = rows.column(ID)
    violations = [
        Violation(origin.file, int(origin.lines[row]), format_entity(target.key, ids[row].as_py()), reason)
        for row, _, reason in sorted(faults)
    ]
    return CheckedRows(
        target.key,
        rows.filter(pa.array(good)),
        generated[good],
        origin.lines[good],
        origin.file,
        origin.file_number,
        tuple(violations),
    )


def _field_faults(raw: RawColumns, target: TableType) -> list[Fault]:
    """Members that are no properties."""
    return [
        (
            row,
            FIELDS,
            f"input field '{name}' is reserved physical state"
            if name in RESERVED
            else f"unknown input field '{shorten_legibly(name)}' for '{target.key}'",
        )
        for row, name in raw.unknown_fields
    ]


def _text_column(values: Values) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, pa.string())


def _parse_cells(values: Values, target: TableType, declared: Property, external: Refusal) -> ParsedColumn:
    name = declared.name
    if declared.type.scalar is Scalar.BLOB:
        return read_blobs(to_objects(values), name, target.schema.field(name), external)
    return parse_column(values, name, declared.type)


def _find_nulls(cells: ParsedColumn, declared: Property, given: Flags | None = None) -> list[tuple[int, str]]:
    """Rows without a value that must have one; a value that does not fit has its own fault.

    `given` says which rows give the property at all, where some may omit it.
    """
    if declared.type.nullable or not cells.array.null_count:
        return []
    if declared.type.scalar in (Scalar.VECTOR, Scalar.BLOB):
        kind = declared.type.scalar.value.lower()
        reason = f"non-nullable {kind} property '{declared.name}' has null values"
    else:
        reason = f"non-nullable property '{declared.name}' has null or invalid values"
    missing = cells.array.is_null().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(missing if given is None else missing & given).tolist()
    return [(row, reason) for row in rows if row not in cells.faults]


def _build_ids(
    given: pa.Array | None, origin: Origin, target: TableType, ids: IdSource, columns: Mapping[str, pa.Array]
) -> tuple[pa.Array, Flags, list[Fault]]:
    """The ids of rows, which of them are new ones, and what is wrong with the given ones."""
    if target.identity:
        array = key_ids(target, columns)
        return array, np.zeros(len(array), np.bool_), _find_mismatches(given, array, target)
    if given is not None and not given.null_count:
        return given, np.zeros(len(given), np.bool_), []
    new = ids.ids(origin.file_number, origin.positions)
    if given is None:
        return new, np.ones(len(new), np.bool_), []
    generated = given.is_null().to_numpy(zero_copy_only=False)
    return pc.coalesce(given, new), generated, []


def _given_ids(given: Values | None, target: TableType) -> tuple[pa.Array | None, list[Fault]]:
    """The ids that records bring along; None when none does."""
    if given is None or isinstance(given, pa.Array):
        return given, []
    if set(map(type, given)) <= {str}:
        return pa.array(given, pa.string()), []
    reason = f"input entity of type '{target.name}' field 'id' must be a string, got "
    faults = [
        (row, OWN_ID, reason + format_json(value))
        for row, value in enumerate(given)
        if value is not UNSET and not isinstance(value, str)
    ]
    texts = [value if isinstance(value, str) else None for value in given]
    return None if all(text is None for text in texts) else pa.array(texts, pa.string()), faults


def _find_mismatches(given: pa.Array | None, keyed: pa.Array, target: TableType) -> list[Fault]:
    if given is None:
        return []
    other = pc.fill_null(pc.not_equal(given, keyed), False)
    return [
        (
            row,
            OWN_ID,
            _describe_mismatch(target, given[row].as_py(), keyed[row].as_py()),
        )
        for row in np.flatnonzero(other.to_numpy(zero_copy_only=False)).tolist()
    ]


def _describe_mismatch(target: TableType, given: str, keyed: str) -> str:
    return (
        f"{target.kind} {target.name} explicit id '{shorten_legibly(given)}' "
        f"does not match its canonical @key id '{shorten_legibly(keyed)}'"
    )


@dataclass(frozen=True)
class LoadReader:
    """Reads splits of one load; it travels to other processes."""

    accepted: AcceptedSchema
    ids: IdSource
    limits: Limits = field(default_factory=Limits)
    external: Refusal = reject_external
    targets: Mapping[str, TableType] = field(default_factory=dict)
    """By table; filled in from the schema."""
    patches: bool = False
    """Whether rows may omit properties, and note which they have."""

    def __post_init__(self) -> None:
        if not self.targets:
            object.__setattr__(self, "targets", table_types_of(self.accepted))

    def read(self, split: Split) -> SplitRows:
        """The rows of a split."""
        with _pause_collection():
            return self._read_split(split)

    def _read_split(self, split: Split) -> SplitRows:
        parsed = parse_split(split, self.accepted.catalog, self.limits, patches=self.patches)
        shaped = [
            build_rows(found, self.targets[found.key], self.ids, external=self.external, patches=self.patches)
            for found in parsed.records
        ]
        violations = [*parsed.violations, *(wrong for it in shaped for wrong in it.violations)]
        violations.sort(key=lambda wrong: wrong.line or 0)
        return SplitRows(tuple(shaped), tuple(violations), parsed.lines)


@contextmanager
def _pause_collection() -> Iterator[None]:
    """Without the search for cycles: a split is a great many objects for a moment, and none is in one."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True, slots=True)
class SplitRows:
    """What a split holds."""

    shaped: tuple[CheckedRows, ...]
    violations: tuple[Violation, ...]
    """Everything wrong with single rows, in input order."""
    lines: int

    def without_violations(self) -> SplitRows:
        """Only the rows that are fine: a load keeps no more violations than it reports."""
        shaped = tuple(replace(one, violations=()) for one in self.shaped)
        return replace(self, shaped=shaped, violations=())


@dataclass(frozen=True, slots=True)
class LoadRows:
    """All rows of one type in a load, in input order."""

    target: TableType
    rows: pa.Table
    generated: Flags
    origins: Origins


def collect_rows(
    parts: Iterable[SplitRows], targets: Mapping[str, TableType], files: Iterable[str]
) -> dict[str, LoadRows]:
    """The rows of splits given in input order, by table."""
    names = tuple(files)
    found: dict[str, list[CheckedRows]] = {}
    for part in parts:
        for shaped in part.shaped:
            found.setdefault(shaped.key, []).append(shaped)
    return {key: _concat_parts(targets[key], found[key], names) for key in sorted(found)}


def _concat_parts(target: TableType, parts: list[CheckedRows], files: tuple[str, ...]) -> LoadRows:
    numbers = [np.broadcast_to(np.int64(part.file_number), part.count) for part in parts]
    return LoadRows(
        target,
        pa.Table.from_batches([part.rows for part in parts]),
        np.concatenate([part.generated for part in parts]),
        Origins(files, np.concatenate(numbers), np.concatenate([part.lines for part in parts])),
    )
