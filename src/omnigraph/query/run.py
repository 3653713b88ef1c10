"""Run a logical plan: rows in flight for what matches, then result columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from omnigraph.errors import InternalError
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.explain import show_term
from omnigraph.lang.query.terms import (
    Column,
    Distance,
    EntityId,
    Fusion,
    Predicate,
    Prop,
    Relevance,
    Term,
    Total,
    variables,
)
from omnigraph.lang.values import arrow_type
from omnigraph.query.aggregate import aggregated, name_of_nothing
from omnigraph.query.blocks import crossed, mark_of, with_solutions, without_solution
from omnigraph.query.codes import codes_of, grouped
from omnigraph.query.expressions.evaluate import value
from omnigraph.query.frame import Frame, Positions
from omnigraph.query.interrupt import apart
from omnigraph.query.match import Matcher, Wanted
from omnigraph.query.order import SortKey, order_of, sort_keys
from omnigraph.query.pattern import Pattern, pattern_of, tables_of
from omnigraph.query.rank import fused, ranked_variable, searched
from omnigraph.query.reading import Reading


@dataclass(frozen=True, slots=True)
class Columns:
    """Result columns; names may repeat."""

    schema: pa.Schema
    arrays: list[pa.Array]
    length: int

    def take(self, rows: Positions) -> Columns:
        """These rows, in this order."""
        index = pa.array(rows)
        return replace(self, arrays=[array.take(index) for array in self.arrays], length=len(rows))

    def batches(self, size: int | None = None) -> Iterator[pa.RecordBatch]:
        """All rows, so many at a time."""
        if self.length:
            batch = pa.RecordBatch.from_arrays(self.arrays, schema=self.schema)
            step = self.length if size is None else size
            yield from (batch.slice(start, step) for start in range(0, self.length, step))


class Runner:
    """Runs plans of one query; `outer` are the rows around the block that is run."""

    def __init__(self, reading: Reading, outer: Frame | None = None) -> None:
        self._reading = reading
        self._outline = reading.outline
        self._outer = outer

    # --- result columns ----------------------------------------------------------------------------

    def columns(self, plan: p.Plan, top: int | None = None) -> Columns:
        """The result of a whole plan, or its first `top` rows."""
        match plan:
            case p.Limit():
                return self._limited(plan)
            case p.Project():
                return self._projected(plan, top)
            case p.Aggregate():
                return self._aggregated(plan)
            case p.Distinct(input=below):
                return self._distinct(below)
            case p.Sort():
                return self._sorted(plan, top)
        raise InternalError(f"a {type(plan).__name__} gives no result columns")

    def _limited(self, plan: p.Limit) -> Columns:
        top, skipped = self._cut(plan)
        found = self.columns(plan.input, top)
        end = found.length if top is None else min(top, found.length)
        if skipped == 0 and end == found.length:
            return found
        return found.take(np.arange(min(skipped, end), end))

    def _cut(self, plan: p.Limit) -> tuple[int | None, int]:
        """Behind which row a result ends, and how many of its first rows are skipped."""
        limit, skipped = (self._reading.request.count(given) for given in (plan.limit, plan.offset))
        return (None if limit is None else limit + (skipped or 0)), skipped or 0

    def batches(self, plan: p.Plan, size: int | None = None) -> Iterator[pa.RecordBatch]:
        """The result of a whole plan, piece by piece: rows of the last walk are made, and properties are
        fetched, for one piece at a time. Without a size, the pieces are as they come, to be piled up.
        """
        project = plan.input if isinstance(plan, p.Limit) else plan
        if not isinstance(project, p.Project):
            yield from self.columns(plan).batches(size)
            return
        end, skipped = self._cut(plan) if isinstance(plan, p.Limit) else (None, 0)
        met = 0
        for frame in self._projected_parts(project, end, piled=size is None):
            here = frame.slice(max(0, skipped - met), None if end is None else max(0, end - met))
            met += frame.length
            for start in range(0, max(1, here.length), size or max(1, here.length)):
                piece = here if size is None else here.slice(start, start + size)
                yield from self._fetched(project, piece, passing=size is not None)
            if end is not None and met >= end:
                return

    def _projected(self, plan: p.Project, top: int | None) -> Columns:
        frame = self._projected_rows(plan, top)
        with self._reading.request.step("Project", lambda: _shown(plan.columns)) as step:
            step.rows = frame.length
            return self._values(plan, frame)

    def _fetched(self, plan: p.Project, frame: Frame, *, passing: bool) -> Iterator[pa.RecordBatch]:
        """The columns of rows, some rows at a time where their texts come to very much."""
        with self._reading.request.step("Project", lambda: _shown(plan.columns)) as step:
            step.rows = frame.length
            for start, stop in self._reading.stretches(frame, (each.term for each in plan.columns)):
                self._reading.request.check()
                yield from self._values(plan, frame.slice(start, stop), passing=passing).batches()

    def _values(self, plan: p.Project, frame: Frame, *, passing: bool = False) -> Columns:
        schema = self._outline.of(schema_of, plan)

        def fetched() -> Columns:
            scope = self._reading.scope(frame, passing=passing)
            return _columns(schema, [value(column.term, scope) for column in plan.columns], frame.length)

        return apart(frame.length, fetched)

    def _projected_rows(self, plan: p.Project, top: int | None) -> Frame:
        """The rows to be returned, in their order."""
        if isinstance(plan.input, p.Order):
            return self._ordered(plan.input, top)
        return self.rows(plan.input, self._outline.of(_returned, plan)).slice(0, top)

    def _projected_parts(self, plan: p.Project, top: int | None, *, piled: bool) -> Iterator[Frame]:
        """The same rows in parts, at least one."""
        if isinstance(plan.input, p.Scan | p.Expand | p.Filter):
            pattern = self._outline.of(pattern_of, plan.input)
            matcher, base = self._matcher(pattern, self._outline.of(_returned, plan))
            return matcher.parts(base, piled=piled)
        return iter([self._projected_rows(plan, top)])

    def _aggregated(self, plan: p.Aggregate) -> Columns:
        frame = self.rows(plan.input, self._outline.of(_needed, plan))
        with self._reading.request.step("Aggregate", lambda: _shown(plan.columns)) as step:
            arrays = apart(frame.length, lambda: aggregated(self._reading, frame, plan))
            step.rows = len(arrays[0])
        nothing = not plan.keys and frame.length == 0
        schema = self._outline.of(schema_of_nothing if nothing else schema_of, plan)
        return _columns(schema, arrays, len(arrays[0]))

    def _distinct(self, plan: p.Plan) -> Columns:
        found = self._distinct_input(plan)
        with self._reading.request.step("Distinct") as step:
            kept = apart(found.length, lambda: _distinct_rows(found))
            step.rows = kept.length
        return kept

    def _distinct_input(self, plan: p.Plan) -> Columns:
        if not isinstance(plan, p.Project) or isinstance(plan.input, p.Order):
            return self.columns(plan)
        # How often a row occurs does not matter, so what is not returned need not be written out.
        return self._values(plan, self.rows(plan.input, self._outline.of(_told_apart, plan)))

    def _sorted(self, plan: p.Sort, top: int | None) -> Columns:
        found = self.columns(plan.input)
        with self._reading.request.step("Sort", lambda: _keys_shown(plan.keys)) as step:
            ordered = apart(found.length, lambda: _sorted_rows(found, plan.keys, top))
            step.rows = ordered.length
        return ordered

    # --- rows in flight ----------------------------------------------------------------------------

    def rows(self, plan: p.Plan, wanted: Wanted | None = None) -> Frame:
        """The rows a plan matches; with `wanted`, only these variables, and weights instead of repetition."""
        match plan:
            case p.Scan() | p.Expand() | p.Filter():
                return self._matched(self._outline.of(pattern_of, plan), wanted)
            case p.Outer():
                assert self._outer is not None, "a block is run from the rows around it"
                return self._outer
            case p.Cross():
                return self._crossed(plan, (), wanted)
            case p.AntiJoin():
                return self._without(plan)
            case p.OptionalJoin():
                return self._optional(plan)
            case p.Search():
                return self._searched(plan)
            case p.Fuse():
                return self._fused(plan)
            case p.Order():
                return self._ordered(plan, None)
        raise InternalError(f"a {type(plan).__name__} gives no rows in flight")

    def _matched(self, pattern: Pattern, wanted: Wanted | None) -> Frame:
        matcher, base = self._matcher(pattern, wanted)
        return matcher.run(base)

    def _matcher(self, pattern: Pattern, wanted: Wanted | None) -> tuple[Matcher, Frame | None]:
        """What matches a pattern, and the rows it begins with, if these come from elsewhere."""
        if isinstance(pattern.base, p.Scan):
            return Matcher(self._reading, pattern, wanted), None
        if isinstance(pattern.base, p.Cross):
            here = tables_of(pattern.base).keys() | (self._outer.variables.keys() if self._outer else set())
            early = tuple(test for test in pattern.tests if variables(test) <= here)
            base = self._crossed(pattern.base, early, None)
            pattern = replace(pattern, tests=tuple(test for test in pattern.tests if test not in early))
        else:
            base = self.rows(pattern.base)
        return Matcher(self._reading, pattern, wanted), base

    def _crossed(self, plan: p.Cross, tests: tuple[Predicate, ...], wanted: Wanted | None) -> Frame:
        left, right = self.rows(plan.left, wanted), self.rows(plan.right, wanted)
        if wanted is not None and wanted.counted:
            left, right = left.summed(wanted.variables), right.summed(wanted.variables)
        with self._reading.request.step("Cross") as step:
            pairs = left.length * right.length
            found = apart(pairs, lambda: crossed(self._reading, left, right, tests))
            step.rows = found.length
        return found

    def _without(self, plan: p.AntiJoin) -> Frame:
        frame = self.rows(plan.input)
        with self._reading.request.step("AntiJoin") as step:
            mark = mark_of(frame)
            solved = partial(self._solved, plan.block, mark=mark)
            found = apart(frame.length, lambda: without_solution(frame, plan.block, solved))
            step.rows = found.length
        return found

    def _optional(self, plan: p.OptionalJoin) -> Frame:
        frame = self.rows(plan.input)
        with self._reading.request.step("OptionalJoin") as step:
            solved = partial(self._solved, plan.block)
            found = apart(frame.length, lambda: with_solutions(frame, plan.block, plan.adds, solved))
            step.rows = found.length
        return found

    def _solved(self, block: p.Plan, outer: Frame, mark: str | None = None) -> Frame:
        """The solutions of a block; with a mark, only which rows have some."""
        inside = Runner(self._reading.inside(self._outline.of(tables_of, block)), outer)
        return inside.rows(block, None if mark is None else Wanted(frozenset([mark])))

    def _searched(self, plan: p.Search, top: int | None = None) -> Frame:
        """The ranked rows; of a text ranking all matches, unless nothing comes after it but `top`."""
        frame = self.rows(plan.input)
        with self._reading.request.step("Search", lambda: show_term(plan.by)) as step:
            best = self._best(plan) if isinstance(plan.by, Distance) else top
            size = frame.length + self._reading.rows(ranked_variable(plan.by)).count
            found = apart(size, lambda: searched(self._reading, frame, plan.by, best))
            step.rows, step.how = found.length, self._reading.scores.how
        return found

    def _fused(self, plan: p.Fuse) -> Frame:
        first, second = self.rows(plan.first), self.rows(plan.second)
        with self._reading.request.step("Fuse", lambda: show_term(plan.by)) as step:
            size = first.length + second.length
            found = apart(size, lambda: fused(self._reading, first, second, plan.by, self._best(plan)))
            step.rows = found.length
        return found

    def _best(self, plan: p.Search | p.Fuse) -> int | None:
        """How many of the best are kept: those that are skipped count too."""
        limit = self._reading.request.count(plan.limit)
        return None if limit is None else limit + (self._reading.request.count(plan.offset) or 0)

    def _ordered(self, plan: p.Order, top: int | None) -> Frame:
        below = plan.input
        frame = self._searched(below, top) if isinstance(below, p.Search) else self.rows(below)
        with self._reading.request.step("Order", lambda: _keys_shown(plan.keys)) as step:
            ordered = apart(frame.length, lambda: self._in_order(frame, plan, top))
            step.rows = ordered.length
        return ordered

    def _in_order(self, frame: Frame, plan: p.Order, top: int | None) -> Frame:
        keys = self._sort_keys(frame, plan.keys)
        ties = partial(self._ids, frame, plan.ties)
        return frame.take(order_of(keys, frame.length, ties, top))

    def _sort_keys(self, frame: Frame, keys: tuple[p.Key, ...]) -> list[SortKey]:
        if isinstance(keys[0].term, Distance | Relevance | Fusion):
            assert frame.ranks is not None, "ranked rows know their place"
            return [frame.ranks]
        scope = self._reading.scope(frame)
        return [
            found
            for key in keys
            for found in self._by_position(frame, key) or sort_keys(value(key.term, scope), key.descending)
        ]

    def _by_position(self, frame: Frame, key: p.Key) -> list[SortKey]:
        """Keys of a text, found once for each node where it is in several rows; else none."""
        term = key.term
        if not isinstance(term, Prop) or not term.type.is_text:
            return []
        rows, positions = self._reading.rows(term.var), frame.variables[term.var]
        if frame.length <= rows.count or (positions < 0).any():
            return []
        return [found[positions] for found in sort_keys(rows.column(term.name), key.descending)]

    def _ids(self, frame: Frame, ties: tuple[str, ...], rows: Positions) -> list[pa.Array]:
        """What decides between equal rows: the order of ids, as numbers where there are many."""
        found = {var: frame.variables[var][rows] for var in ties}
        return [self._reading.id_order(var, positions) for var, positions in found.items()]


def schema_of(plan: p.Plan) -> pa.Schema:
    """The schema of a plan's result."""
    return pa.schema([pa.field(each.name, arrow_type(each.term.type)) for each in outputs_of(plan)])


