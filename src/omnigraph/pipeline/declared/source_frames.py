"""The sources of a run as views of Spark; each is read once, however many types and targets it feeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from omnigraph import graph
from omnigraph.engine.load.sources.spark_source import SparkSource
from omnigraph.errors import OmnigraphError
from omnigraph.pipeline.connection import is_connect
from omnigraph.pipeline.declared.batch import Bounds
from omnigraph.pipeline.declared.declaration import (
    CheckpointKind,
    FileSource,
    GraphSource,
    JdbcSource,
    Pipeline,
    Source,
    Watermark,
)
from omnigraph.pipeline.declared.records import SourceRecord
from omnigraph.pipeline.declared.secrets import Secrets
from omnigraph.pipeline.declared.statement_errors import StatementErrors
from omnigraph.pipeline.declared.view_uses import count_uses
from omnigraph.pipeline.failures import translate_failures
from omnigraph.pipeline.source_reader import read_source
from omnigraph.pipeline.table_scan import resolve_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_KEPT = "__omnigraph_rows_of_"


class SourceFrames:
    """Reads the sources of one run.

    Rows that are used more than once, also those that only give a watermark, are kept on the disks of the
    executors until `release`.
    """

    def __init__(
        self, pipeline: Pipeline, spark: SparkSession, secrets: Secrets, errors: StatementErrors
    ) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._secrets = secrets
        self._errors = errors
        self._uses = count_uses(pipeline)
        self._frames: dict[str, DataFrame] = {}
        self._kept: list[DataFrame] = []
        self._reached: Sequence[Mapping[str, str]] = ()

    def find_bounds(self, known: Bounds, reached: Sequence[Mapping[str, str]]) -> dict[str, SourceRecord]:
        """The greatest watermark of sources that have one and the moment of graphs, once for a run.

        `reached` has, for each target, the watermark up to which it has each source: nothing before the
        least of them is read.
        """
        self._reached = reached
        return {
            source.name: known[source.name] if source.name in known else self._find_bound(source)
            for source in self._pipeline.sources
        }

    def unread_bounds(self) -> dict[str, SourceRecord]:
        """Bounds for which no row is read; the moments of graphs are theirs."""
        return {
            source.name: self._find_bound(source) if isinstance(source, GraphSource) else SourceRecord()
            for source in self._pipeline.sources
        }

    def make_views(self, bounds: Bounds) -> None:
        """Make a view of what a target gets of each source."""
        for source in self._pipeline.sources:
            bound = bounds[source.name]
            if isinstance(source, GraphSource):
                self._make_graph_views(source, bound)
                continue
            with self._errors.report_mistakes(source.place, f"source '{source.name}'"):
                self._select_within(self._open_frame(source), source, bound).createOrReplaceTempView(
                    source.name
                )

    def release(self) -> None:
        """Remove the rows that are kept."""
        self._frames.clear()
        while self._kept:
            # A Spark that is gone keeps nothing, and why it went away was reported before.
            with suppress(OmnigraphError), translate_failures("release"):
                self._kept.pop().unpersist()

    def _find_bound(self, source: Source) -> SourceRecord:
        from pyspark.sql import functions as sql

        if isinstance(source, GraphSource):
            with graph.open(source.graph, read_only=True) as opened:
                found = (
                    opened.snapshot(source.branch)
                    if source.commit is None
                    else opened.at(commit=source.commit)
                )
                return SourceRecord(snapshot=f"{found.branch}@{found.version}")
        mark = self._find_watermark(source)
        if mark is None:
            return SourceRecord()
        greatest = sql.max(_cast_column(mark))
        if lowers := self._list_lowers(source):
            # Without new rows, the checkpoints stay where they are.
            greatest = sql.coalesce(greatest, _choose_extreme(sql.greatest, lowers, mark))
        with (
            self._errors.report_mistakes(source.place, f"source '{source.name}'"),
            self._errors.watch("bounds"),
        ):
            upper = self._open_frame(source).select(greatest.cast("string")).first()
        return SourceRecord(upper=None if upper is None else upper[0])

    def _open_frame(self, source: FileSource | JdbcSource) -> DataFrame:
        """Return the rows that any target needs."""
        if source.name not in self._frames:
            frame = self._after_all(self._read_source(source), source)
            bounded = self._find_watermark(source) is not None
            self._frames[source.name] = self._keep_rows(source.name, frame, self._uses[source.name] + bounded)
        return self._frames[source.name]

    def _read_source(self, source: FileSource | JdbcSource) -> DataFrame:
        options = {name: self._secrets.resolve(text, source.place) for name, text in source.options}
        if not isinstance(source, JdbcSource):
            return read_source(self._spark, SparkSource(source.format, source.path or (), options))
        options["url"] = self._secrets.resolve(source.url, source.place)
        if source.table is not None:
            options["dbtable"] = source.table
        else:
            options["query"] = str(source.query)
        return read_source(self._spark, SparkSource("jdbc", (), options))

    def _keep_rows(self, name: str, frame: DataFrame, uses: int) -> DataFrame:
        """Have Spark keep the rows of a view from their first use on, if there are others."""
        from pyspark import StorageLevel

        if uses <= 1:
            return frame
        if is_connect(self._spark):
            # A server analyses a DataFrame at each use, and may not recognise the rows that it keeps.
            frame.createOrReplaceTempView(f"{_KEPT}{name}")
            frame = self._spark.table(f"{_KEPT}{name}")
        self._kept.append(frame.persist(StorageLevel.DISK_ONLY))
        return frame

    def _make_graph_views(self, source: GraphSource, bound: SourceRecord) -> None:
        assert bound.snapshot is not None
        branch, _, version = bound.snapshot.rpartition("@")
        with graph.open(source.graph, read_only=True) as opened:
            frames = opened.spark(self._spark)
            snapshot = opened.at(branch=branch, version=int(version))
            for view, name in source.list_views().items():
                if view not in self._frames:
                    kind, _, type_name = resolve_table(snapshot, name).partition(":")
                    read = frames.nodes if kind == "node" else frames.edges
                    rows = read(type_name, branch=branch, version=int(version))
                    self._frames[view] = self._keep_rows(view, rows, self._uses[view])
                self._frames[view].createOrReplaceTempView(view)

    # --- watermarks -------------------------------------------------------------------------------

    def _find_watermark(self, source: Source) -> Watermark | None:
        return source.watermark if self._pipeline.checkpoint is CheckpointKind.WATERMARK else None

    def _list_lowers(self, source: Source) -> list[str]:
        """The different watermarks that targets have reached; none if a target has nothing."""
        found = [reached.get(source.name) for reached in self._reached]
        return [] if None in found else sorted({one for one in found if one is not None})

    def _after_all(self, frame: DataFrame, source: Source) -> DataFrame:
        """The rows after the least that targets have reached."""
        from pyspark.sql import functions as sql

        mark, lowers = self._find_watermark(source), self._list_lowers(source)
        if mark is None or not lowers:
            return frame
        return frame.where(_cast_column(mark) > _choose_extreme(sql.least, lowers, mark))

    def _select_within(self, frame: DataFrame, source: Source, bound: SourceRecord) -> DataFrame:
        """The rows behind what was read already, up to what this run reads."""
        from pyspark.sql import functions as sql

        mark = self._find_watermark(source)
        if mark is None:
            return frame
        # Without a greatest value there are no rows that have one.
        frame = frame.where(_cast_column(mark) <= sql.lit(bound.upper).cast(mark.type))
        if bound.lower is not None:
            frame = frame.where(_cast_column(mark) > sql.lit(bound.lower).cast(mark.type))
        return frame


def _cast_column(mark: Watermark) -> Column:
    from pyspark.sql import functions as sql

    return sql.col(f"`{mark.column}`").cast(mark.type)


def _choose_extreme(choose: Callable[..., Column], values: Sequence[str], mark: Watermark) -> Column:
    """The least or the greatest of some watermarks, in the order of their type."""
    from pyspark.sql import functions as sql

    columns = [sql.lit(one).cast(mark.type) for one in values]
    return columns[0] if len(columns) == 1 else choose(*columns)
