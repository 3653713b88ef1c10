"""Split rows in flight into ranges, so that the values an expression reads stay small.

A row in flight is a few numbers. But the text of a node in a million rows is copied a million times when an
expression is evaluated for all of them, and no Arrow array holds more than 2 GiB of text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.engine.graph.columns import ID
from omnigraph.lang.query.terms import EntityId, Predicate, Prop, Term, walk
from omnigraph.query.frame import Frame
from omnigraph.query.read_cache import ReadCache
from omnigraph.query.rows import SMALL, Rows
from omnigraph.query.topology.runs import split_runs

MOST_BYTES = 128 << 20
"""About how many bytes the values of a range may take."""
_FEW = 256
"""So few rows are never split."""
_ROW_BYTES = 128  # that a row counts for at least, whatever is looked at
_NUMBER_BYTES = 8
_OFFSET_BYTES = 4  # of each text in a list
_UNKNOWN_BYTES = 1024  # of a value in a column that is not in memory

RowRange = tuple[int, int]


def split_rows(
    rows_of: Callable[[str], Rows], memory: ReadCache, frame: Frame, terms: Iterable[Term | Predicate]
) -> list[RowRange]:
    """Return ranges of rows, at least one, each small enough for the values that these terms read."""
    if frame.length <= _FEW:
        return [(0, frame.length)]
    looked_at = {part for term in terms for part in walk(term) if isinstance(part, Prop | EntityId)}
    copied = [part for part in looked_at if not rows_of(part.var).are_all(frame.variables[part.var])]
    if not copied:
        return [(0, frame.length)]
    weights = [_weight(rows_of(part.var), memory, frame, part) for part in copied]
    same = _ROW_BYTES + sum(weight for weight in weights if isinstance(weight, int))
    single = [weight for weight in weights if not isinstance(weight, int)]
    if single:
        return list(split_runs(sum(single, np.full(frame.length, same)), MOST_BYTES))
    step = max(1, MOST_BYTES // same)
    return [(start, min(start + step, frame.length)) for start in range(0, frame.length, step)]


def _weight(rows: Rows, memory: ReadCache, frame: Frame, part: Prop | EntityId) -> NDArray[np.int64] | int:
    """Estimate how many bytes a value takes in each row, or in any row."""
    if isinstance(part, Prop) and part.type.is_numeric:
        return _NUMBER_BYTES  # known without reading the column
    name = ID if isinstance(part, EntityId) else part.name
    if rows.count > SMALL and not rows.is_cached(name):
        return _UNKNOWN_BYTES
    column = rows.column(name)
    if not _is_text(column.type) and not _is_list(column.type):
        return _average(column)
    widest = memory.get_or_make(
        (*rows.identity, "widest", name), lambda: int(_lengths(column).max(initial=0)), lambda _: _ROW_BYTES
    )
    if widest * frame.length <= MOST_BYTES:
        return 0
    found: NDArray[np.int64] = np.append(_lengths(column), 0)[frame.variables[part.var]]
    return found


def _lengths(column: pa.Array) -> NDArray[np.int64]:
    """How many bytes each text or list has."""
    if _is_list(column.type):
        items, ends, each = column.values, column.offsets.to_numpy(), 1
        if _is_text(items.type):
            ends = np.append(0, np.cumsum(_lengths(items) + _OFFSET_BYTES))[ends]
        else:
            each = _average(items)
        found: NDArray[np.int64] = np.diff(ends).astype(np.int64) * each
        return found
    lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return np.asarray(lengths, dtype=np.int64)


def _average(column: pa.Array) -> int:
    """How many bytes a value has; each of them, where they are alike."""
    return int(-(-column.nbytes // max(1, len(column))))


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))
