"""Rows of a load with an id that another row, or a stored one, has already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.constraints.faults import Faults, join_texts
from omnigraph.engine.constraints.stored_rows import StoredRows
from omnigraph.engine.constraints.table_change import TableChange, first_rows, is_among, last_rows
from omnigraph.engine.graph.table_types import ID, TableType
from omnigraph.engine.rows.ids import compose_ids, render_keys
from omnigraph.engine.rows.violations import Flags, Numbers
from omnigraph.errors import BadRequest
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
    parts = _key_columns(rows, target, columns)
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
    return compose_ids(_key_columns(rows, target, columns))


def _key_columns(rows: pa.Table, target: TableType, columns: Sequence[str]) -> list[pa.Array]:
    properties = target.owner.properties
    return [
        render_keys(
            rows.column(name).combine_chunks(), properties[name].type if name in properties else STRING
        )
        for name in columns
    ]


_OWN_KEY = "give each record a key of its own"
_OWN_ID = "give each record an id of its own, or use merge, which keeps the last of those with one id"


class Mode(StrEnum):
    """What a load does with rows that are stored already."""

    APPEND = "append"
    MERGE = "merge"
    PATCH = "patch"
    OVERWRITE = "overwrite"


def parse_mode(text: str) -> Mode:
    """Return the mode of a load by its name."""
    if text not in list(Mode):
        raise BadRequest(f"'{text}' is not a mode of loading", remedy=f"choose one of: {', '.join(Mode)}")
    return Mode(text)


def find_repeated_keys(target: TableType, rows: pa.Table) -> Faults | None:
    """Rows with the key of an earlier row; that is a mistake in every mode."""
    if not target.identity:
        return None
    ids = rows.column(ID)
    again = _rows_repeating(first_rows(ids))
    if not len(again):
        return None
    columns = target.identity if target.kind == "edge" else tuple(sorted(target.identity))
    later = rows.take(pa.array(again))
    own = later.column(ID).combine_chunks()
    values = format_tuples(later, target, columns)
    where = f"@unique violation on {target.name}.{format_columns(columns)}: value '"
    reasons = join_texts(where, values, "' held by '", own, "' and '", own, "'")
    return Faults("unique", target, again, own, reasons, remedy=_OWN_KEY)


_JOIN = "join the records with one id into one"
_ADD_FIRST = "add these rows with `merge` or `append`"


def find_patch_faults(
    target: TableType, rows: pa.Table, stored: pa.ChunkedArray | pa.Array
) -> tuple[Faults, ...]:
    """Rows of a patch that are about the same row as an earlier one, or about a row that is not stored.

    `rows` has the ids, and the properties of the key. `stored` are those of the ids that are stored.
    """
    ids = rows.column(ID)
    repeated = find_repeated_keys(target, rows) if target.identity else _find_repeated_ids(target, ids)
    missing = np.flatnonzero(~is_among(ids, stored))
    if not len(missing):
        return () if repeated is None else (repeated,)
    own = ids.take(pa.array(missing)).combine_chunks()
    reasons = join_texts(f"{target.name} '", own, "' does not exist, and a patch adds no rows")
    absent = Faults("missing", target, missing, own, reasons, remedy=_ADD_FIRST)
    return (absent,) if repeated is None else (repeated, absent)


def _find_repeated_ids(target: TableType, ids: pa.ChunkedArray) -> Faults | None:
    again = _rows_repeating(first_rows(ids))
    if not len(again):
        return None
    own = ids.take(pa.array(again)).combine_chunks()
    reasons = join_texts(f"@unique violation on {target.name}.id: value '", own, "' is in several records")
    return Faults("unique", target, again, own, reasons, remedy=_JOIN)


def find_conflicting_ids(
    target: TableType, rows: pa.Table, generated: Flags, mode: Mode, stored: StoredRows
) -> tuple[Faults, ...]:
    """Rows whose given id an earlier row has, or, when rows may only be added, a stored one.

    A key that an earlier row has is the business of `repeated_keys`.
    """
    if mode is Mode.MERGE or generated.all():
        return ()
    ids = rows.column(ID)
    first = first_rows(ids)
    repeated = first != np.arange(len(first))
    again = np.zeros(len(first), np.bool_) if target.identity else repeated
    taken = np.zeros(len(first), np.bool_)
    if mode is Mode.APPEND:
        given = ids.filter(pa.array(~generated))
        taken = is_among(ids, stored.existing(target.key, given)) & ~repeated
    # None tells that a stored row is in the way: what helps then is known to the error itself.
    found = ((np.flatnonzero(taken), None), (np.flatnonzero(again), _OWN_ID))
    return tuple(_existing_ids(target, ids, places, remedy) for places, remedy in found if len(places))


def _existing_ids(target: TableType, ids: pa.ChunkedArray, found: Numbers, remedy: str | None) -> Faults:
    own = ids.take(pa.array(found)).combine_chunks()
    reasons = join_texts(f"{target.kind} type '{target.name}' already has id '", own, "'")
    return Faults("key_conflict", target, found, own, reasons, remedy=remedy)


def keep_last_per_id(rows: pa.Table) -> Numbers:
    """The rows that remain when of several with one id the last one counts, in input order."""
    last = last_rows(rows.column(ID))
    return np.flatnonzero(last == np.arange(len(last)))


def _rows_repeating(first: Numbers) -> Numbers:
    return np.flatnonzero(first != np.arange(len(first)))
