"""Rows of a load with an id that another row, or a stored one, has already."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import pyarrow as pa

from omnigraph.engine.columns import ID
from omnigraph.engine.write.change import first_rows, last_rows, within
from omnigraph.engine.write.faults import Faults, joined
from omnigraph.engine.write.stored import Stored
from omnigraph.engine.write.target import Target
from omnigraph.engine.write.unique import columns_name, shown_tuples
from omnigraph.engine.write.violations import Flags, Numbers

_OWN_KEY = "give each record a key of its own"
_OWN_ID = "give each record an id of its own, or use merge, which keeps the last of those with one id"


class Mode(StrEnum):
    """What a load does with rows that are stored already."""

    APPEND = "append"
    MERGE = "merge"
    OVERWRITE = "overwrite"


def repeated_keys(target: Target, rows: pa.Table) -> Faults | None:
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
    values = shown_tuples(later, target, columns)
    where = f"@unique violation on {target.name}.{columns_name(columns)}: value '"
    reasons = joined(where, values, "' held by '", own, "' and '", own, "'")
    return Faults("unique", target, again, own, reasons, remedy=_OWN_KEY)


def conflicting_ids(
    target: Target, rows: pa.Table, generated: Flags, mode: Mode, stored: Stored
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
        taken = within(ids, stored.existing(target.key, given)) & ~repeated
    # None tells that a stored row is in the way: what helps then is known to the error itself.
    found = ((np.flatnonzero(taken), None), (np.flatnonzero(again), _OWN_ID))
    return tuple(_taken(target, ids, places, remedy) for places, remedy in found if len(places))


def _taken(target: Target, ids: pa.ChunkedArray, found: Numbers, remedy: str | None) -> Faults:
    own = ids.take(pa.array(found)).combine_chunks()
    reasons = joined(f"{target.kind} type '{target.name}' already has id '", own, "'")
    return Faults("key_conflict", target, found, own, reasons, remedy=remedy)


def winners(rows: pa.Table) -> Numbers:
    """The rows that remain when of several with one id the last one counts, in input order."""
    last = last_rows(rows.column(ID))
    return np.flatnonzero(last == np.arange(len(last)))


def _repeats(first: Numbers) -> Numbers:
    return np.flatnonzero(first != np.arange(len(first)))
