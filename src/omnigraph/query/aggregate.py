"""Aggregation: group rows, and count, sum, average and compare in each group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.graph.layout import split_key
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.terms import AllOf, EntityId, Prop, Term, Total
from omnigraph.lang.types import Scalar
from omnigraph.lang.values import arrow_type
from omnigraph.query.context import QueryContext
from omnigraph.query.exact_sums import sums_by_group
from omnigraph.query.expressions.evaluate import (
    Replaced,
    Scope,
    evaluate_predicate,
    evaluate_term,
    substitute,
)
from omnigraph.query.frame import NO_ROW, Frame, Positions, checked_sums
from omnigraph.query.frame import sum_counts as total_of
from omnigraph.query.group_and_sort import Groups, encode_values, group_rows, make_sort_keys

_EXACT_FLOAT = 2**53
UNNAMED = "?"
"""The name of an unaliased total in an aggregate over no rows."""


def aggregate_rows(context: QueryContext, frame: Frame, plan: p.Aggregate) -> list[pa.Array]:
    """Return the result columns of an aggregation, in order."""
    keys = _group_keys(context, frame, plan.keys)
    groups = group_rows(keys, frame.length)
    if not plan.keys and frame.length == 0:
        return _empty_result(context, plan)
    totals = [_compute_total(context, frame, groups, total) for total in plan.totals]
    places = context.facts.get(_total_indexes, plan)
    if NO_ROW not in places and not plan.having:
        return [totals[place] for place in places]
    replaced: Replaced = dict(zip(plan.totals, totals, strict=True))
    return _project_groups(plan, substitute(context.scope(frame.take(groups.first)), replaced))


def _project_groups(plan: p.Aggregate, scope: Scope) -> list[pa.Array]:
    columns = [evaluate_term(column.term, scope) for column in plan.columns]
    if not plan.having:
        return columns
    kept = pa.array(np.flatnonzero(evaluate_predicate(AllOf(plan.having), scope)))
    return [column.take(kept) for column in columns]


def _total_indexes(plan: p.Aggregate) -> list[int]:
    """Return the index of the total that each result column is; NO_ROW for other columns."""
    return [
        plan.totals.index(column.term) if column.term in plan.totals else NO_ROW for column in plan.columns
    ]


def _empty_result(context: QueryContext, plan: p.Aggregate) -> list[pa.Array]:
    """Return the single row of an aggregate over no rows."""
    totals: Replaced = {total: _empty_total(total) for total in plan.totals}
    return _project_groups(plan, substitute(context.scope(Frame(1)), totals))


def empty_result_name(column: p.Output) -> str:
    """Return the name of a column of an aggregate over no rows, where an unaliased total is unnamed."""
    return UNNAMED if isinstance(column.term, Total) and not column.aliased else column.name


def _empty_total(total: Total) -> pa.Array:
    type_ = arrow_type(total.type)
    if total.fn == "collect":
        return pa.array([[]], type_)
    return pa.array([0], type_) if total.fn == "count" else pa.nulls(1, type_)


# --- groups --------------------------------------------------------------------------------------


def _group_keys(context: QueryContext, frame: Frame, terms: Sequence[Term]) -> list[Positions]:
    """Return numbers that identify groups; a node's key stands for all its properties."""
    identified = {found for term in terms if (found := _identified_variable(context, term)) is not None}
    keys: list[Positions] = [frame.variables[var] for var in sorted(identified)]
    rest = [term for term in terms if not (isinstance(term, Prop | EntityId) and term.var in identified)]
    return keys + [_encode_term(context, frame, term) for term in rest]


def _identified_variable(context: QueryContext, term: Term) -> str | None:
    """Return the variable that a grouping term identifies; None when it identifies none."""
    if isinstance(term, EntityId):
        return term.var
    if not isinstance(term, Prop):
        return None
    kind, name = split_key(context.tables[term.var])
    is_key = kind == "node" and context.sources.catalog.nodes[name].key == (term.name,)
    # -0.0 equals 0.0 as a float and as an id, so a key of that type is fine.
    return term.var if is_key else None


def _encode_term(context: QueryContext, frame: Frame, term: Term) -> Positions:
    """Return a number for each row that is equal where the values of a term are."""
    if isinstance(term, Prop) and _is_plain(term):
        rows = context.rows(term.var)
        if rows.count <= 4 * frame.length:
            positions = frame.variables[term.var]
            known = rows.codes(term.name).by_position
            if len(known) == 0:
                return np.full(frame.length, NO_ROW, dtype=np.int64)
            return np.where(positions >= 0, known[positions], NO_ROW).astype(np.int64)
    return encode_values(evaluate_term(term, context.scope(frame)))


