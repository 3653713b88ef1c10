"""Result columns of a plan: projected or totalled, made different, put in order, cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types as kinds
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from omnigraph.errors import InternalError
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.terms import Column as ResultColumn
from omnigraph.lang.query.terms import Distance, EntityId, Fusion, Relevance, Term, Total
from omnigraph.lang.values import arrow_type
from omnigraph.pipeline.fan_out import in_tasks
from omnigraph.pipeline.query.flight import RANK, Flight, Slot
from omnigraph.pipeline.query.rows import Matching, Query
from omnigraph.pipeline.query.tasks import Made, Make
from omnigraph.pipeline.source import spark_form

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COUNTED = "counted"
"""The column that says how many rows a total is about, where it is about all of them."""
_FIRST = "first"
_MOST = 2**31 - 1
"""Spark counts rows of a limit in so many bits."""


@dataclass(frozen=True, slots=True)
class By:
    """A column that rows are in the order of; null is first, or last when descending."""

    column: str
    descending: bool = False

    def spark(self) -> Column:
        """The same in Spark's words."""
        found = F.col(self.column)
        return found.desc_nulls_last() if self.descending else found.asc_nulls_first()


@dataclass(frozen=True, slots=True)
class Found:
    """Result rows: the columns of the result by number, and those that settle the order."""

    frame: DataFrame
    outputs: tuple[p.Output, ...]
    order: tuple[By, ...] = ()
    of_all: bool = False
    """Whether it is the one row of totals over all there is; it then has the column `COUNTED`."""
    limit: int | None = None
    offset: int = 0

    @property
    def names(self) -> list[str]:
        """The result's columns."""
        return [name_of(at) for at in range(len(self.outputs))]

    @property
    def types(self) -> list[pa.DataType]:
        """The types of these columns with us."""
        return [arrow_type(output.term.type) for output in self.outputs]

    def cut(self, *more: str) -> DataFrame:
        """The rows that are asked for, in their order, with the result's columns and some more."""
        frame = self.frame.orderBy(*(by.spark() for by in self.order)) if self.order else self.frame
        if self.offset:
            frame = frame.offset(min(self.offset, _MOST))
        if self.limit is not None:
            frame = frame.limit(min(self.limit, _MOST))
        return frame.select(*self.names, *more)


def name_of(at: int) -> str:
    """The column of a result by its number: names of results may repeat."""
    return f"o{at}"


