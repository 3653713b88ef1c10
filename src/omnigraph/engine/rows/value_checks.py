"""Rules about single values: enum, range and check; a column at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import ID, TableType
from omnigraph.errors import ConstraintViolation
from omnigraph.lang.schema.catalog import CheckRule, NodeType, Property, RangeRule
from omnigraph.lang.schema.keys import to_positional
from omnigraph.lang.values import shorten_legibly


@dataclass(frozen=True, slots=True)
class ValueFault:
    """A value that breaks a rule."""

    row: int
    column: str
    rule: str
    reason: str


def find_value_faults(columns: Mapping[str, pa.Array], target: TableType) -> Iterator[ValueFault]:
    """Every value that breaks a rule of its property; rule by rule, in row order within a rule."""
    for declared in target.owner.properties.values():
        if declared.type.enum_values:
            yield from _find_enum_faults(columns[declared.name], target.name, declared)
    if isinstance(target.owner, NodeType):
        properties = target.owner.properties
        for rule in target.owner.ranges:
            if not properties[rule.column].type.is_list:
                yield from _find_range_faults(columns[rule.column], target.name, rule)
        for check in target.owner.checks:
            if not properties[check.column].type.is_list:
                yield from _find_check_faults(columns[check.column], target.name, check)


def require_values(rows: pa.Table, target: TableType) -> None:
    """Fail with the first value of a mutation's rows that breaks a rule."""
    columns = {name: rows.column(name).combine_chunks() for name in target.owner.properties}
    for fault in find_value_faults(columns, target):
        entity = rows.column(ID)[fault.row].as_py()
        raise ConstraintViolation(
            fault.reason, constraint=fault.rule, type_name=target.name, entity_id=entity
        )


def _find_enum_faults(column: pa.Array, type_name: str, declared: Property) -> Iterator[ValueFault]:
    allowed = declared.type.enum_values
    known = pc.is_in(column, value_set=pa.array(allowed, pa.string()))
    for row in _rows_where(pc.and_(column.is_valid(), pc.invert(known))):
        value = shorten_legibly(column[row].as_py())
        yield ValueFault(
            row,
            declared.name,
            "enum",
            f"invalid enum value '{value}' for {type_name}.{declared.name} (expected: {', '.join(allowed)})",
        )


def _find_range_faults(column: pa.Array, type_name: str, rule: RangeRule) -> Iterator[ValueFault]:
    numbers = column.cast(pa.float64(), safe=False)
    for row in _rows_where(breaks_range(column, rule)):
        exact, value = column[row].as_py(), numbers[row].as_py()
        if np.isnan(value):
            what = "value is NaN"
        elif rule.minimum is not None and value < float(rule.minimum):
            what = f"value {_format_number(exact)} < min {_format_number(rule.minimum)}"
        else:
            what = f"value {_format_number(exact)} > max {_format_number(rule.maximum or 0)}"
        yield ValueFault(row, rule.column, "range", f"@range violation on {type_name}.{rule.column}: {what}")


def breaks_range(column: pa.Array, rule: RangeRule) -> pa.Array:
    """For each value whether it is outside of a range; null for null."""
    numbers = column.cast(pa.float64(), safe=False)
    outside = pc.is_nan(numbers)
    if rule.minimum is not None:
        outside = pc.or_(outside, pc.less(numbers, float(rule.minimum)))
    if rule.maximum is not None:
        outside = pc.or_(outside, pc.greater(numbers, float(rule.maximum)))
    return outside


def _find_check_faults(column: pa.Array, type_name: str, rule: CheckRule) -> Iterator[ValueFault]:
    for row in _rows_where(breaks_check(column, type_name, rule)):
        value = shorten_legibly(column[row].as_py())
        yield ValueFault(
            row,
            rule.column,
            "check",
            f"@check violation on {type_name}.{rule.column}: value '{value}' "
            f"does not match pattern '{shorten_legibly(rule.pattern)}'",
        )


def breaks_check(column: pa.Array, type_name: str, rule: CheckRule) -> pa.Array:
    """For each text whether a pattern is nowhere in it; null for null."""
    if len(column) == column.null_count:
        return pa.nulls(len(column), pa.bool_())
    try:
        # Arrow's regular expressions are RE2's: no look-around, no references back, linear time.
        return pc.invert(pc.match_substring_regex(column, rule.pattern))
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        pattern = shorten_legibly(rule.pattern)
        raise ConstraintViolation(
            f"@check on {type_name}.{rule.column} has invalid regex '{pattern}': {reason}",
            constraint="check",
            type_name=type_name,
            remedy="write the pattern without look-around and references back, as RE2 has it",
        ) from None


def _rows_where(flags: pa.Array) -> list[int]:
    """The numbers of the rows where a flag is set; null is not."""
    found: list[int] = np.flatnonzero(pc.fill_null(flags, False).to_numpy(zero_copy_only=False)).tolist()
    return found


def _format_number(value: float) -> str:
    return str(value) if isinstance(value, int) else to_positional(repr(value))
