"""Result columns of a plan: projected or totalled, made different, put in order, cut."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import InternalError
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.terms import Column as ResultColumn
from omnigraph.lang.query.terms import Distance, EntityId, Fusion, Relevance, Term, Total
from omnigraph.lang.values import arrow_type
from omnigraph.pipeline.fan_out import map_partitions
from omnigraph.pipeline.query.binding_frame import RANK, BindingFrame, Slot
from omnigraph.pipeline.query.pattern_matcher import PatternMatcher, QueryContext
from omnigraph.pipeline.query.tasks import MadeColumn, MakeColumns
from omnigraph.pipeline.table_scan import to_spark_types

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COUNTED = "counted"
"""The column with the number of rows behind a total over all rows."""
_FIRST = "first"
_MOST = 2**31 - 1
"""Spark counts rows of a limit in so many bits."""
_HUGE = 2.0**800
_SCALE = 2.0**128
"""Scaled down by this factor, no sum of larger floats overflows."""


@dataclass(frozen=True, slots=True)
class By:
    """A column that rows are in the order of; null is first, or last when descending."""

    column: str
    descending: bool = False

    def spark(self) -> Column:
        """Return it as a Spark column."""
        found = F.col(self.column)
        return found.desc_nulls_last() if self.descending else found.asc_nulls_first()


@dataclass(frozen=True, slots=True)
class ResultFrame:
    """Result rows: the columns of the result by number, and the columns to order by."""

    frame: DataFrame
    outputs: tuple[p.Output, ...]
    order: tuple[By, ...] = ()
    of_all: bool = False
    """Whether it is the one row of totals over all rows; it then has the column `COUNTED`."""
    limit: int | None = None
    offset: int = 0

    @property
    def names(self) -> list[str]:
        """The result's columns."""
        return [column_name(at) for at in range(len(self.outputs))]

    @property
    def types(self) -> list[pa.DataType]:
        """The Arrow types of these columns."""
        return [arrow_type(output.term.type) for output in self.outputs]

    def cut(self, *more: str) -> DataFrame:
        """Return the requested rows in order, with the result's columns and some more."""
        frame = self.frame.orderBy(*(by.spark() for by in self.order)) if self.order else self.frame
        if self.offset:
            frame = frame.offset(min(self.offset, _MOST))
        if self.limit is not None:
            frame = frame.limit(min(self.limit, _MOST))
        return frame.select(*self.names, *more)


def column_name(at: int) -> str:
    """The column of a result by its number: names of results may repeat."""
    return f"o{at}"


class ResultCompiler:
    """Turns the upper part of a plan into result rows."""

    def __init__(self, query: QueryContext, matching: PatternMatcher) -> None:
        self._query = query
        self._matching = matching

    def compile(self, plan: p.Plan) -> ResultFrame:
        """Return the result rows of a whole plan."""
        match plan:
            case p.Limit(input=below, limit=limit, offset=offset):
                count = self._query.request.count
                return replace(self.compile(below), limit=count(limit), offset=count(offset) or 0)
            case p.Project():
                return self._projected(plan)
            case p.Aggregate():
                return self._aggregated(plan)
            case p.Distinct(input=below):
                return _distinct(self.compile(below))
            case p.Sort(input=below, keys=keys):
                return _sorted(self.compile(below), keys)
        raise InternalError(f"a {type(plan).__name__} gives no result columns")

    # --- one row for each match --------------------------------------------------------------------

    def _projected(self, plan: p.Project) -> ResultFrame:
        rows, sorting, order = self._ordered(plan.input)
        outputs = [
            MadeColumn(column_name(at), output.term, arrow_type(output.term.type))
            for at, output in enumerate(plan.columns)
        ]
        frame = self._made(rows, [*outputs, *sorting], [RANK] if rows.ranked else [])
        return ResultFrame(frame, plan.columns, order)

    def _ordered(self, plan: p.Plan) -> tuple[BindingFrame, list[MadeColumn], tuple[By, ...]]:
        """Rows, the columns to be made for their order, and the order."""
        if not isinstance(plan, p.Order):
            return self._matching.rows(plan), [], ()
        rows = self._matching.rows(plan.input)
        ids = [MadeColumn(f"t{at}", EntityId(var), pa.string()) for at, var in enumerate(plan.ties)]
        ties = tuple(By(tie.name) for tie in ids)
        if isinstance(plan.keys[0].term, Distance | Relevance | Fusion):
            return rows, ids, (By(RANK), *ties)
        keys = [MadeColumn(f"s{at}", key.term, arrow_type(key.term.type)) for at, key in enumerate(plan.keys)]
        order = [By(made.name, key.descending) for made, key in zip(keys, plan.keys, strict=True)]
        return rows, [*keys, *ids], (*order, *ties)

    def _made(self, rows: BindingFrame, made: Sequence[MadeColumn], kept: Sequence[str]) -> DataFrame:
        given = self._query.task_values([one.term for one in made], self._matching.keys, rows.slots)
        work = MakeColumns(tuple(made), rows.slots, given, tuple(kept))
        fields = [pa.field(name, pa.int64()) for name in kept]
        shape = pa.schema([*fields, *(pa.field(one.name, one.type) for one in made)])
        return self._query.run_tasks(rows, work, shape).frame

    # --- one row for each group --------------------------------------------------------------------

    def _aggregated(self, plan: p.Aggregate) -> ResultFrame:
        rows, sorting, order = self._ordered(plan.input)
        keys = [MadeColumn(f"k{at}", key, arrow_type(key.type)) for at, key in enumerate(plan.keys)]
        arguments = [_argument(f"a{at}", total) for at, total in enumerate(plan.totals)]
        made = self._made(rows, [*keys, *arguments, *sorting], [RANK] if rows.ranked else [])
        totals = [_total(total, f"a{at}").alias(f"v{at}") for at, total in enumerate(plan.totals)]
        first = [_earliest(order)] if order else []
        grouped = made.groupBy(*(key.name for key in keys))
        groups = grouped.agg(*totals, *first, F.count(F.lit(1)).alias(COUNTED))
        return self._project_groups(plan, groups, order)

    def _project_groups(self, plan: p.Aggregate, groups: DataFrame, order: tuple[By, ...]) -> ResultFrame:
        """The result columns, put together from the keys and totals of each group."""
        known: dict[Term, Slot] = {
            term: Slot(f"{letter}{at}", arrow_type(term.type))
            for letter, terms in (("k", plan.keys), ("v", plan.totals))
            for at, term in enumerate(terms)
        }
        outputs = tuple(
            MadeColumn(column_name(at), output.term, arrow_type(output.term.type))
            for at, output in enumerate(plan.columns)
        )
        kept = {COUNTED: pa.int64(), **({_FIRST: _place_type(order)} if order else {})}
        if not plan.having and all(
            made.term in known and _spark_type(made.term) == made.type for made in outputs
        ):
            names = (F.col(known[made.term].column).alias(made.name) for made in outputs)
            frame = groups.select(*kept, *names)
        else:
            given = self._query.task_values([], {})
            work = MakeColumns(outputs, {}, given, tuple(kept), known, plan.having)
            shape = pa.schema([*kept.items(), *((made.name, made.type) for made in outputs)])
            frame = map_partitions(self._query.spark, groups, work, to_spark_types(shape))
        of_all = not plan.keys and not plan.having
        return ResultFrame(frame, plan.columns, (By(_FIRST),) if order else (), of_all=of_all)


