"""Joins of rows in flight: cross joins, and anti and optional joins with a nested block."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import plan as p
from omnigraph.lang.query.terms import Compare, Predicate, Term, variables
from omnigraph.query.context import QueryContext
from omnigraph.query.expressions.evaluate import evaluate_term
from omnigraph.query.frame import NO_ROW, Frame, Positions, concat_frames
from omnigraph.query.group_and_sort import encode_values
from omnigraph.query.topology.adjacency import expand_runs

_PAIRS_AT_ONCE = 4_000_000

Solve = Callable[[Frame], Frame]
"""Runs a block from the rows around it."""


# --- pairs ---------------------------------------------------------------------------------------


def cross_join(context: QueryContext, left: Frame, right: Frame, tests: tuple[Predicate, ...]) -> Frame:
    """Return every pair of a left and a right row that passes the tests."""
    width = len(left.variables) + len(right.variables)
    equality = next((test for test in tests if _is_join_test(test, left, right)), None)
    if equality is not None:
        rest = tuple(test for test in tests if test is not equality)
        return context.filter(_pair_rows(left, right, *_equal_pairs(context, equality, left, right)), rest)
    if not tests:
        context.request.check(left.length * right.length, width)
    parts, kept = [], 0
    for chunk in _split_left_rows(left, right.length):
        pairs = _pair_rows(
            left, right, np.repeat(chunk, right.length), np.tile(np.arange(right.length), len(chunk))
        )
        parts.append(context.filter(pairs, tests))
        kept += parts[-1].length
        context.request.check(kept, width)
    return concat_frames(parts)


def _split_left_rows(left: Frame, width: int) -> Iterator[Positions]:
    """Yield ranges of left rows whose pairs fit in memory; at least one."""
    step = max(1, _PAIRS_AT_ONCE // max(1, width))
    for start in range(0, max(1, left.length), step):
        yield np.arange(start, min(start + step, left.length))


def _pair_rows(left: Frame, right: Frame, lefts: Positions, rights: Positions) -> Frame:
    one, other = left.take(lefts), right.take(rights)
    paired = Frame(
        len(lefts),
        {**one.variables, **other.variables},
        {**one.scores, **other.scores},
        other.ranks if one.ranks is None else one.ranks,
        one.weights,
    )
    return paired if other.weights is None else paired.multiply_weights(other.weights)


def _is_join_test(test: Predicate, left: Frame, right: Frame) -> bool:
    """Whether a test is an equality of one side's value with the other's, of the same type."""
    if not isinstance(test, Compare) or test.op != "=" or test.left.type.scalar is not test.right.type.scalar:
        return False
    sides = variables(test.left), variables(test.right)
    return all(sides) and (
        (sides[0] <= left.variables.keys() and sides[1] <= right.variables.keys())
        or (sides[1] <= left.variables.keys() and sides[0] <= right.variables.keys())
    )


def _equal_pairs(
    context: QueryContext, test: Predicate, left: Frame, right: Frame
) -> tuple[Positions, Positions]:
    assert isinstance(test, Compare)
    terms = (test.left, test.right)
    ours, theirs = terms if variables(test.left) <= left.variables.keys() else (terms[1], terms[0])
    one, other = _evaluate_term(context, ours, left), _evaluate_term(context, theirs, right)
    codes = encode_values(pa.concat_arrays([one, other]))
    lefts, rights = codes[: left.length], codes[left.length :]
    order = np.argsort(rights, kind="stable")
    begin = np.searchsorted(rights[order], lefts, "left")
    counts = np.where(lefts >= 0, np.searchsorted(rights[order], lefts, "right") - begin, 0)
    context.request.check(int(counts.sum()), len(left.variables) + len(right.variables))
    rows, places = expand_runs(begin, counts)
    return rows, order[places]


def _evaluate_term(context: QueryContext, term: Term, frame: Frame) -> pa.Array:
    return evaluate_term(term, context.scope(frame))


# --- blocks --------------------------------------------------------------------------------------


def anti_join(frame: Frame, block: p.Plan, solve: Solve) -> Frame:
    """Return the rows for which a block has no solution."""
    mark = row_number_name(frame)
    solved = solve(_outer_rows(frame, block).bind(mark, np.arange(frame.length)))
    keep = np.ones(frame.length, dtype=np.bool_)
    keep[solved.variables[mark]] = False
    return frame.filter(keep)


def optional_join(frame: Frame, block: p.Plan, adds: tuple[str, ...], solve: Solve) -> Frame:
    """Return the rows with each solution of a block, or with nothing bound where it has none."""
    mark = row_number_name(frame)
    solved = solve(_outer_rows(frame, block).bind(mark, np.arange(frame.length)))
    rows = solved.variables[mark]
    matched = frame.take(rows)
    for var in adds:
        matched = matched.bind(var, solved.variables[var])
    alone = np.ones(frame.length, dtype=np.bool_)
    alone[rows] = False
    unmatched = frame.take(np.flatnonzero(alone))
    for var in adds:
        unmatched = unmatched.bind(var, np.full(unmatched.length, NO_ROW, dtype=np.int64))
    return concat_frames([matched, unmatched])


def row_number_name(frame: Frame) -> str:
    """Return a variable name for the number of the outer row; no query variable starts like it."""
    return "#" * (1 + sum(name.startswith("#") for name in frame.variables))


def _outer_rows(frame: Frame, block: p.Plan) -> Frame:
    """Return the variables of the outer rows that a block uses."""
    seen = set(_find_outer_variables(block))
    held = {name: at for name, at in frame.variables.items() if name in seen}
    return Frame(frame.length, held)


def _find_outer_variables(plan: p.Plan) -> Iterator[str]:
    if isinstance(plan, p.Outer):
        yield from plan.variables
    for role, below in p.inputs(plan):
        if role != "block":  # a block inside sees more: what this one binds
            yield from _find_outer_variables(below)
