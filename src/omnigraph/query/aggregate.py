"""Groups of rows and what is counted, added up and compared in each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.layout import split_key
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.terms import EntityId, Prop, Term, Total
from omnigraph.lang.types import Scalar
from omnigraph.lang.values import arrow_type
from omnigraph.query.codes import Groups, codes_of, grouped
from omnigraph.query.counting import sums
from omnigraph.query.counting import total as total_of
from omnigraph.query.expressions.evaluate import Replaced, value
from omnigraph.query.frame import NO_ROW, Frame, Positions
from omnigraph.query.order import sort_keys
from omnigraph.query.reading import Reading

_EXACT_FLOAT = 2**53
UNNAMED = "?"
"""The name of a column without alias that has nothing to be named after."""


def aggregated(reading: Reading, frame: Frame, plan: p.Aggregate) -> list[pa.Array]:
    """The result columns of an aggregation, in order."""
    keys = _keys(reading, frame, plan.keys)
    groups = grouped(keys, frame.length)
    if not plan.keys and frame.length == 0:
        return _of_nothing(reading, plan)
    totals = [_total(reading, frame, groups, total) for total in plan.totals]
    places = reading.outline.of(_places, plan)
    if NO_ROW not in places:
        return [totals[place] for place in places]
    replaced: Replaced = dict(zip(plan.totals, totals, strict=True))
    scope = reading.scope(frame.take(groups.first))
    return [value(column.term, scope, replaced) for column in plan.columns]


def _places(plan: p.Aggregate) -> list[int]:
    """Which of the totals each result column is; NO_ROW for one that is made of something else."""
    return [
        plan.totals.index(column.term) if column.term in plan.totals else NO_ROW for column in plan.columns
    ]


def _of_nothing(reading: Reading, plan: p.Aggregate) -> list[pa.Array]:
    """One row that says there is nothing."""
    totals: Replaced = {total: _empty(total) for total in plan.totals}
    scope = reading.scope(Frame(1))
    return [value(column.term, scope, totals) for column in plan.columns]


def name_of_nothing(column: p.Output) -> str:
    """The name of a column where there is nothing: a total without an alias has nothing to be named after."""
    return UNNAMED if isinstance(column.term, Total) and not column.aliased else column.name


def _empty(total: Total) -> pa.Array:
    type_ = arrow_type(total.type)
    return pa.array([0], type_) if total.fn == "count" else pa.nulls(1, type_)


# --- groups --------------------------------------------------------------------------------------


def _keys(reading: Reading, frame: Frame, terms: Sequence[Term]) -> list[Positions]:
    """Numbers that tell groups apart; what identifies a node stands for all its properties."""
    identified = {found for term in terms if (found := _identifies(reading, term)) is not None}
    keys: list[Positions] = [frame.variables[var] for var in sorted(identified)]
    rest = [term for term in terms if not (isinstance(term, Prop | EntityId) and term.var in identified)]
    return keys + [_codes(reading, frame, term) for term in rest]


def _identifies(reading: Reading, term: Term) -> str | None:
    """The variable that a key says everything about."""
    if isinstance(term, EntityId):
        return term.var
    if not isinstance(term, Prop):
        return None
    kind, name = split_key(reading.tables[term.var])
    is_key = kind == "node" and reading.sources.catalog.nodes[name].key == (term.name,)
    # Floats do not tell -0.0 from 0.0; their ids do not either, so a key of that type is fine.
    return term.var if is_key else None


def _codes(reading: Reading, frame: Frame, term: Term) -> Positions:
    """A number for each row that is equal where the values of a term are."""
    if isinstance(term, Prop) and _is_plain(term):
        rows = reading.rows(term.var)
        if rows.count <= 4 * frame.length:
            positions = frame.variables[term.var]
            known = rows.codes(term.name).by_position
            if len(known) == 0:
                return np.full(frame.length, NO_ROW, dtype=np.int64)
            return np.where(positions >= 0, known[positions], NO_ROW).astype(np.int64)
    return codes_of(value(term, reading.scope(frame)))


def _is_plain(term: Prop) -> bool:
    """Whether equal values of a property are equal byte for byte."""
    plain = term.type.scalar not in (Scalar.F32, Scalar.F64, Scalar.VECTOR, Scalar.BLOB)
    return plain and not term.type.is_list


# --- totals --------------------------------------------------------------------------------------


def _total(reading: Reading, frame: Frame, groups: Groups, total: Total) -> pa.Array:
    argument = total.argument
    if total.fn == "count" and isinstance(argument, EntityId) and not total.distinct:
        return pa.array(_counted(groups, frame.weights, _present(frame, argument.var)))
    if total.fn == "count" and total.distinct:
        return pa.array(_distinct(groups, _distinct_codes(reading, frame, argument)))
    values = value(argument, reading.scope(frame))
    valid = None if values.null_count == 0 else values.is_valid().to_numpy(zero_copy_only=False)
    if total.fn == "count":
        return pa.array(_counted(groups, frame.weights, valid))
    if total.fn in ("min", "max"):
        return _extreme(groups, values, valid, largest=total.fn == "max")
    return _added(groups, frame.weights, values, valid, mean=total.fn == "avg")


def _present(frame: Frame, var: str) -> NDArray[np.bool_] | None:
    """Where a variable has a match; a variable that is only counted has one in every row."""
    positions = frame.variables.get(var)
    if positions is None or not (missing := positions < 0).any():
        return None
    return ~missing


def _counted(
    groups: Groups, weights: NDArray[np.int64] | None, valid: NDArray[np.bool_] | None
) -> NDArray[np.int64]:
    if groups.count == 1:
        return np.array([_counted_all(len(groups.of_row), weights, valid)], dtype=np.int64)
    of_row = groups.of_row if valid is None else groups.of_row[valid]
    if weights is None:
        return np.bincount(of_row, minlength=groups.count).astype(np.int64)
    weighed = weights if valid is None else weights[valid]
    if float(weighed.sum(dtype=np.float64)) < _EXACT_FLOAT:
        return np.bincount(of_row, weights=weighed, minlength=groups.count).astype(np.int64)

    def by_group(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        added = np.zeros(groups.count, dtype=np.int64)
        np.add.at(added, of_row, numbers)
        return added

    return sums(weighed, by_group)


def _counted_all(length: int, weights: NDArray[np.int64] | None, valid: NDArray[np.bool_] | None) -> int:
    if weights is None:
        return length if valid is None else int(np.count_nonzero(valid))
    return total_of(weights if valid is None else weights[valid])


def _added(
    groups: Groups,
    weights: NDArray[np.int64] | None,
    values: pa.Array,
    valid: NDArray[np.bool_] | None,
    *,
    mean: bool,
) -> pa.Array:
    numbers = np.asarray(values.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.float64)
    if weights is not None:
        numbers = numbers * weights
    counts = _counted(groups, weights, valid)
    added = np.bincount(groups.of_row, weights=numbers, minlength=groups.count).astype(np.float64)
    if mean:
        added = np.divide(added, counts, out=np.zeros_like(added), where=counts > 0)
    return pa.array(added, mask=counts == 0)


def _extreme(groups: Groups, values: pa.Array, valid: NDArray[np.bool_] | None, *, largest: bool) -> pa.Array:
    rows = np.arange(len(values)) if valid is None else np.flatnonzero(valid)
    chosen = np.full(groups.count, NO_ROW, dtype=np.int64)
    if len(rows):
        keys = sort_keys(values.take(pa.array(rows)), largest)
        order = np.lexsort([*keys[::-1], groups.of_row[rows]])
        ordered = groups.of_row[rows[order]]
        starts = np.flatnonzero(np.diff(ordered, prepend=NO_ROW))
        chosen[ordered[starts]] = rows[order[starts]]
    return values.take(pa.array(chosen, mask=chosen < 0))


def _distinct_codes(reading: Reading, frame: Frame, argument: Term) -> Positions:
    if isinstance(argument, EntityId):
        return frame.variables[argument.var]
    return _codes(reading, frame, argument)


def _distinct(groups: Groups, codes: Positions) -> NDArray[np.int64]:
    valid = codes >= 0
    pairs = grouped([groups.of_row[valid], codes[valid]], int(valid.sum()))
    return np.bincount(groups.of_row[valid][pairs.first], minlength=groups.count).astype(np.int64)
