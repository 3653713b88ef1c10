"""Run a compiled read on Spark: its rows as a result, or as a DataFrame."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.engine.graph.open_graph import AtBranch
from omnigraph.errors import BadRequest, PipelineCancelled, QueryCancelled, ResourceLimitExceeded
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.terms import Total
from omnigraph.lang.values import Stored
from omnigraph.pipeline.progress import watch_stage
from omnigraph.pipeline.query.binding_frame import ColumnNames
from omnigraph.pipeline.query.join_strategy import JoinStrategy
from omnigraph.pipeline.query.needs import paths_of, properties_of
from omnigraph.pipeline.query.pattern_matcher import PatternMatcher, QueryContext
from omnigraph.pipeline.query.results import COUNTED, ResultCompiler, ResultFrame
from omnigraph.pipeline.query.scope import restore_type
from omnigraph.pipeline.query.searches import SearchAnswers
from omnigraph.pipeline.query.tables import Tables
from omnigraph.query.aggregate import UNNAMED
from omnigraph.query.pattern import find_tables
from omnigraph.query.reader import PinnedTarget, PreparedRead, Reader
from omnigraph.query.request import Limits, Request
from omnigraph.query.result import Result

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGE = "query"


class SparkReads:
    """Runs compiled reads on one Spark session, as a result or as a DataFrame."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def result(
        self,
        reader: Reader,
        query: PreparedRead,
        parameters: Mapping[str, Stored],
        pinned: PinnedTarget,
        limits: Limits,
    ) -> Result:
        """Return the rows of a query, collected in this process."""
        request = _request(parameters, limits)
        stop = _Stop(request)
        try:
            with watch_stage(self._spark, STAGE, cancel=stop):
                found = self._compile(reader, query, request, pinned)
                table = _collect(found, query, limits)
        except PipelineCancelled:
            request.check()
            raise QueryCancelled("query was cancelled") from None
        return _result(table, found, query, pinned)

    def frame(
        self,
        reader: Reader,
        query: PreparedRead,
        parameters: Mapping[str, Stored],
        pinned: PinnedTarget,
        limits: Limits,
    ) -> DataFrame:
        """Return the rows of a query as a DataFrame, which is evaluated lazily."""
        if any(limit is not None for limit in (limits.rows, limits.seconds, limits.cancel)):
            raise BadRequest(
                "max_rows, timeout and cancel mean nothing for a DataFrame, which is found when it is used",
                remedy="leave them out, or take a result with `Graph.query(..., engine='spark')`",
            )
        with watch_stage(self._spark, STAGE):
            found = self._compile(reader, query, _request(parameters, limits), pinned)
            return found.cut().toDF(*(output.name for output in found.outputs))

    def _compile(
        self, reader: Reader, query: PreparedRead, request: Request, pinned: PinnedTarget
    ) -> ResultFrame:
        request.check()
        catalog, names = reader.graph.catalog_at(pinned.snapshot), ColumnNames()
        tables = Tables(self._spark, reader.graph, pinned.snapshot, names, properties_of(query.plan))
        answers = SearchAnswers(reader, request, pinned, catalog)
        joins = JoinStrategy.of(pinned.snapshot, query.plan)
        context = QueryContext(
            self._spark, request, catalog, tables, answers, names, joins, paths_of(query.plan)
        )
        try:
            return ResultCompiler(context, PatternMatcher(context, find_tables(query.plan))).compile(
                query.plan
            )
        finally:
            answers.update_cache()


class _Stop(threading.Event):
    """Set once a request is cancelled or out of time."""

    def __init__(self, request: Request) -> None:
        super().__init__()
        self._request = request

    def is_set(self) -> bool:
        """Whether the caller has cancelled, or the time is up."""
        try:
            self._request.check()
        except QueryCancelled:
            return True
        return False


def _request(parameters: Mapping[str, Stored], limits: Limits) -> Request:
    return Request(parameters, time.time_ns() // 1_000_000, limits)


# --- collecting rows --------------------------------------------------------------------------------


def _collect(found: ResultFrame, query: PreparedRead, limits: Limits) -> pa.Table:
    """Return the result with Arrow types as stored; its columns are still named by number."""
    if found.of_all:
        # One row; whether there was anything to total matters even if that row is not wanted.
        whole = found.frame.select(*found.names, COUNTED).toArrow()
        end = None if found.limit is None else found.limit
        return _restore_columns(found, whole, _names(found, whole)).slice(found.offset, end)
    frame = found.cut() if limits.rows is None else found.cut().limit(limits.rows + 1)
    table = frame.toArrow()
    if limits.rows is not None and len(table) > limits.rows:
        raise ResourceLimitExceeded(
            f"rows of query '{query.name}'",
            limit=limits.rows,
            actual=len(table),
            remedy="add a `limit` to the query, or allow more rows",
        )
    return _restore_columns(found, table, [output.name for output in found.outputs])


def _restore_columns(found: ResultFrame, table: pa.Table, names: list[str]) -> pa.Table:
    columns = [
        restore_type(table.column(name), type_) for name, type_ in zip(found.names, found.types, strict=True)
    ]
    fields = [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _names(found: ResultFrame, whole: pa.Table) -> list[str]:
    """The names of totals; one without an alias has nothing to be named after where there is nothing."""
    nothing = whole.column(COUNTED)[0].as_py() == 0
    return [UNNAMED if nothing and _is_bare(output) else output.name for output in found.outputs]


def _is_bare(output: p.Output) -> bool:
    return not output.aliased and isinstance(output.term, Total)


def _result(table: pa.Table, found: ResultFrame, query: PreparedRead, pinned: PinnedTarget) -> Result:
    live = isinstance(pinned.target, AtBranch)
    commit = pinned.snapshot.commit
    return Result(
        table,
        tuple(output.term.type for output in found.outputs),
        query.name,
        pinned.snapshot.branch if live else None,
        None if live else pinned.snapshot.id,
        commit.id if commit else None,
    )
