"""Matches the pattern of a plan: bindings of variables as DataFrames, joined by ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import InternalError
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.terms import Compare, Distance, Part, Predicate, ShortestPath, variables
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.values import arrow_type
from omnigraph.pipeline.fan_out import Work
from omnigraph.pipeline.query.binding_frame import RANK, BindingFrame, ColumnNames, Held, Slot, Slots
from omnigraph.pipeline.query.fusion import (
    FIRST_PLACE,
    FUSED_RANK,
    drop_scores,
    fuse_rankings,
    number_places,
    rank_rows,
)
from omnigraph.pipeline.query.join_strategy import JoinStrategy
from omnigraph.pipeline.query.needs import outer_variables, searches_in, variables_of
from omnigraph.pipeline.query.scope import RequestValues
from omnigraph.pipeline.query.searches import SearchAnswers, answer_searches
from omnigraph.pipeline.query.tables import TableRead, Tables, edge_key, node_key
from omnigraph.pipeline.query.task_frame import TaskFrame
from omnigraph.pipeline.query.tasks import FAR, NEAR, FilterRows, MadeColumn, MakeColumns, RankRows
from omnigraph.pipeline.query.walk import EDGE, EDGES, NODES, REACHED, START, walk_edges, walk_paths
from omnigraph.query.pattern import find_tables
from omnigraph.query.rank_rows import ranked_variable
from omnigraph.query.request import Request

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SCORE = pa.float64()
_IDS = pa.list_(pa.string())
_HIDDEN = "#edge"
"""Stands for the edges of a path; no variable of a query is called like it."""
_AROUND = "around_"


@dataclass(frozen=True, slots=True)
class QueryContext:
    """What every step of a query on Spark uses."""

    spark: SparkSession
    request: Request
    catalog: Catalog
    tables: Tables
    answers: SearchAnswers
    names: ColumnNames
    joins: JoinStrategy
    paths: frozenset[ShortestPath] = frozenset()
    """Those of which something is asked."""

    def run_tasks(self, rows: BindingFrame, work: Work, shape: pa.Schema) -> TaskFrame:
        """Run work on rows in tasks."""
        if isinstance(rows.rows, TaskFrame):
            return rows.rows.then(work, shape)
        return TaskFrame(self.spark, rows.rows, work, shape)

    def task_values(
        self, parts: Iterable[Part], keys: Mapping[str, str], but: Slots | None = None
    ) -> RequestValues:
        """Return the values that tasks need for expressions; searches in `but` already have a column."""
        asked = [term for term in searches_in(parts) if but is None or term not in but]
        found = answer_searches(self.answers, asked, keys)
        return RequestValues(dict(self.request.parameters), self.request.now, found)


class PatternMatcher:
    """Turns plans of one query into bindings; `outer` are the rows around the block that is matched."""

    def __init__(
        self, query: QueryContext, keys: Mapping[str, str], outer: BindingFrame | None = None
    ) -> None:
        self._query = query
        self.keys = keys
        """The table of each variable."""
        self._outer = outer

    def rows(self, plan: p.Plan) -> BindingFrame:
        """The rows a plan matches."""
        match plan:
            case p.Scan(var=var, where=tests):
                return self._query.tables.nodes(self._wish(var, self.keys[var], tests))
            case p.Outer():
                assert self._outer is not None, "a block is run from the rows around it"
                return self._outer
            case p.Cross(left=left, right=right):
                return _crossed(self.rows(left), self.rows(right))
            case p.Filter():
                return self._filtered(plan)
            case p.Expand():
                return self._walked(plan, ())
            case p.AntiJoin():
                return self._without(plan)
            case p.OptionalJoin():
                return self._optional(plan)
            case p.Search():
                return self._searched(plan)
            case p.Fuse():
                return self._fused(plan)
        raise InternalError(f"a {type(plan).__name__} has no bindings")

    def _wish(self, var: str | None, key: str, tests: tuple[Predicate, ...]) -> TableRead:
        return TableRead(var, key, tests, self._query.task_values(tests, self.keys))

    # --- tests -------------------------------------------------------------------------------------

    def _filtered(self, plan: p.Filter) -> BindingFrame:
        below = plan.input
        if isinstance(below, p.Expand):
            own = () if below.closes else tuple(test for test in plan.where if _is_own(test, below))
            return self._tested(self._walked(below, own), _rest(plan.where, own))
        if isinstance(below, p.Cross):
            left, right = self.rows(below.left), self.rows(below.right)
            equal = tuple(test for test in plan.where if _joins(test, left, right))
            pairs = self._paired(left, right, equal) if equal else _crossed(left, right)
            return self._tested(pairs, _rest(plan.where, equal))
        return self._tested(self.rows(below), plan.where)

    def _tested(self, rows: BindingFrame, tests: tuple[Predicate, ...]) -> BindingFrame:
        if not tests:
            return rows
        work = FilterRows(tests, rows.slots, self._query.task_values(tests, self.keys, rows.slots))
        return rows.on(self._query.run_tasks(rows, work, _shape(rows)))

    def _paired(self, left: BindingFrame, right: BindingFrame, tests: tuple[Predicate, ...]) -> BindingFrame:
        """Rows of two sides where values of the one equal values of the other."""
        ours, theirs = [], []
        for test in tests:
            assert isinstance(test, Compare)
            swapped = not all(left.has(var) for var in variables(test.left))
            ours.append(test.right if swapped else test.left)
            theirs.append(test.left if swapped else test.right)
        one, other = self._keyed(left, ours, "ours"), self._keyed(right, theirs, "theirs")
        equal = [F.col(f"ours{at}") == F.col(f"theirs{at}") for at in range(len(tests))]
        met = self._query.joins.join(one, other, _all(equal))
        pairs = met.select(*left.columns, *right.columns)
        return _joined(pairs, left, right)

    def _keyed(self, rows: BindingFrame, terms: Sequence[Any], name: str) -> DataFrame:
        made = tuple(MadeColumn(f"{name}{at}", term, arrow_type(term.type)) for at, term in enumerate(terms))
        work = MakeColumns(
            made, rows.slots, self._query.task_values(terms, self.keys, rows.slots), tuple(rows.columns)
        )
        more = [pa.field(one.name, one.type) for one in made]
        return self._query.run_tasks(rows, work, _shape(rows, more)).frame

    # --- walks -------------------------------------------------------------------------------------

    def _walked(self, plan: p.Expand, tests: tuple[Predicate, ...]) -> BindingFrame:
        """Rows with what they reach; `tests` are those of the target or of the edge alone."""
        rows = self.rows(plan.input)
        edge = self._query.catalog.edges[plan.edge_type]
        between_types = edge.source != edge.target
        if plan.path in self._query.paths:
            steps = self._path_steps(rows, plan, plan.path, one_hop=between_types)
            return self._closed(rows, plan, steps) if plan.closes else self._step_on(rows, plan, steps, tests)
        of_edge = tuple(test for test in tests if variables(test) == {plan.edge_var})
        links = self._query.tables.links(
            self._wish(plan.edge_var, edge_key(plan.edge_type), of_edge), plan.direction
        )
        if between_types and plan.minimum > 1:
            links = links.on(links.frame.where(F.lit(False)))
        far = plan.maximum > 1 and not between_types
        steps = self._reached(rows, plan, links.frame) if far else links
        if plan.closes:
            return self._closed(rows, plan, steps)
        if plan.edge_var is None and not far:
            steps = links.on(self._query.joins.distinct(links.frame, NEAR))
        return self._step_on(rows, plan, steps, _rest(tests, of_edge), stored=not far)

    def _step_on(
        self,
        rows: BindingFrame,
        plan: p.Expand,
        steps: BindingFrame,
        tests: tuple[Predicate, ...],
        *,
        stored: bool = False,
    ) -> BindingFrame:
        """Rows with the nodes that steps lead to; `tests` are those of the target."""
        nodes = self._query.tables.nodes(self._wish(plan.target, node_key(plan.target_type), tests))
        join, added = self._query.joins.join, {**steps.slots, **nodes.slots}
        walked = join(rows.frame, steps.frame, F.col(rows.id(plan.source)) == F.col(NEAR), stored=stored)
        grown = join(walked, nodes.frame, F.col(FAR) == F.col(nodes.id(plan.target)), stored=True)
        kept = [*rows.columns, *(slot.column for slot in added.values())]
        return rows.on(grown.select(*kept), added)

    def _closed(self, rows: BindingFrame, plan: p.Expand, steps: BindingFrame) -> BindingFrame:
        """The rows whose two ends are linked; with a name for the edge, a row for each."""
        linked = (F.col(rows.id(plan.source)) == F.col(NEAR)) & (F.col(rows.id(plan.target)) == F.col(FAR))
        if plan.edge_var is None and not steps.slots:
            return rows.on(self._query.joins.join(rows.frame, steps.frame, linked, "left_semi"))
        pairs = self._query.joins.join(rows.frame, steps.frame, linked)
        return rows.on(pairs.drop(NEAR, FAR), steps.slots)

    def _reached(self, rows: BindingFrame, plan: p.Expand, links: DataFrame) -> BindingFrame:
        """Walks of several hops as steps."""
        sources, between = _sources(rows, plan), self._links_between(plan, links)
        found = walk_edges(self._query.joins, sources, between, plan.minimum, plan.maximum)
        return BindingFrame(found.select(F.col(START).alias(NEAR), F.col(REACHED).alias(FAR)), {})

    def _links_between(self, plan: p.Expand, links: DataFrame) -> DataFrame:
        """The links to nodes that exist."""
        there = self._query.tables.ids(node_key(plan.target_type), "there")
        return self._query.joins.join(links, there, F.col(FAR) == F.col("there"), "left_semi", stored=True)

    def _path_steps(
        self, rows: BindingFrame, plan: p.Expand, path: ShortestPath, *, one_hop: bool
    ) -> BindingFrame:
        """Shortest paths as steps, with the ids of their nodes and edges."""
        edges = self._query.tables.links(self._wish(_HIDDEN, edge_key(plan.edge_type), ()), plan.direction)
        # Of parallel edges the first by id.
        links = edges.frame.groupBy(NEAR, FAR).agg(F.min(edges.id(_HIDDEN)).alias(EDGE))
        forward = plan.source == path.start.var
        if one_hop:
            ends = (NEAR, FAR) if forward else (FAR, NEAR)
            found = links.select(NEAR, FAR, F.array(*ends).alias(NODES), F.array(EDGE).alias(EDGES))
        else:
            between = self._links_between(plan, links)
            walked = walk_paths(
                self._query.joins, _sources(rows, plan), between, plan.maximum, forward=forward
            )
            found = walked.select(F.col(START).alias(NEAR), F.col(REACHED).alias(FAR), NODES, EDGES)
        slots: dict[Held, Slot] = {
            (path, part): Slot(self._query.names.of((path, part)), _IDS) for part in (NODES, EDGES)
        }
        columns = [F.col(part).alias(slots[path, part].column) for part in (NODES, EDGES)]
        return BindingFrame(found.select(NEAR, FAR, *columns), slots)

    # --- blocks ------------------------------------------------------------------------------------

    def _without(self, plan: p.AntiJoin) -> BindingFrame:
        rows = self.rows(plan.input)
        solved, same = self._solved(rows, plan.block)
        some = solved.frame.select(*_around(rows, same)).distinct()
        return rows.on(self._query.joins.join(rows.frame, some, _same(rows, same), "left_anti"))

    def _optional(self, plan: p.OptionalJoin) -> BindingFrame:
        rows = self.rows(plan.input)
        solved, same = self._solved(rows, plan.block)
        added = {**solved.of(plan.adds), **solved.paths_besides(rows)}
        found = solved.frame.select(*_around(rows, same), *(slot.column for slot in added.values()))
        extended = self._query.joins.join(rows.frame, found, _same(rows, same), "left")
        return rows.on(extended.drop(*(_AROUND + rows.id(var) for var in same)), added)

    def _solved(self, rows: BindingFrame, block: p.Plan) -> tuple[BindingFrame, list[str]]:
        """Return the solutions of a block for each distinct row around it, and the variables of that row."""
        seen = sorted(outer_variables(block))
        used = variables_of(block)
        same = [var for var in seen if var in used] or seen
        held = rows.of(same)
        around = rows.frame.select(*(slot.column for slot in held.values()))
        outer = BindingFrame(around.dropDuplicates([rows.id(var) for var in same]), held)
        keys = {**self.keys, **find_tables(block)}
        return PatternMatcher(self._query, keys, outer).rows(block), same

    # --- rankings ----------------------------------------------------------------------------------

    def _searched(self, plan: p.Search) -> BindingFrame:
        rows = self.rows(plan.input)
        var = ranked_variable(plan.by)
        best = self._best(plan) if isinstance(plan.by, Distance) else None
        ranks, scores = self._query.answers.ranked(
            plan.by, self.keys[var], self._candidates(plan.input, var, rows), best
        )
        score = Slot(self._query.names.of(plan.by), _SCORE)
        work = RankRows(rows.id(var), ranks, RANK, (score.column, scores))
        more = [pa.field(RANK, pa.int64()), pa.field(score.column, _SCORE)]
        ranked = self._query.run_tasks(rows, work, _shape(rows, more))
        return replace(rows.on(ranked, {plan.by: score}), ranked=True)

    def _candidates(self, plan: p.Plan, var: str, rows: BindingFrame) -> pa.Array | None:
        """The ids of the nodes that are ranked; None is all of their type."""
        if isinstance(plan, p.Scan):
            return self._query.answers.passing(var, self.keys[var], plan.where)
        ids = rows.frame.select(rows.id(var)).distinct().toArrow()
        return ids.column(0).combine_chunks().cast(pa.string())

    def _best(self, plan: p.Search | p.Fuse) -> int | None:
        """How many of the best are kept: those that are skipped count too."""
        limit = self._query.request.count(plan.limit)
        return None if limit is None else limit + (self._query.request.count(plan.offset) or 0)

    def _fused(self, plan: p.Fuse) -> BindingFrame:
        first, second = (drop_scores(self.rows(arm)) for arm in (plan.first, plan.second))
        var = ranked_variable(plan.by.first)
        k = self._query.answers.fusion_constant(plan.by)
        joins = self._query.joins
        chosen = fuse_rankings(
            joins, number_places(first, var, "first"), number_places(second, var, "second"), k
        )
        best = self._best(plan)
        if best is not None:
            chosen = chosen.where(F.col(FUSED_RANK) < best)
        score = Slot(self._query.names.of(plan.by), _SCORE)
        parts = [
            rank_rows(joins, first, var, chosen, score.column),
            rank_rows(joins, second, var, chosen.where(F.col(FIRST_PLACE).isNull()), score.column),
        ]
        return replace(first.on(parts[0].unionByName(parts[1]), {plan.by: score}), ranked=True)


# --- joins ---------------------------------------------------------------------------------------


def _sources(rows: BindingFrame, plan: p.Expand) -> DataFrame:
    """The distinct nodes that a walk begins at."""
    source = F.col(rows.id(plan.source))
    return rows.frame.select(source).where(source.isNotNull()).distinct()


def _crossed(left: BindingFrame, right: BindingFrame) -> BindingFrame:
    return _joined(left.frame.crossJoin(right.frame), left, right)


def _joined(frame: DataFrame, left: BindingFrame, right: BindingFrame) -> BindingFrame:
    return BindingFrame(frame, {**left.slots, **right.slots}, left.ranked or right.ranked)


def _around(rows: BindingFrame, variables_around: Iterable[str]) -> list[Column]:
    """The ids of the rows around a block under names of their own."""
    return [F.col(rows.id(var)).alias(_AROUND + rows.id(var)) for var in variables_around]


def _same(rows: BindingFrame, variables_around: Iterable[str]) -> Column:
    """Whether a solution belongs to a row; what has no match there has none here either."""
    names = [rows.id(var) for var in variables_around]
    return _all([F.col(name).eqNullSafe(F.col(_AROUND + name)) for name in names])


def _all(conditions: Sequence[Column]) -> Column:
    found = conditions[0]
    for condition in conditions[1:]:
        found = found & condition
    return found


def _is_own(test: Predicate, walk: p.Expand) -> bool:
    """Whether a test is about the target or the edge of a walk alone."""
    return variables(test) in (frozenset({walk.target}), frozenset({walk.edge_var}))


def _rest(tests: tuple[Predicate, ...], done: tuple[Predicate, ...]) -> tuple[Predicate, ...]:
    return tuple(test for test in tests if test not in done)


def _joins(test: Predicate, left: BindingFrame, right: BindingFrame) -> bool:
    """Whether a test demands that a value of one side equals one of the other, of the same type."""
    if not isinstance(test, Compare) or test.op != "=" or test.left.type.scalar is not test.right.type.scalar:
        return False
    sides = variables(test.left), variables(test.right)
    if not all(sides):
        return False
    return any(
        all(map(one.has, sides[0])) and all(map(other.has, sides[1]))
        for one, other in ((left, right), (right, left))
    )


def _shape(rows: BindingFrame, more: Sequence[pa.Field] = ()) -> pa.Schema:
    """The columns of rows in flight, in the order of their DataFrame."""
    types = {slot.column: slot.type for slot in rows.slots.values()}
    if rows.ranked:
        types[RANK] = pa.int64()
    fields = [pa.field(name, types[name]) for name in rows.columns]
    return pa.schema([*fields, *more])
