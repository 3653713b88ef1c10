"""Rows of a load with an id that another row, or a stored one, has already."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import pyarrow as pa

from omnigraph.engine.constraints.faults import Faults, join_texts
from omnigraph.engine.constraints.stored_rows import StoredRows
from omnigraph.engine.constraints.table_change import first_rows, is_among, last_rows
from omnigraph.engine.constraints.unique import format_columns, format_tuples
from omnigraph.engine.graph.columns import ID
from omnigraph.engine.graph.table_types import TableType
from omnigraph.engine.rows.violations import Flags, Numbers

_OWN_KEY = "give each record a key of its own"
_OWN_ID = "give each record an id of its own, or use merge, which keeps the last of those with one id"


class Mode(StrEnum):
    """What a load does with rows that are stored already."""

    APPEND = "append"
    MERGE = "merge"
    OVERWRITE = "overwrite"


def find_repeated_keys(target: TableType, rows: pa.Table) -> Faults | None:
    """Rows with the key of an earlier row; that is a mistake in every mode."""
    if not target.identity:
        return None
    ids = rows.column(ID)
    again = _repeats(first_rows(ids))
    if not len(again):
        return None
    columns = tuple(sorted(target.identity))
    later = rows.take(pa.array(again))
    own = later.column(ID).combine_chunks()
    values = format_tuples(later, target, columns)
    where = f"@unique violation on {target.name}.{format_columns(columns)}: value '"
    reasons = join_texts(where, values, "' held by '", own, "' and '", own, "'")
    return Faults("unique", target, again, own, reasons, remedy=_OWN_KEY)


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
    return tuple(_taken(target, ids, places, remedy) for places, remedy in found if len(places))


def _taken(target: TableType, ids: pa.ChunkedArray, found: Numbers, remedy: str | None) -> Faults:
    own = ids.take(pa.array(found)).combine_chunks()
    reasons = join_texts(f"{target.kind} type '{target.name}' already has id '", own, "'")
    return Faults("key_conflict", target, found, own, reasons, remedy=remedy)


def keep_last_per_id(rows: pa.Table) -> Numbers:
    """The rows that remain when of several with one id the last one counts, in input order."""
    last = last_rows(rows.column(ID))
    return np.flatnonzero(last == np.arange(len(last)))


def _repeats(first: Numbers) -> Numbers:
    return np.flatnonzero(first != np.arange(len(first)))