class Results:
    """Turns the upper part of a plan into result rows."""

    def __init__(self, query: Query, matching: Matching) -> None:
        self._query = query
        self._matching = matching

    def found(self, plan: p.Plan) -> Found:
        """The result of a whole plan."""
        match plan:
            case p.Limit(input=below, limit=limit, offset=offset):
                count = self._query.request.count
                return replace(self.found(below), limit=count(limit), offset=count(offset) or 0)
            case p.Project():
                return self._projected(plan)
            case p.Aggregate():
                return self._aggregated(plan)
            case p.Distinct(input=below):
                return _distinct(self.found(below))
            case p.Sort(input=below, keys=keys):
                return _sorted(self.found(below), keys)
        raise InternalError(f"a {type(plan).__name__} gives no result columns")

    # --- one row for each match --------------------------------------------------------------------

    def _projected(self, plan: p.Project) -> Found:
        rows, sorting, order = self._ordered(plan.input)
        outputs = [
            Made(name_of(at), output.term, arrow_type(output.term.type))
            for at, output in enumerate(plan.columns)
        ]
        frame = self._made(rows, [*outputs, *sorting], [RANK] if rows.ranked else [])
        return Found(frame, plan.columns, order)

    def _ordered(self, plan: p.Plan) -> tuple[Flight, list[Made], tuple[By, ...]]:
        """Rows, the columns to be made for their order, and the order."""
        if not isinstance(plan, p.Order):
            return self._matching.rows(plan), [], ()
        rows = self._matching.rows(plan.input)
        ids = [Made(f"t{at}", EntityId(var), pa.string()) for at, var in enumerate(plan.ties)]
        ties = tuple(By(tie.name) for tie in ids)
        if isinstance(plan.keys[0].term, Distance | Relevance | Fusion):
            return rows, ids, (By(RANK), *ties)
        keys = [Made(f"s{at}", key.term, arrow_type(key.term.type)) for at, key in enumerate(plan.keys)]
        order = [By(made.name, key.descending) for made, key in zip(keys, plan.keys, strict=True)]
        return rows, [*keys, *ids], (*order, *ties)

    def _made(self, rows: Flight, made: Sequence[Made], kept: Sequence[str]) -> DataFrame:
        given = self._query.given([one.term for one in made], self._matching.keys, rows.slots)
        work = Make(tuple(made), rows.slots, given, tuple(kept))
        fields = [pa.field(name, pa.int64()) for name in kept]
        shape = pa.schema([*fields, *(pa.field(one.name, one.type) for one in made)])
        return self._query.tasked(rows, work, shape).frame

    # --- one row for each group --------------------------------------------------------------------

    def _aggregated(self, plan: p.Aggregate) -> Found:
        rows, sorting, order = self._ordered(plan.input)
        keys = [Made(f"k{at}", key, arrow_type(key.type)) for at, key in enumerate(plan.keys)]
        arguments = [_argument(f"a{at}", total) for at, total in enumerate(plan.totals)]
        made = self._made(rows, [*keys, *arguments, *sorting], [RANK] if rows.ranked else [])
        totals = [_total(total, f"a{at}").alias(f"v{at}") for at, total in enumerate(plan.totals)]
        first = [_earliest(order)] if order else []
        grouped = made.groupBy(*(key.name for key in keys))
        groups = grouped.agg(*totals, *first, F.count(F.lit(1)).alias(COUNTED))
        return self._told(plan, groups, order)

    def _told(self, plan: p.Aggregate, groups: DataFrame, order: tuple[By, ...]) -> Found:
        """The result columns, put together from the keys and totals of each group."""
        known: dict[Term, Slot] = {
            term: Slot(f"{letter}{at}", arrow_type(term.type))
            for letter, terms in (("k", plan.keys), ("v", plan.totals))
            for at, term in enumerate(terms)
        }
        outputs = tuple(
            Made(name_of(at), output.term, arrow_type(output.term.type))
            for at, output in enumerate(plan.columns)
        )
        kept = {COUNTED: pa.int64(), **({_FIRST: _place_type(order)} if order else {})}
        if all(made.term in known and _spark_type(made.term) == made.type for made in outputs):
            names = (F.col(known[made.term].column).alias(made.name) for made in outputs)
            frame = groups.select(*kept, *names)
        else:
            work = Make(outputs, {}, self._query.given([], {}), tuple(kept), known)
            shape = pa.schema([*kept.items(), *((made.name, made.type) for made in outputs)])
            frame = in_tasks(self._query.spark, groups, work, spark_form(shape))
        return Found(frame, plan.columns, (By(_FIRST),) if order else (), of_all=not plan.keys)


def _argument(name: str, total: Total) -> Made:
    """What a total is made of; sums and means are floats whatever they add up."""
    adds = total.fn in ("sum", "avg")
    type_ = pa.float64() if adds else arrow_type(total.argument.type)
    return Made(name, total.argument, type_, rounded=adds)


def _total(total: Total, column: str) -> Column:
    argument = F.col(column)
    match total.fn:
        case "count":
            return F.count_distinct(argument) if total.distinct else F.count(argument)
        case "sum":
            return F.sum(argument)
        case "avg":
            return F.avg(argument)
        case "min":
            return F.min(argument)
        case "max":
            return F.max(argument)


def _spark_type(term: Term) -> pa.DataType:
    """The type in which Spark tells a key or total of a group."""
    if isinstance(term, Total) and term.fn == "count":
        return pa.int64()
    return _argument("", term).type if isinstance(term, Total) else arrow_type(term.type)


def _earliest(order: tuple[By, ...]) -> Column:
    """Where the first row of a group is in the order of all rows."""
    assert not any(by.descending for by in order), "only rankings settle the order of groups"
    return F.min(F.struct(*(by.column for by in order))).alias(_FIRST)


def _place_type(order: tuple[By, ...]) -> pa.DataType:
    return pa.struct([(by.column, pa.int64() if by.column == RANK else pa.string()) for by in order])


# --- result rows -----------------------------------------------------------------------------------


def _distinct(found: Found) -> Found:
    if found.of_all:
        return found  # one row
    if not found.order:
        return replace(found, frame=found.frame.select(*found.names).distinct())
    groups = found.frame.groupBy(*found.names).agg(_earliest(found.order))
    return replace(found, frame=groups, order=(By(_FIRST),))


def _sorted(found: Found, keys: tuple[p.Key, ...]) -> Found:
    """By the keys, then by all columns that can be compared, left to right."""
    names = [output.name for output in found.outputs]
    order = []
    for key in keys:
        assert isinstance(key.term, ResultColumn)
        last = len(names) - 1 - names[::-1].index(key.term.name)
        order.append(By(name_of(last), key.descending))
    rest = [
        By(name)
        for name, type_ in zip(found.names, found.types, strict=True)
        if not (kinds.is_list(type_) or kinds.is_fixed_size_list(type_))
    ]
    return replace(found, order=(*order, *rest))
