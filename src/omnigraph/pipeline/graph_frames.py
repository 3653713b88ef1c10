"""A graph as DataFrames of Spark: what `graph.spark()` returns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from omnigraph.engine.changes.change import parse_filter
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.load.request import LoadResult
from omnigraph.graph import Graph
from omnigraph.pipeline.algorithms.frame_algorithms import FrameAlgorithms
from omnigraph.pipeline.change_stream import change_scan
from omnigraph.pipeline.changes.diff_frames import diff_frame
from omnigraph.pipeline.fan_out import fan_out
from omnigraph.pipeline.query.read import SparkReads
from omnigraph.pipeline.table_scan import plan_scan, resolve_table, snapshot_at
from omnigraph.query.query_service import QueryService
from omnigraph.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class GraphFrames:
    """The types of a graph and the results of queries as DataFrames of Spark: what `graph.spark()` returns.

    A DataFrame shows the graph as it was when the DataFrame was created, however often it is used.
    """

    def __init__(self, graph: Graph, questions: QueryService, spark: SparkSession) -> None:
        self._graph = graph
        self._queries = questions
        self.session = spark

    def nodes(
        self,
        type_name: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | Sequence[str] | None = None,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        time: datetime | str | None = None,
    ) -> DataFrame:
        """The nodes of a type: `id` and the properties, or the columns named.

        Blobs are omitted unless named. `where` is a comparison as in a mutation, `age >= 30`, or several that
        must all hold. The snapshot is that of `Graph.at`, the current one of the branch by default.
        """
        snapshot = snapshot_at(self._graph, branch, commit, version, time)
        return self._scan_frame(table_key("node", type_name), columns, where, snapshot)

    def edges(
        self,
        type_name: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | Sequence[str] | None = None,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        time: datetime | str | None = None,
    ) -> DataFrame:
        """The edges of a type: `id`, the ends as `src` and `dst`, and the properties; see `nodes`."""
        snapshot = snapshot_at(self._graph, branch, commit, version, time)
        return self._scan_frame(table_key("edge", type_name), columns, where, snapshot)

    def query(
        self, query: str | os.PathLike[str], params: Mapping[str, object] | None = None, **how: Any
    ) -> DataFrame:
        """Return the result of a read query as a DataFrame; `how` as in `Graph.query`, without limits."""
        return self._queries.run_with(self.reads.frame, query, params, **how)

    @property
    def reads(self) -> SparkReads:
        """How queries are run on this session."""
        return SparkReads(self.session)

    def diff(
        self,
        a: str | Snapshot | Commit | datetime,
        b: str | Snapshot | Commit | datetime,
        type_name: str | None = None,
        *,
        kinds: str | Iterable[str] | None = None,
        ops: str | Iterable[str] | None = None,
    ) -> DataFrame:
        """The changes that lead from one snapshot to another, in any order; both as in `Graph.diff`.

        Of one type: `op`, `id`, `changed`, and `before` and `after` with the columns of the type but Blobs.
        Of all types: the same with `kind` and `type`, and `before` and `after` as JSON.
        """
        wanted = parse_filter(kinds, type_name, ops)
        found = self._graph.diff(a, b, types=type_name, kinds=kinds, ops=ops)
        return diff_frame(self.session, found, wanted, type_name and found.key_of(type_name))

    def changes(self, type_name: str, *, branch: str = MAIN, since: str = "beginning") -> DataFrame:
        """The changes of a type by the commits of a branch up to now, each with its commit.

        `since` is that of `Graph.changes`.
        """
        key = resolve_table(self._graph.snapshot(branch), type_name)
        scan = change_scan(self._graph, branch, key, since)
        steps = [step.commits for step in scan.plan_steps(scan.find_start(), scan.until)]
        return fan_out(self.session, steps, scan.read, scan.schema)

    def write(
        self, frame: DataFrame | Mapping[str, DataFrame], *, type: str | None = None, **how: Any
    ) -> LoadResult:
        """Load the rows of a DataFrame, or those of several by type; `how` is what `Graph.load` takes."""
        return self._graph.load(frame, type=type, **how)

    @property
    def algorithms(self) -> FrameAlgorithms:
        """Algorithms over a whole graph, such as `algorithms.pagerank()`, as DataFrames."""
        return FrameAlgorithms(self._graph, self.session)

    def _scan_frame(
        self,
        key: str,
        columns: Sequence[str] | None,
        where: str | Sequence[str] | None,
        snapshot: Snapshot,
    ) -> DataFrame:
        scan = plan_scan(self._graph.uri, snapshot, key, columns, where)
        values = (snapshot.tables[key].rows or 0) * len(scan.schema)
        return fan_out(self.session, scan.plan_pieces(), scan, scan.schema, values)

    def __repr__(self) -> str:
        return f"<GraphFrames of '{self._graph.uri}'>"