def schema_of_nothing(plan: p.Aggregate) -> pa.Schema:
    """The schema of the one row that says there is nothing."""
    return pa.schema([pa.field(name_of_nothing(each), arrow_type(each.term.type)) for each in plan.columns])


def outputs_of(plan: p.Plan) -> tuple[p.Output, ...]:
    """The result columns of a plan."""
    while not isinstance(plan, p.Project | p.Aggregate):
        (_, plan), *_ = p.inputs(plan)
    return plan.columns


def _returned(plan: p.Project) -> Wanted:
    """What a projection looks at, in every row."""
    return Wanted(_variables(column.term for column in plan.columns), counted=False)


def _told_apart(plan: p.Project) -> Wanted:
    """The same where it does not matter how often a row occurs."""
    return Wanted(_variables(column.term for column in plan.columns))


def _needed(plan: p.Aggregate) -> Wanted:
    """The variables an aggregation looks at; a node that is only counted is not one of them."""
    looked_at = [total.argument for total in plan.totals if not _counts_rows(total)]
    return Wanted(_variables((*plan.keys, *looked_at)))


def _variables(terms: Iterable[Term]) -> frozenset[str]:
    return frozenset(var for term in terms for var in variables(term))


def _counts_rows(total: Total) -> bool:
    """Whether a total needs to know only how many rows there are."""
    argument = total.argument
    counts = total.fn == "count" and not total.distinct
    return counts and isinstance(argument, EntityId) and not argument.type.nullable


