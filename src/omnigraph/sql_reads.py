"""SQL and Arrow over the types of a graph, now or in the past."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import TYPE_CHECKING

from omnigraph.arguments import check_arguments
from omnigraph.engine.graph.targets import parse_target
from omnigraph.query.query_service import QueryService
from omnigraph.query.request import Limits

if TYPE_CHECKING:
    from omnigraph.query.arrow_tables import EntityDataset
    from omnigraph.query.result import Result
    from omnigraph.query.sql import SqlParams


@check_arguments
class SqlReads:
    """What `Graph` offers to programs that speak SQL or Arrow."""

    _queries: QueryService

    def sql(
        self,
        statement: str,
        params: SqlParams | None = None,
        *,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        time: datetime | str | None = None,
        max_rows: int | None = None,
        timeout: float | None = None,
        cancel: threading.Event | None = None,
    ) -> Result:
        """Run a SELECT on a branch as it is now (main, if none is named), or on the graph as it was.

        Each type is a table of its name; edges have `src` and `dst`, and Blobs are left out. `params` are
        values for `$name` or `?`. Nothing but the graph can be read. The moment and the limits are those of
        `query`.
        DuckDB runs it: install `omnigraph[sql]`.
        """
        from omnigraph.query.sql import SqlStatement, run_sql

        pinned = self._queries.pin(parse_target(commit, version, time, branch))
        return run_sql(
            self._queries, pinned, SqlStatement(statement, params, Limits.of(max_rows, timeout, cancel))
        )

    def arrow(
        self,
        type_name: str,
        *,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        time: datetime | str | None = None,
    ) -> EntityDataset:
        """The nodes or edges of a type as a `pyarrow.dataset.Dataset`, for DuckDB, polars and others.

        It is pinned to one moment, and reads the columns and rows that are asked for, whenever they are.
        """
        from omnigraph.query.arrow_tables import EntityDataset

        pinned = self._queries.pin(parse_target(commit, version, time, branch))
        return EntityDataset(self._queries.opened, pinned.snapshot, type_name)