def _argument(name: str, total: Total) -> MadeColumn:
    """What a total is made of; sums and means are floats whatever they add up."""
    adds = total.fn in ("sum", "avg")
    type_ = pa.float64() if adds else arrow_type(total.argument.type)
    return MadeColumn(name, total.argument, type_, rounded=adds)


def _total(total: Total, column: str) -> Column:
    argument = F.col(column)
    match total.fn:
        case "count":
            return F.count_distinct(argument) if total.distinct else F.count(argument)
        case "sum":
            return _finite(_scaled_total(argument, F.lit(1.0)))
        case "avg":
            # A mean lies between the least and the greatest number, whatever rounding makes of it.
            mean = _scaled_total(argument, F.count(argument))
            return F.greatest(F.min(argument), F.least(mean, F.max(argument)))
        case "min":
            return F.min(argument)
        case "max":
            return F.max(argument)
        case "collect":
            return F.sort_array(F.collect_set(argument) if total.distinct else F.collect_list(argument))


def _scaled_total(argument: Column, divisor: Column) -> Column:
    """The sum of floats, divided; very large ones are scaled and summed separately, so none overflows."""
    huge = F.abs(argument) >= F.lit(_HUGE)
    large = F.sum(F.when(huge, argument * F.lit(1.0 / _SCALE)))
    small = F.sum(F.when(~huge, argument))
    both = F.coalesce(large, F.lit(0.0)) / divisor * F.lit(_SCALE) + F.coalesce(small, F.lit(0.0)) / divisor
    return F.when(F.count(argument) > 0, both)


def _finite(found: Column) -> Column:
    return F.when(F.abs(found) <= F.lit(sys.float_info.max), found)


def _spark_type(term: Term) -> pa.DataType:
    """The type that Spark returns for a key or total of a group."""
    if isinstance(term, Total) and term.fn == "count":
        return pa.int64()
    if isinstance(term, Total) and term.fn == "collect":
        return pa.list_(_argument("", term).type)
    return _argument("", term).type if isinstance(term, Total) else arrow_type(term.type)


def _earliest(order: tuple[By, ...]) -> Column:
    """Where the first row of a group is in the order of all rows."""
    assert not any(by.descending for by in order), "only rankings define the order of groups"
    return F.min(F.struct(*(by.column for by in order))).alias(_FIRST)


def _place_type(order: tuple[By, ...]) -> pa.DataType:
    return pa.struct([(by.column, pa.int64() if by.column == RANK else pa.string()) for by in order])


# --- result rows -----------------------------------------------------------------------------------


def _distinct(found: ResultFrame) -> ResultFrame:
    if found.of_all:
        return found  # one row
    if not found.order:
        return replace(found, frame=found.frame.select(*found.names).distinct())
    groups = found.frame.groupBy(*found.names).agg(_earliest(found.order))
    return replace(found, frame=groups, order=(By(_FIRST),))


def _sorted(found: ResultFrame, keys: tuple[p.Key, ...]) -> ResultFrame:
    """By the keys, then by all columns, left to right; lists compare item by item."""
    names = [output.name for output in found.outputs]
    order = []
    for key in keys:
        assert isinstance(key.term, ResultColumn)
        last = len(names) - 1 - names[::-1].index(key.term.name)
        order.append(By(column_name(last), key.descending))
    return replace(found, order=(*order, *map(By, found.names)))