def _columns(schema: pa.Schema, found: list[pa.Array], length: int) -> Columns:
    arrays = [_as(array, type_) for array, type_ in zip(found, schema.types, strict=True)]
    return Columns(schema, arrays, length)


def _as(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    return array if array.type.equals(wanted) else array.cast(wanted)


def _named(found: Columns, term: Term) -> pa.Array:
    """The column that a sort key names; of several the last one."""
    assert isinstance(term, Column)
    names = found.schema.names
    return found.arrays[len(names) - 1 - names[::-1].index(term.name)]


def _distinct_rows(found: Columns) -> Columns:
    kept = grouped([codes_of(array) for array in found.arrays], found.length)
    return found if kept.count == found.length else found.take(kept.first)


def _sorted_rows(found: Columns, by: tuple[p.Key, ...], top: int | None) -> Columns:
    keys = [key for each in by for key in sort_keys(_named(found, each.term), each.descending)]
    return found.take(order_of(keys, found.length, lambda rows: _all_taken(found, rows), top))


def _all_taken(found: Columns, rows: Positions) -> list[pa.Array]:
    index = pa.array(rows)
    return [array.take(index) for array in found.arrays]


def _shown(columns: tuple[p.Output, ...]) -> str:
    return ", ".join(column.name for column in columns)


def _keys_shown(keys: tuple[p.Key, ...]) -> str:
    return ", ".join(f"{show_term(key.term)}{' desc' if key.descending else ''}" for key in keys)