def _is_plain(term: Prop) -> bool:
    """Whether equal values of a property are equal byte for byte."""
    plain = term.type.scalar not in (Scalar.F32, Scalar.F64, Scalar.VECTOR, Scalar.BLOB)
    return plain and not term.type.is_list


# --- totals --------------------------------------------------------------------------------------


def _compute_total(context: QueryContext, frame: Frame, groups: Groups, total: Total) -> pa.Array:
    argument = total.argument
    if total.fn == "count" and isinstance(argument, EntityId) and not total.distinct:
        return pa.array(_count_by_group(groups, frame.weights, _matched_rows(frame, argument.var)))
    if total.fn == "count" and total.distinct:
        return pa.array(_count_distinct(groups, _distinct_codes(context, frame, argument)))
    values = evaluate_term(argument, context.scope(frame))
    valid = None if values.null_count == 0 else values.is_valid().to_numpy(zero_copy_only=False)
    if total.fn == "count":
        return pa.array(_count_by_group(groups, frame.weights, valid))
    if total.fn == "collect":
        return _collect(context, groups, frame.weights, values, distinct=total.distinct)
    if total.fn in ("min", "max"):
        return _find_extreme(groups, values, valid, largest=total.fn == "max")
    return _add_up(groups, frame.weights, values, valid, mean=total.fn == "avg")


def _matched_rows(frame: Frame, var: str) -> NDArray[np.bool_] | None:
    """Where a variable has a match; a variable that is only counted has one in every row."""
    positions = frame.variables.get(var)
    if positions is None or not (missing := positions < 0).any():
        return None
    return ~missing


def _count_by_group(
    groups: Groups, weights: NDArray[np.int64] | None, valid: NDArray[np.bool_] | None
) -> NDArray[np.int64]:
    if groups.count == 1:
        return np.array([_count_all(len(groups.of_row), weights, valid)], dtype=np.int64)
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

    return checked_sums(weighed, by_group)


def _count_all(length: int, weights: NDArray[np.int64] | None, valid: NDArray[np.bool_] | None) -> int:
    if weights is None:
        return length if valid is None else int(np.count_nonzero(valid))
    return total_of(weights if valid is None else weights[valid])


def _add_up(
    groups: Groups,
    weights: NDArray[np.int64] | None,
    values: pa.Array,
    valid: NDArray[np.bool_] | None,
    *,
    mean: bool,
) -> pa.Array:
    numbers = np.asarray(values.fill_null(0).to_numpy(zero_copy_only=False), dtype=np.float64)
    counts = _count_by_group(groups, weights, valid)
    found = sums_by_group(groups.of_row, groups.count, numbers, weights)
    added, missing = found.means(counts) if mean else found.totals()
    return pa.array(added, mask=missing | (counts == 0))


def _find_extreme(
    groups: Groups, values: pa.Array, valid: NDArray[np.bool_] | None, *, largest: bool
) -> pa.Array:
    rows = np.arange(len(values)) if valid is None else np.flatnonzero(valid)
    chosen = np.full(groups.count, NO_ROW, dtype=np.int64)
    if len(rows):
        keys = make_sort_keys(values.take(pa.array(rows)), largest)
        order = np.lexsort([*keys[::-1], groups.of_row[rows]])
        ordered = groups.of_row[rows[order]]
        starts = np.flatnonzero(np.diff(ordered, prepend=NO_ROW))
        chosen[ordered[starts]] = rows[order[starts]]
    return values.take(pa.array(chosen, mask=chosen < 0))


def _collect(
    context: QueryContext,
    groups: Groups,
    weights: NDArray[np.int64] | None,
    values: pa.Array,
    *,
    distinct: bool,
) -> pa.Array:
    """The values of each group that are not null, in their order."""
    rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    keys = make_sort_keys(values.take(pa.array(rows)), False)
    rows = rows[np.lexsort([*keys[::-1], groups.of_row[rows]])]
    if distinct:
        codes, of_row = encode_values(values)[rows], groups.of_row[rows]
        rows = rows[(np.diff(codes, prepend=NO_ROW) != 0) | (np.diff(of_row, prepend=NO_ROW) != 0)]
    elif weights is not None:
        context.request.check(total_of(weights[rows]), 1)
        rows = np.repeat(rows, weights[rows])
    counts = np.bincount(groups.of_row[rows], minlength=groups.count)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values.take(pa.array(rows)))


def _distinct_codes(context: QueryContext, frame: Frame, argument: Term) -> Positions:
    if isinstance(argument, EntityId):
        return frame.variables[argument.var]
    return _encode_term(context, frame, argument)


def _count_distinct(groups: Groups, codes: Positions) -> NDArray[np.int64]:
    valid = codes >= 0
    pairs = group_rows([groups.of_row[valid], codes[valid]], int(valid.sum()))
    return np.bincount(groups.of_row[valid][pairs.first], minlength=groups.count).astype(np.int64)
