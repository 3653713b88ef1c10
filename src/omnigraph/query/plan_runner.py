"""Run a logical plan: rows in flight for the matches, then result columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
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
from omnigraph.query.aggregate import aggregate_rows, empty_result_name
from omnigraph.query.context import QueryContext
from omnigraph.query.expressions.evaluate import evaluate_term
from omnigraph.query.frame import Frame, Positions
from omnigraph.query.group_and_sort import SortKey, encode_values, group_rows, make_sort_keys, sort_rows
from omnigraph.query.interrupt import run_in_worker
from omnigraph.query.joins import anti_join, cross_join, optional_join, row_number_name
from omnigraph.query.match import Matcher, WantedVariables
from omnigraph.query.pattern import Pattern, find_pattern, find_tables
from omnigraph.query.rank_rows import fuse_rankings, rank_by_search, ranked_variable


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


class PlanRunner:
    """Runs plans of one query; `outer` are the rows around a nested block."""

    def __init__(self, context: QueryContext, outer: Frame | None = None) -> None:
        self._context = context
        self._facts = context.facts
        self._outer = outer

    # --- result columns ----------------------------------------------------------------------------

    def columns(self, plan: p.Plan, top: int | None = None) -> Columns:
        """Return the result of a whole plan, or its first `top` rows."""
        match plan:
            case p.Limit():
                return self._run_limit(plan)
            case p.Project():
                return self._run_project(plan, top)
            case p.Aggregate():
                return self._run_aggregate(plan)
            case p.Distinct(input=below):
                return self._run_distinct(below)
            case p.Sort():
                return self._run_sort(plan, top)
        raise InternalError(f"a {type(plan).__name__} gives no result columns")

    def _run_limit(self, plan: p.Limit) -> Columns:
        top, skipped = self._limit_range(plan)
        found = self.columns(plan.input, top)
        end = found.length if top is None else min(top, found.length)
        if skipped == 0 and end == found.length:
            return found
        return found.take(np.arange(min(skipped, end), end))

    def _limit_range(self, plan: p.Limit) -> tuple[int | None, int]:
        """Return the end row of a result, and how many of its first rows are skipped."""
        limit, skipped = (self._context.request.count(given) for given in (plan.limit, plan.offset))
        return (None if limit is None else limit + (skipped or 0)), skipped or 0

    def batches(self, plan: p.Plan, size: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the result of a whole plan in batches; the last walk and the fetching of properties run batch
        by batch. Without a size, batches are as large as they come and the caller collects them.
        """
        project = plan.input if isinstance(plan, p.Limit) else plan
        if not isinstance(project, p.Project):
            yield from self.columns(plan).batches(size)
            return
        end, skipped = self._limit_range(plan) if isinstance(plan, p.Limit) else (None, 0)
        met = 0
        for frame in self._parts_to_return(project, end, collected=size is None):
            here = frame.slice(max(0, skipped - met), None if end is None else max(0, end - met))
            met += frame.length
            for start in range(0, max(1, here.length), size or max(1, here.length)):
                piece = here if size is None else here.slice(start, start + size)
                yield from self._fetch_batches(project, piece, streaming=size is not None)
            if end is not None and met >= end:
                return

    def _run_project(self, plan: p.Project, top: int | None) -> Columns:
        frame = self._rows_to_return(plan, top)
        with self._context.request.step("Project", lambda: _show_columns(plan.columns)) as step:
            step.rows = frame.length
            return self._project_values(plan, frame)

    def _fetch_batches(self, plan: p.Project, frame: Frame, *, streaming: bool) -> Iterator[pa.RecordBatch]:
        """Yield the columns of rows, in ranges of rows where their texts are large."""
        with self._context.request.step("Project", lambda: _show_columns(plan.columns)) as step:
            step.rows = frame.length
            for start, stop in self._context.split_rows(frame, (each.term for each in plan.columns)):
                self._context.request.check()
                yield from self._project_values(plan, frame.slice(start, stop), streaming=streaming).batches()

    def _project_values(self, plan: p.Project, frame: Frame, *, streaming: bool = False) -> Columns:
        schema = self._facts.get(result_schema, plan)

        def fetched() -> Columns:
            scope = self._context.scope(frame, streaming=streaming)
            return _make_columns(
                schema, [evaluate_term(column.term, scope) for column in plan.columns], frame.length
            )

        return run_in_worker(frame.length, fetched)

    def _rows_to_return(self, plan: p.Project, top: int | None) -> Frame:
        """Return the rows of a projection, in their order."""
        if isinstance(plan.input, p.Order):
            return self._run_order(plan.input, top)
        return self.rows(plan.input, self._facts.get(_returned_variables, plan)).slice(0, top)

    def _parts_to_return(self, plan: p.Project, top: int | None, *, collected: bool) -> Iterator[Frame]:
        """Yield the same rows in parts, at least one."""
        if isinstance(plan.input, p.Scan | p.Expand | p.Filter):
            pattern = self._facts.get(find_pattern, plan.input)
            matcher, base = self._make_matcher(pattern, self._facts.get(_returned_variables, plan))
            return matcher.parts(base, collected=collected)
        return iter([self._rows_to_return(plan, top)])

    def _run_aggregate(self, plan: p.Aggregate) -> Columns:
        frame = self.rows(plan.input, self._facts.get(_aggregate_variables, plan))
        with self._context.request.step("Aggregate", lambda: _show_columns(plan.columns)) as step:
            arrays = run_in_worker(frame.length, lambda: aggregate_rows(self._context, frame, plan))
            step.rows = len(arrays[0])
        nothing = not plan.keys and not plan.having and frame.length == 0
        schema = self._facts.get(empty_result_schema if nothing else result_schema, plan)
        return _make_columns(schema, arrays, len(arrays[0]))

    def _run_distinct(self, plan: p.Plan) -> Columns:
        found = self._distinct_input(plan)
        with self._context.request.step("Distinct") as step:
            kept = run_in_worker(found.length, lambda: _drop_duplicates(found))
            step.rows = kept.length
        return kept

    def _distinct_input(self, plan: p.Plan) -> Columns:
        if not isinstance(plan, p.Project) or isinstance(plan.input, p.Order):
            return self.columns(plan)
        # How often a row occurs does not matter, so variables that are not returned can be dropped.
        return self._project_values(plan, self.rows(plan.input, self._facts.get(_distinct_variables, plan)))

    def _run_sort(self, plan: p.Sort, top: int | None) -> Columns:
        found = self.columns(plan.input)
        with self._context.request.step("Sort", lambda: _show_keys(plan.keys)) as step:
            ordered = run_in_worker(found.length, lambda: _sort_columns(found, plan.keys, top))
            step.rows = ordered.length
        return ordered

    # --- rows in flight ----------------------------------------------------------------------------

    def rows(self, plan: p.Plan, wanted: WantedVariables | None = None) -> Frame:
        """Return the rows a plan matches; `wanted` limits their variables and allows weights."""
        match plan:
            case p.Scan() | p.Expand() | p.Filter():
                return self._match_pattern(self._facts.get(find_pattern, plan), wanted)
            case p.Outer():
                assert self._outer is not None, "a block is run from the rows around it"
                return self._outer
            case p.Cross():
                return self._run_cross(plan, (), wanted)
            case p.AntiJoin():
                return self._run_anti_join(plan)
            case p.OptionalJoin():
                return self._run_optional_join(plan)
            case p.Search():
                return self._run_search(plan)
            case p.Fuse():
                return self._run_fuse(plan)
            case p.Order():
                return self._run_order(plan, None)
        raise InternalError(f"a {type(plan).__name__} gives no rows in flight")

    def _match_pattern(self, pattern: Pattern, wanted: WantedVariables | None) -> Frame:
        matcher, base = self._make_matcher(pattern, wanted)
        return matcher.run(base)

    def _make_matcher(self, pattern: Pattern, wanted: WantedVariables | None) -> tuple[Matcher, Frame | None]:
        """Return the matcher of a pattern and the rows it starts from; None when it starts with a scan."""
        if isinstance(pattern.base, p.Scan):
            return Matcher(self._context, pattern, wanted), None
        if isinstance(pattern.base, p.Cross):
            here = find_tables(pattern.base).keys() | (self._outer.variables.keys() if self._outer else set())
            early = tuple(test for test in pattern.tests if variables(test) <= here)
            base = self._run_cross(pattern.base, early, None)
            pattern = replace(pattern, tests=tuple(test for test in pattern.tests if test not in early))
        else:
            base = self.rows(pattern.base)
        return Matcher(self._context, pattern, wanted), base

    def _run_cross(
        self, plan: p.Cross, tests: tuple[Predicate, ...], wanted: WantedVariables | None
    ) -> Frame:
        left, right = self.rows(plan.left, wanted), self.rows(plan.right, wanted)
        if wanted is not None and wanted.counted:
            left, right = left.collapse(wanted.variables), right.collapse(wanted.variables)
        with self._context.request.step("Cross") as step:
            pairs = left.length * right.length
            found = run_in_worker(pairs, lambda: cross_join(self._context, left, right, tests))
            step.rows = found.length
        return found

    def _run_anti_join(self, plan: p.AntiJoin) -> Frame:
        frame = self.rows(plan.input)
        with self._context.request.step("AntiJoin") as step:
            mark = row_number_name(frame)
            solved = partial(self._solve_block, plan.block, mark=mark)
            found = run_in_worker(frame.length, lambda: anti_join(frame, plan.block, solved))
            step.rows = found.length
        return found

    def _run_optional_join(self, plan: p.OptionalJoin) -> Frame:
        frame = self.rows(plan.input)
        with self._context.request.step("OptionalJoin") as step:
            solved = partial(self._solve_block, plan.block)
            found = run_in_worker(frame.length, lambda: optional_join(frame, plan.block, plan.adds, solved))
            step.rows = found.length
        return found

    def _solve_block(self, block: p.Plan, outer: Frame, mark: str | None = None) -> Frame:
        """Return the solutions of a block; with a mark, only the numbers of the rows that have some."""
        inside = PlanRunner(self._context.enter_block(self._facts.get(find_tables, block)), outer)
        return inside.rows(block, None if mark is None else WantedVariables(frozenset([mark])))

    def _run_search(self, plan: p.Search, top: int | None = None) -> Frame:
        """Rank rows by a search; a text ranking keeps all matches unless only `top` follows."""
        frame = self.rows(plan.input)
        with self._context.request.step("Search", lambda: show_term(plan.by)) as step:
            best = self._best_count(plan) if isinstance(plan.by, Distance) else top
            size = frame.length + self._context.rows(ranked_variable(plan.by)).count
            found = run_in_worker(size, lambda: rank_by_search(self._context, frame, plan.by, best))
            step.rows, step.how = found.length, self._context.scores.how
        return found

    def _run_fuse(self, plan: p.Fuse) -> Frame:
        first, second = self.rows(plan.first), self.rows(plan.second)
        with self._context.request.step("Fuse", lambda: show_term(plan.by)) as step:
            size = first.length + second.length
            found = run_in_worker(
                size, lambda: fuse_rankings(self._context, first, second, plan.by, self._best_count(plan))
            )
            step.rows = found.length
        return found

    def _best_count(self, plan: p.Search | p.Fuse) -> int | None:
        """Return how many of the best rows to keep, including those the offset skips."""
        limit = self._context.request.count(plan.limit)
        return None if limit is None else limit + (self._context.request.count(plan.offset) or 0)

    def _run_order(self, plan: p.Order, top: int | None) -> Frame:
        below = plan.input
        frame = self._run_search(below, top) if isinstance(below, p.Search) else self.rows(below)
        with self._context.request.step("Order", lambda: _show_keys(plan.keys)) as step:
            ordered = run_in_worker(frame.length, lambda: self._sort_frame(frame, plan, top))
            step.rows = ordered.length
        return ordered

    def _sort_frame(self, frame: Frame, plan: p.Order, top: int | None) -> Frame:
        keys = self._sort_keys(frame, plan.keys)
        ties = partial(self._tie_breakers, frame, plan.ties)
        return frame.take(sort_rows(keys, frame.length, ties, top))

    def _sort_keys(self, frame: Frame, keys: tuple[p.Key, ...]) -> list[SortKey]:
        if isinstance(keys[0].term, Distance | Relevance | Fusion):
            assert frame.ranks is not None, "ranked rows know their place"
            return [frame.ranks]
        scope = self._context.scope(frame)
        return [
            found
            for key in keys
            for found in self._text_sort_keys(frame, key)
            or make_sort_keys(evaluate_term(key.term, scope), key.descending)
        ]

    def _text_sort_keys(self, frame: Frame, key: p.Key) -> list[SortKey]:
        """Return the sort keys of a text, computed once per node where rows repeat nodes; else none."""
        term = key.term
        if not isinstance(term, Prop) or not term.type.is_text:
            return []
        rows, positions = self._context.rows(term.var), frame.variables[term.var]
        if frame.length <= rows.count or (positions < 0).any():
            return []
        return [found[positions] for found in make_sort_keys(rows.column(term.name), key.descending)]

    def _tie_breakers(self, frame: Frame, ties: tuple[str, ...], rows: Positions) -> list[pa.Array]:
        """Return the values that order equal rows: ids, as numbers where there are many."""
        found = {var: frame.variables[var][rows] for var in ties}
        return [self._context.id_order(var, positions) for var, positions in found.items()]


