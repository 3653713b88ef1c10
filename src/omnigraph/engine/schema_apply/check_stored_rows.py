"""Whether stored rows fit a schema: every constraint that they may break, counted, with examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.duplicates import find_unique_faults
from omnigraph.engine.constraints.edge_rules import find_count_faults
from omnigraph.engine.constraints.faults import Faults
from omnigraph.engine.constraints.stored_rows import StoredTables
from omnigraph.engine.constraints.table_change import TableChange
from omnigraph.engine.graph.table_types import ID, SOURCE, TableType
from omnigraph.engine.rows.value_checks import breaks_check, breaks_range, find_value_faults
from omnigraph.engine.schema_apply.migration import Migration, TableMigration, read_batches
from omnigraph.errors import SchemaDataViolation
from omnigraph.lang.schema.catalog import CheckRule, EdgeType, NodeType, RangeRule
from omnigraph.lang.schema.catalog_json import constraint_text, constraint_value
from omnigraph.storage.tables import Table

EXAMPLES = 5
"""So many rows that break a constraint are reported as examples."""

OpenTable = Callable[[str], Table]


@dataclass(frozen=True, slots=True)
class Example:
    """A row, or for a number of edges the source, that breaks a constraint."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ConstraintViolation:
    """A constraint that stored rows break."""

    type_kind: str
    type_name: str
    constraint: str
    """As it is written in a schema."""
    count: int
    """How many rows break it; for `@card`, how many sources."""
    examples: tuple[Example, ...]

    def to_json(self) -> dict[str, Any]:
        """The violation as JSON."""
        return {**asdict(self), "examples": [asdict(example) for example in self.examples]}


def require_fitting_data(wanted: Migration, open_table: OpenTable) -> None:
    """Fail with every constraint of the wanted schema that the stored rows break."""
    found = [one for change in wanted.tables for one in _find_violations(change, open_table)]
    if found:
        raise SchemaDataViolation(found)


def _find_violations(change: TableMigration, open_table: OpenTable) -> Iterator[ConstraintViolation]:
    if change.before is None:
        return
    table = open_table(change.before)
    if table.count():
        yield from _value_violations(change, table)
        yield from _unique_violations(change, table)
        if change.is_recounted:
            yield from _cardinality_violations(change, table)


def _read_columns(change: TableMigration, table: Table, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """`id` and these columns, as they are to be."""
    wanted = {ID, *names}
    return read_batches(table, [column for column in change.columns if column.field.name in wanted])


# --- single values ---------------------------------------------------------------------------------


def _value_violations(change: TableMigration, table: Table) -> Iterator[ConstraintViolation]:
    owner = change.unproven
    if not isinstance(owner, NodeType):
        return
    lists = [name for name, declared in owner.properties.items() if declared.type.is_list]
    rules: list[RangeRule | CheckRule] = [rule for rule in owner.ranges if rule.column not in lists]
    rules += [rule for rule in owner.checks if rule.column not in lists]
    if not rules:
        return
    tallies = [_Tally(change.target, rule) for rule in rules]
    for batch in _read_columns(change, table, [rule.column for rule in rules]):
        for tally in tallies:
            tally.add(batch)
    yield from (tally.violation() for tally in tallies if tally.count)


class _Tally:
    """How many rows break one rule, and the first of them."""

    def __init__(self, target: TableType, rule: RangeRule | CheckRule) -> None:
        self._rule = rule
        owner = cast(NodeType, target.owner)
        only = replace(
            owner,
            properties={rule.column: owner.properties[rule.column]},
            ranges=(rule,) if isinstance(rule, RangeRule) else (),
            checks=(rule,) if isinstance(rule, CheckRule) else (),
        )
        self._target = replace(target, owner=only)
        self._examples: list[Example] = []
        self.count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        column = batch.column(self._rule.column)
        if isinstance(self._rule, RangeRule):
            broken = breaks_range(column, self._rule)
        else:
            broken = breaks_check(column, self._target.name, self._rule)
        rows = np.flatnonzero(pc.fill_null(broken, False).to_numpy(zero_copy_only=False))
        self.count += len(rows)
        shown = pa.array(rows[: EXAMPLES - len(self._examples)])
        if len(shown):
            ids = batch.column(ID).take(shown)
            faults = find_value_faults({self._rule.column: column.take(shown)}, self._target)
            self._examples += [Example(ids[it.row].as_py(), it.reason) for it in faults]

    def violation(self) -> ConstraintViolation:
        text = constraint_text(constraint_value(self._rule))
        return _build_violation(self._target, text, self.count, self._examples)


# --- several rows ----------------------------------------------------------------------------------


def _unique_violations(change: TableMigration, table: Table) -> Iterator[ConstraintViolation]:
    for rule in change.unproven.uniques:
        only = replace(change.target, owner=replace(change.unproven, uniques=(rule,)))
        batches = list(_read_columns(change, table, rule.columns))
        rows = pa.Table.from_batches(batches)
        for faults in find_unique_faults(TableChange(only, rows, replaces=True), _NO_STORED_ROWS):
            yield _violation_of(change.target, constraint_text(constraint_value(rule)), faults)


def _cardinality_violations(change: TableMigration, table: Table) -> Iterator[ConstraintViolation]:
    edge = cast(EdgeType, change.target.owner)
    counted = table.scan([SOURCE]).group_by(SOURCE).aggregate([([], "count_all")])
    sources = counted.column(SOURCE).combine_chunks()
    for faults in find_count_faults(change.target, sources, counted.column("count_all").to_numpy()):
        high = "" if edge.cardinality.maximum is None else edge.cardinality.maximum
        yield _violation_of(change.target, f"@card({edge.cardinality.minimum}..{high})", faults)


def _violation_of(target: TableType, constraint: str, faults: Faults) -> ConstraintViolation:
    ids, reasons = (column[:EXAMPLES].to_pylist() for column in (faults.ids, faults.reasons))
    examples = [Example(entity, reason) for entity, reason in zip(ids, reasons, strict=True)]
    return _build_violation(target, constraint, len(faults), examples)


def _build_violation(
    target: TableType, constraint: str, count: int, examples: Sequence[Example]
) -> ConstraintViolation:
    return ConstraintViolation(target.kind, target.name, constraint, count, tuple(examples))


def _no_table(key: str) -> Table:
    raise AssertionError(f"rows of '{key}' that replace all others are compared with no others")


_NO_STORED_ROWS = StoredTables(_no_table, {})
