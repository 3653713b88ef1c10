"""Whether stored rows fit a schema: every constraint that they may break, counted, with examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.columns import ID, SOURCE
from omnigraph.engine.schema_apply.migration import Migration, TableMigration
from omnigraph.engine.schema_apply.rows import new_batches
from omnigraph.engine.write.cardinality import count_faults
from omnigraph.engine.write.change import Change
from omnigraph.engine.write.checks import breaks_check, breaks_range, value_faults
from omnigraph.engine.write.faults import Faults
from omnigraph.engine.write.stored import StoredTables
from omnigraph.engine.write.target import Target
from omnigraph.engine.write.unique import unique_faults
from omnigraph.errors import SchemaDataViolation
from omnigraph.lang.schema.catalog import Check, EdgeType, NodeType, Range
from omnigraph.lang.schema.comparison import constraint_text
from omnigraph.lang.schema.shape import constraint_value
from omnigraph.storage.tables import Table

EXAMPLES = 5
"""So many offending rows of each constraint are told."""

OpenTable = Callable[[str], Table]


@dataclass(frozen=True, slots=True)
class Example:
    """A row, or for a number of edges the source, that breaks a constraint."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Breach:
    """A constraint that stored rows break."""

    type_kind: str
    type_name: str
    constraint: str
    """As it is written in a schema."""
    count: int
    """How many rows break it; for `@card`, how many sources."""
    examples: tuple[Example, ...]

    def to_json(self) -> dict[str, Any]:
        """The breach as plain values."""
        return {**asdict(self), "examples": [asdict(example) for example in self.examples]}


def require_fitting_data(wanted: Migration, open_table: OpenTable) -> None:
    """Fail with every constraint of the wanted schema that the stored rows break."""
    found = [breach for change in wanted.tables for breach in _breaches(change, open_table)]
    if found:
        raise SchemaDataViolation(found)


def _breaches(change: TableMigration, open_table: OpenTable) -> Iterator[Breach]:
    if change.before is None:
        return
    table = open_table(change.before)
    if table.count():
        yield from _value_breaches(change, table)
        yield from _unique_breaches(change, table)
        if change.is_recounted:
            yield from _cardinality_breaches(change, table)


def _columns(change: TableMigration, table: Table, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """`id` and these columns, as they are to be."""
    wanted = {ID, *names}
    return new_batches(table, [column for column in change.columns if column.field.name in wanted])


# --- single values ---------------------------------------------------------------------------------


def _value_breaches(change: TableMigration, table: Table) -> Iterator[Breach]:
    owner = change.unproven
    if not isinstance(owner, NodeType):
        return
    lists = [name for name, declared in owner.properties.items() if declared.type.is_list]
    rules: list[Range | Check] = [rule for rule in owner.ranges if rule.column not in lists]
    rules += [rule for rule in owner.checks if rule.column not in lists]
    if not rules:
        return
    tallies = [_Tally(change.target, rule) for rule in rules]
    for batch in _columns(change, table, [rule.column for rule in rules]):
        for tally in tallies:
            tally.add(batch)
    yield from (tally.breach() for tally in tallies if tally.count)


class _Tally:
    """How many rows break one rule, and the first of them."""

    def __init__(self, target: Target, rule: Range | Check) -> None:
        self._rule = rule
        owner = cast(NodeType, target.owner)
        only = replace(
            owner,
            properties={rule.column: owner.properties[rule.column]},
            ranges=(rule,) if isinstance(rule, Range) else (),
            checks=(rule,) if isinstance(rule, Check) else (),
        )
        self._target = replace(target, owner=only)
        self._examples: list[Example] = []
        self.count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        column = batch.column(self._rule.column)
        if isinstance(self._rule, Range):
            broken = breaks_range(column, self._rule)
        else:
            broken = breaks_check(column, self._target.name, self._rule)
        rows = np.flatnonzero(pc.fill_null(broken, False).to_numpy(zero_copy_only=False))
        self.count += len(rows)
        told = pa.array(rows[: EXAMPLES - len(self._examples)])
        if len(told):
            ids = batch.column(ID).take(told)
            faults = value_faults({self._rule.column: column.take(told)}, self._target)
            self._examples += [Example(ids[it.row].as_py(), it.reason) for it in faults]

    def breach(self) -> Breach:
        text = constraint_text(constraint_value(self._rule))
        return _breach(self._target, text, self.count, self._examples)


# --- several rows ----------------------------------------------------------------------------------


def _unique_breaches(change: TableMigration, table: Table) -> Iterator[Breach]:
    for rule in change.unproven.uniques:
        only = replace(change.target, owner=replace(change.unproven, uniques=(rule,)))
        batches = list(_columns(change, table, rule.columns))
        rows = pa.Table.from_batches(batches)
        for faults in unique_faults(Change(only, rows, replaces=True), _NOTHING):
            yield _told(change.target, constraint_text(constraint_value(rule)), faults)


def _cardinality_breaches(change: TableMigration, table: Table) -> Iterator[Breach]:
    edge = cast(EdgeType, change.target.owner)
    counted = table.scan([SOURCE]).group_by(SOURCE).aggregate([([], "count_all")])
    sources = counted.column(SOURCE).combine_chunks()
    for faults in count_faults(change.target, sources, counted.column("count_all").to_numpy()):
        high = "" if edge.cardinality.maximum is None else edge.cardinality.maximum
        yield _told(change.target, f"@card({edge.cardinality.minimum}..{high})", faults)


def _told(target: Target, constraint: str, faults: Faults) -> Breach:
    ids, reasons = (column[:EXAMPLES].to_pylist() for column in (faults.ids, faults.reasons))
    examples = [Example(entity, reason) for entity, reason in zip(ids, reasons, strict=True)]
    return _breach(target, constraint, len(faults), examples)


def _breach(target: Target, constraint: str, count: int, examples: Sequence[Example]) -> Breach:
    return Breach(target.kind, target.name, constraint, count, tuple(examples))


def _none(key: str) -> Table:
    raise AssertionError(f"rows of '{key}' that replace all others are compared with no others")


_NOTHING = StoredTables(_none, {})