def result_schema(plan: p.Plan) -> pa.Schema:
    """Return the schema of a plan's result."""
    return pa.schema([pa.field(each.name, arrow_type(each.term.type)) for each in output_columns(plan)])


def empty_result_schema(plan: p.Aggregate) -> pa.Schema:
    """Return the schema of the single row that an aggregate over no rows gives."""
    return pa.schema([pa.field(empty_result_name(each), arrow_type(each.term.type)) for each in plan.columns])


def output_columns(plan: p.Plan) -> tuple[p.Output, ...]:
    """Return the result columns of a plan."""
    while not isinstance(plan, p.Project | p.Aggregate):
        (_, plan), *_ = p.inputs(plan)
    return plan.columns


def _returned_variables(plan: p.Project) -> WantedVariables:
    """Return the variables a projection reads, with every row."""
    return WantedVariables(_find_variables(column.term for column in plan.columns), counted=False)


def _distinct_variables(plan: p.Project) -> WantedVariables:
    """Return the variables a distinct projection reads; repeated rows may be merged."""
    return WantedVariables(_find_variables(column.term for column in plan.columns))


def _aggregate_variables(plan: p.Aggregate) -> WantedVariables:
    """Return the variables an aggregation reads; a node that is only counted is not one of them."""
    looked_at = [total.argument for total in plan.totals if not _counts_rows(total)]
    return WantedVariables(_find_variables((*plan.keys, *looked_at)))


