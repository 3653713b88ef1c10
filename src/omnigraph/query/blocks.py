"""Rows met with other rows: every pair, blocks that must have no solution, blocks that may have one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from omnigraph.lang.query import plan as p
from omnigraph.lang.query.terms import Compare, Predicate, Term, variables
from omnigraph.query.codes import codes_of
from omnigraph.query.expressions.evaluate import value
from omnigraph.query.frame import NO_ROW, Frame, Positions, concatenated
from omnigraph.query.reading import Reading
from omnigraph.query.topology.spread import spread

_PAIRS_AT_ONCE = 4_000_000

Solve = Callable[[Frame], Frame]
"""Runs a block from the rows around it."""


# --- pairs ---------------------------------------------------------------------------------------


def crossed(reading: Reading, left: Frame, right: Frame, tests: tuple[Predicate, ...]) -> Frame:
    """Every row of one side with every row of the other that passes the tests."""
    width = len(left.variables) + len(right.variables)
    equality = next((test for test in tests if _joins(test, left, right)), None)
    if equality is not None:
        rest = tuple(test for test in tests if test is not equality)
        return reading.passing(_paired(left, right, *_equal_pairs(reading, equality, left, right)), rest)
    if not tests:
        reading.request.check(left.length * right.length, width)
    parts, kept = [], 0
    for chunk in _chunks(left, right.length):
        pairs = _paired(
            left, right, np.repeat(chunk, right.length), np.tile(np.arange(right.length), len(chunk))
        )
        parts.append(reading.passing(pairs, tests))
        kept += parts[-1].length
        reading.request.check(kept, width)
    return concatenated(parts)


def _chunks(left: Frame, width: int) -> Iterator[Positions]:
    """Runs of rows of the left side, so many that their pairs fit in memory; at least one run."""
    step = max(1, _PAIRS_AT_ONCE // max(1, width))
    for start in range(0, max(1, left.length), step):
        yield np.arange(start, min(start + step, left.length))


def _paired(left: Frame, right: Frame, lefts: Positions, rights: Positions) -> Frame:
    one, other = left.take(lefts), right.take(rights)
    paired = Frame(
        len(lefts),
        {**one.variables, **other.variables},
        {**one.scores, **other.scores},
        other.ranks if one.ranks is None else one.ranks,
        one.weights,
    )
    return paired if other.weights is None else paired.weighted(other.weights)


def _joins(test: Predicate, left: Frame, right: Frame) -> bool:
    """Whether a test demands that a value of one side equals one of the other, of the same type."""
    if not isinstance(test, Compare) or test.op != "=" or test.left.type.scalar is not test.right.type.scalar:
        return False
    sides = variables(test.left), variables(test.right)
    return all(sides) and (
        (sides[0] <= left.variables.keys() and sides[1] <= right.variables.keys())
        or (sides[1] <= left.variables.keys() and sides[0] <= right.variables.keys())
    )


def _equal_pairs(reading: Reading, test: Predicate, left: Frame, right: Frame) -> tuple[Positions, Positions]:
    assert isinstance(test, Compare)
    terms = (test.left, test.right)
    ours, theirs = terms if variables(test.left) <= left.variables.keys() else (terms[1], terms[0])
    one, other = _values(reading, ours, left), _values(reading, theirs, right)
    codes = codes_of(pa.concat_arrays([one, other]))
    lefts, rights = codes[: left.length], codes[left.length :]
    order = np.argsort(rights, kind="stable")
    begin = np.searchsorted(rights[order], lefts, "left")
    counts = np.where(lefts >= 0, np.searchsorted(rights[order], lefts, "right") - begin, 0)
    reading.request.check(int(counts.sum()), len(left.variables) + len(right.variables))
    rows, places = spread(begin, counts)
    return rows, order[places]


def _values(reading: Reading, term: Term, frame: Frame) -> pa.Array:
    return value(term, reading.scope(frame))


# --- blocks --------------------------------------------------------------------------------------


def without_solution(frame: Frame, block: p.Plan, solve: Solve) -> Frame:
    """The rows for which a block has no solution."""
    mark = mark_of(frame)
    solved = solve(_around(frame, block).binding(mark, np.arange(frame.length)))
    keep = np.ones(frame.length, dtype=np.bool_)
    keep[solved.variables[mark]] = False
    return frame.filter(keep)


def with_solutions(frame: Frame, block: p.Plan, adds: tuple[str, ...], solve: Solve) -> Frame:
    """The rows with each solution of a block, or with nothing bound where it has none."""
    mark = mark_of(frame)
    solved = solve(_around(frame, block).binding(mark, np.arange(frame.length)))
    rows = solved.variables[mark]
    matched = frame.take(rows)
    for var in adds:
        matched = matched.binding(var, solved.variables[var])
    alone = np.ones(frame.length, dtype=np.bool_)
    alone[rows] = False
    unmatched = frame.take(np.flatnonzero(alone))
    for var in adds:
        unmatched = unmatched.binding(var, np.full(unmatched.length, NO_ROW, dtype=np.int64))
    return concatenated([matched, unmatched])


def mark_of(frame: Frame) -> str:
    """A name for the number of the outer row; no variable of a query begins like it."""
    return "#" * (1 + sum(name.startswith("#") for name in frame.variables))


def _around(frame: Frame, block: p.Plan) -> Frame:
    """What a block sees of the row around it."""
    seen = set(_outer(block))
    held = {name: at for name, at in frame.variables.items() if name in seen}
    return Frame(frame.length, held)


def _outer(plan: p.Plan) -> Iterator[str]:
    if isinstance(plan, p.Outer):
        yield from plan.variables
    for _, below in p.inputs(plan):
        yield from _outer(below)
