"""Run a compiled read on Spark: its rows as a result, or as a DataFrame."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.engine.opened import AtBranch
from omnigraph.errors import BadRequest, PipelineCancelled, QueryCancelled, ResourceLimitExceeded
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.terms import Total
from omnigraph.lang.values import Stored
from omnigraph.pipeline.progress import watched
from omnigraph.pipeline.query.flight import Names
from omnigraph.pipeline.query.meeting import Meeting
from omnigraph.pipeline.query.needs import properties_of
from omnigraph.pipeline.query.results import COUNTED, Found, Results
from omnigraph.pipeline.query.rows import Matching, Query
from omnigraph.pipeline.query.scope import restored
from omnigraph.pipeline.query.searches import Answers
from omnigraph.pipeline.query.tables import Tables
from omnigraph.query.aggregate import UNNAMED
from omnigraph.query.pattern import tables_of
from omnigraph.query.prepared import Prepared
from omnigraph.query.read import Pinned, Reader
from omnigraph.query.request import Limits, Request
from omnigraph.query.result import Result

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGE = "query"


class SparkReads:
    """Reads on one Spark session; each method is a way to run a compiled read."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def result(
        self,
        reader: Reader,
        query: Prepared,
        parameters: Mapping[str, Stored],
        pinned: Pinned,
        limits: Limits,
    ) -> Result:
        """The rows of a query, brought to this process."""
        request = _request(parameters, limits)
        stop = _Stop(request)
        try:
            with watched(self._spark, STAGE, cancel=stop):
                found = self._found(reader, query, request, pinned)
                table = _collected(found, query, limits)
        except PipelineCancelled:
            request.check()
            raise QueryCancelled("query was cancelled") from None
        return _result(table, found, query, pinned)

    def frame(
        self,
        reader: Reader,
        query: Prepared,
        parameters: Mapping[str, Stored],
        pinned: Pinned,
        limits: Limits,
    ) -> DataFrame:
        """The rows of a query as a DataFrame, found when it is used."""
        if any(limit is not None for limit in (limits.rows, limits.seconds, limits.cancel)):
            raise BadRequest(
                "max_rows, timeout and cancel mean nothing for a DataFrame, which is found when it is used",
                remedy="leave them out, or take a result with `Graph.query(..., engine='spark')`",
            )
        with watched(self._spark, STAGE):
            found = self._found(reader, query, _request(parameters, limits), pinned)
            return found.cut().toDF(*(output.name for output in found.outputs))

    def _found(self, reader: Reader, query: Prepared, request: Request, pinned: Pinned) -> Found:
        request.check()
        catalog, names = reader.graph.catalog_at(pinned.snapshot), Names()
        tables = Tables(self._spark, reader.graph, pinned.snapshot, names, properties_of(query.plan))
        answers = Answers(reader, request, pinned, catalog)
        meeting = Meeting.of(pinned.snapshot, query.plan)
        context = Query(self._spark, request, catalog, tables, answers, names, meeting)
        try:
            return Results(context, Matching(context, tables_of(query.plan))).found(query.plan)
        finally:
            answers.settle()


class _Stop(threading.Event):
    """Set once a request must not go on."""

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


# --- rows on their way home ------------------------------------------------------------------------


def _collected(found: Found, query: Prepared, limits: Limits) -> pa.Table:
    """The result with our types; its columns still have numbers for names."""
    if found.of_all:
        # One row, and whether there was anything to total must be known even if that row is not wanted.
        whole = found.frame.select(*found.names, COUNTED).toArrow()
        end = None if found.limit is None else found.limit
        return _ours(found, whole, _names(found, whole)).slice(found.offset, end)
    frame = found.cut() if limits.rows is None else found.cut().limit(limits.rows + 1)
    table = frame.toArrow()
    if limits.rows is not None and len(table) > limits.rows:
        raise ResourceLimitExceeded(
            f"rows of query '{query.name}'",
            limit=limits.rows,
            actual=len(table),
            remedy="add a `limit` to the query, or allow more rows",
        )
    return _ours(found, table, [output.name for output in found.outputs])


def _ours(found: Found, table: pa.Table, names: list[str]) -> pa.Table:
    columns = [
        restored(table.column(name), type_) for name, type_ in zip(found.names, found.types, strict=True)
    ]
    fields = [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _names(found: Found, whole: pa.Table) -> list[str]:
    """The names of totals; one without an alias has nothing to be named after where there is nothing."""
    nothing = whole.column(COUNTED)[0].as_py() == 0
    return [UNNAMED if nothing and _is_bare(output) else output.name for output in found.outputs]


def _is_bare(output: p.Output) -> bool:
    return not output.aliased and isinstance(output.term, Total)


def _result(table: pa.Table, found: Found, query: Prepared, pinned: Pinned) -> Result:
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
