"""`@unique`: no two rows of the final state have the same values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.constraints.faults import Faults, join_texts
from omnigraph.engine.constraints.stored_rows import StoredRows
from omnigraph.engine.constraints.table_change import TableChange, first_rows, is_among
from omnigraph.engine.graph.columns import ID
from omnigraph.engine.graph.table_types import TableType
from omnigraph.engine.rows.ids import compose_ids, render_keys
from omnigraph.lang.schema.catalog import UniqueRule
from omnigraph.lang.types import STRING

_REMEDY = "change the value of one of the two, or remove that one"


def find_unique_faults(change: TableChange, stored: StoredRows) -> Iterator[Faults]:
    """Rows that share the values of a `@unique` with an earlier row, or with a stored one that stays."""
    for rule in change.target.owner.uniques:
        found = find_shared_values(change, stored, rule)
        if found is not None:
            yield found


def format_columns(columns: Sequence[str]) -> str:
    """Columns as messages name them."""
    return columns[0] if len(columns) == 1 else f"({', '.join(columns)})"


def format_tuples(rows: pa.Table, target: TableType, columns: Sequence[str]) -> pa.Array:
    """The values of some columns as messages show them."""
    parts = _parts(rows, target, columns)
    return parts[0] if len(parts) == 1 else join_texts("(", pc.binary_join_element_wise(*parts, ", "), ")")


def find_shared_values(change: TableChange, stored: StoredRows, rule: UniqueRule) -> Faults | None:
    """The breaches of one rule."""
    target, rows = change.target, change.rows
    tuples = tuple_texts(rows, target, rule.columns)
    ids = change.ids.combine_chunks()
    first = first_rows(tuples)
    holders = ids.take(pa.array(first))
    again = first != np.arange(len(first))
    if not change.replaces:
        others = find_stored_holders(change, stored, rule, tuples)
        holders = pc.if_else(others.is_valid(), others, holders)
        again |= others.is_valid().to_numpy(zero_copy_only=False)
    found = np.flatnonzero(again)
    if not len(found):
        return None
    at = pa.array(found)
    own = ids.take(at)
    values = format_tuples(rows.take(at), target, rule.columns)
    where = f"@unique violation on {target.name}.{format_columns(rule.columns)}: value '"
    reasons = join_texts(where, values, "' held by '", holders.take(at), "' and '", own, "'")
    return Faults("unique", target, found, own, reasons, remedy=_REMEDY)


def find_stored_holders(
    change: TableChange, stored: StoredRows, rule: UniqueRule, tuples: pa.Array
) -> pa.Array:
    """For each row the id of a stored row that has its values and stays; null when there is none."""
    complete = pa.array(np.flatnonzero(tuples.is_valid().to_numpy(zero_copy_only=False)))
    no_holder = pa.nulls(len(tuples), pa.string())
    if not len(complete):
        return no_holder
    asked = change.rows.select(list(rule.columns)).take(complete)
    found = stored.holders(change.target.key, rule.columns, asked)
    found = found.filter(pa.array(~is_among(found.column(ID), change.gone)))
    if not found.num_rows:
        return no_holder
    theirs = tuple_texts(found, change.target, rule.columns)
    place = pc.index_in(tuples, value_set=theirs)
    return pc.if_else(tuples.is_valid(), found.column(ID).combine_chunks().take(place), no_holder)


def tuple_texts(rows: pa.Table, target: TableType, columns: Sequence[str]) -> pa.Array:
    """One text per row that is equal for equal values; null when a value is null."""
    return compose_ids(_parts(rows, target, columns))


def _parts(rows: pa.Table, target: TableType, columns: Sequence[str]) -> list[pa.Array]:
    properties = target.owner.properties
    return [
        render_keys(
            rows.column(name).combine_chunks(), properties[name].type if name in properties else STRING
        )
        for name in columns
    ]