def _find_variables(terms: Iterable[Term]) -> frozenset[str]:
    return frozenset(var for term in terms for var in variables(term))


def _counts_rows(total: Total) -> bool:
    """Whether a total needs to know only how many rows there are."""
    argument = total.argument
    counts = total.fn == "count" and not total.distinct
    return counts and isinstance(argument, EntityId) and not argument.type.nullable


def _make_columns(schema: pa.Schema, found: list[pa.Array], length: int) -> Columns:
    arrays = [_cast_array(array, type_) for array, type_ in zip(found, schema.types, strict=True)]
    return Columns(schema, arrays, length)


def _cast_array(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    return array if array.type.equals(wanted) else array.cast(wanted)


def _find_column(found: Columns, term: Term) -> pa.Array:
    """Return the column that a sort key names; of several the last one."""
    assert isinstance(term, Column)
    names = found.schema.names
    return found.arrays[len(names) - 1 - names[::-1].index(term.name)]


def _drop_duplicates(found: Columns) -> Columns:
    kept = group_rows([encode_values(array) for array in found.arrays], found.length)
    return found if kept.count == found.length else found.take(kept.first)


def _sort_columns(found: Columns, by: tuple[p.Key, ...], top: int | None) -> Columns:
    keys = [key for each in by for key in make_sort_keys(_find_column(found, each.term), each.descending)]
    return found.take(sort_rows(keys, found.length, lambda rows: _take_all(found, rows), top))


def _take_all(found: Columns, rows: Positions) -> list[pa.Array]:
    index = pa.array(rows)
    return [array.take(index) for array in found.arrays]


def _show_columns(columns: tuple[p.Output, ...]) -> str:
    return ", ".join(column.name for column in columns)


def _show_keys(keys: tuple[p.Key, ...]) -> str:
    return ", ".join(f"{show_term(key.term)}{' desc' if key.descending else ''}" for key in keys)
