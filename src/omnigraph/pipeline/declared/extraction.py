"""Sources, transforms and maps as DataFrames of Spark, and their rows as files for a load."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from typing import TYPE_CHECKING, Any

from omnigraph.engine.graph.root import new_id
from omnigraph.engine.load.sources.binding import bind_columns
from omnigraph.engine.load.sources.mapping import NO_ENTRY
from omnigraph.engine.load.spool import PassedRows
from omnigraph.errors import PipelineInvalid, PipelinePropertyType
from omnigraph.graph import Graph
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.pipeline.connection import close_before_exit, is_connect
from omnigraph.pipeline.declared.batch import Batch, Bounds
from omnigraph.pipeline.declared.declaration import (
    Destination,
    EntityMap,
    LoadMode,
    Parameter,
    Pipeline,
    Watermark,
    to_canonical_json,
)
from omnigraph.pipeline.declared.newest_rows import (
    WATERMARK,
    newest_of_each,
    refuse_ties,
    tie_metrics,
    without_marks,
)
from omnigraph.pipeline.declared.secrets import Secrets
from omnigraph.pipeline.declared.source_frames import SourceFrames
from omnigraph.pipeline.declared.statement_errors import StatementErrors
from omnigraph.pipeline.fan_out import arrow_schema, map_partitions
from omnigraph.pipeline.frame_spool import PARTS, Stage, to_loadable
from omnigraph.pipeline.sql_guard import sql_guard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SparkExtract:
    """Reads a pipeline's sources with Spark; its views are in a session of their own."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        *,
        params: Mapping[str, Parameter] | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        self._pipeline = pipeline
        self._spark = _own_session(spark, pipeline)
        self._guard = sql_guard(self._spark)
        self._params = {**dict(pipeline.params), **(params or {})}
        self._secrets = secrets or Secrets()
        self._errors = StatementErrors(self._spark, self._secrets)
        self._sources = SourceFrames(pipeline, self._spark, self._secrets, self._errors)

    def describe_engine(self) -> dict[str, str]:
        """Return which Spark runs the work."""
        app = "" if is_connect(self._spark) else str(self._spark.sparkContext.applicationId)
        return {"app_id": app, "version": str(self._spark.version)}

    def redact(self, text: str) -> str:
        """Return a text without secrets."""
        return self._secrets.redact(text)

    def find_bounds(self, known: Bounds, reached: Sequence[Mapping[str, str]]) -> Bounds:
        """Return what is read of each source, once for a run; see `SourceFrames.find_bounds`."""
        return self._sources.find_bounds(known, reached)

    def unread_bounds(self) -> Bounds:
        """Return bounds for which no row is read."""
        return self._sources.unread_bounds()

    def release(self) -> None:
        """Remove what is kept of sources between their uses."""
        self._sources.release()

    @contextmanager
    def open_batch(self, target: Destination, graph: Graph, bounds: Bounds) -> Iterator[Batch]:
        """The rows of all types of a target, written by tasks into its place for loads under way."""
        frames = self.build_frames(target, graph.schema, bounds)
        with ExitStack() as stages:
            files: list[PassedRows] = []
            rows: dict[str, int] = {}
            contents: dict[str, str] = {}
            for key, frame in frames.items():
                stage = Stage(graph.uri, new_id(), key)
                stages.callback(stage.clear)
                found = self._stage_frame(frame, stage)
                rows[key] = found.rows
                contents[key] = found.content
                files += found.files
            yield Batch(tuple(files), rows, hashlib.sha256(to_canonical_json(contents).encode()).hexdigest())

    def count_rows(self, frames: Mapping[str, DataFrame]) -> dict[str, int]:
        """How many rows each type would get."""
        from pyspark.sql import functions as sql

        counts: dict[str, int] = {}
        for key, frame in frames.items():
            with self._errors.watch("counting"):
                found = frame.agg(sql.count(sql.lit(1)).alias("n"), *tie_metrics(frame)).first()
            assert found is not None, "an aggregate of all rows has one row"
            refuse_ties(key, found.asDict())
            counts[key] = int(found["n"])
        return counts

    def build_frames(self, target: Destination, catalog: Catalog, bounds: Bounds) -> dict[str, DataFrame]:
        """A DataFrame for each type of a target, with its columns checked; no rows are read."""
        self._make_views(bounds)
        problems: list[PipelineInvalid] = []
        found: dict[str, DataFrame] = {}
        for key, entries in target.by_table().items():
            parts = [self._apply_mapping(entry, target.mode, catalog) for entry in entries]
            found[key] = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
            problems += _find_unfit(found[key], entries[0], catalog)
        if problems:
            raise PipelineInvalid.of(problems)
        return found

    def _make_views(self, bounds: Bounds) -> None:
        self._sources.make_views(bounds)
        views, transforms = self._pipeline.list_views(), self._pipeline.transforms
        for number, transform in enumerate(transforms, len(views) - len(transforms)):
            earlier = views[:number]
            with self._errors.report_mistakes(transform.place, f"view '{transform.view}'"):
                text = self._guard.check_query(transform.sql, earlier)
                made = self._spark.sql(text, args=self._params or None)
                made.schema  # noqa: B018 - a server analyses lazily
                self._guard.check_frame(made, earlier)
                made.createOrReplaceTempView(transform.view)

    # --- maps -------------------------------------------------------------------------------------

    def _apply_mapping(self, entry: EntityMap, mode: LoadMode, catalog: Catalog) -> DataFrame:
        from pyspark.sql import functions as sql

        with self._errors.report_mistakes(entry.place, f"{entry.kind} type '{entry.type}'"):
            known = self._pipeline.list_views()
            view = self._spark.table(entry.view)
            if entry.where is not None:
                view = view.where(sql.expr(self._guard.check_expression(entry.where, known)))
            columns = [
                sql.expr(self._guard.check_expression(text, known)).alias(name)
                for name, text in entry.map_columns().items()
            ]
            self._guard.check_frame(view.select(*columns), known)
            newest = self._watermark_of(view) if mode is LoadMode.MERGE else None
            ids = _list_identity_columns(entry, catalog)
            if newest is None or not ids:
                made = view.select(*columns)
            else:
                # Texts of a CSV are in another order than what they say.
                mark = sql.col(f"`{newest.column}`").cast(newest.type)
                marked = view.select(*columns, mark.alias(WATERMARK))
                made = newest_of_each(marked, ids)
            made.schema  # noqa: B018 - a server analyses lazily
            return made

    def _watermark_of(self, view: DataFrame) -> Watermark | None:
        """The watermark that the rows of a view still have."""
        marks = [source.watermark for source in self._pipeline.sources if source.watermark is not None]
        return next((mark for mark in marks if mark.column in view.columns), None)

    def _stage_frame(self, frame: DataFrame, stage: Stage) -> _Staged:
        from pyspark.sql import Observation
        from pyspark.sql import functions as sql

        # Sums do not depend on the order of rows, nor on how they are spread over tasks.
        rows_only = without_marks(frame)
        names = [f"`{name}`" for name in sorted(rows_only.columns)]
        hashes = [
            sql.sum(sql.xxhash64(sql.lit(seed), *names).cast("decimal(20,0)"))
            .cast("string")
            .alias(f"h{seed}")
            for seed in (1, 2)
        ]
        seen = Observation()
        observed = frame.observe(seen, sql.count(sql.lit(1)).alias("n"), *hashes, *tie_metrics(frame))
        with self._errors.watch(f"rows of {stage.key}"):
            parts = map_partitions(self._spark, without_marks(observed), stage, PARTS).toArrow()
        rows = sum(parts.column("rows").to_pylist())
        if not rows:
            return _Staged((), 0, "")
        totals = seen.get
        refuse_ties(stage.key, totals)
        content = f"{rows}:{totals['h1']}:{totals['h2']}:{rows_only.schema.simpleString()}"
        return _Staged(stage.list_files(parts, arrow_schema(rows_only.schema)), rows, content)


class _Staged:
    """Rows of a type as files."""

    __slots__ = ("content", "files", "rows")

    def __init__(self, files: Sequence[PassedRows], rows: int, content: str) -> None:
        self.files = files
        self.rows = rows
        self.content = content


def _own_session(spark: SparkSession, pipeline: Pipeline) -> SparkSession:
    """Return a session that shares Spark with another one, but neither views nor settings."""
    made = close_before_exit(spark.newSession())
    made.conf.set("spark.sql.session.timeZone", "UTC")
    for name, value in pipeline.spark.conf:
        if made.conf.isModifiable(name):
            made.conf.set(name, value)
    # A statement reads only the sources of its pipeline, and no other files.
    made.conf.set("spark.sql.runSQLOnFiles", "false")
    # `${NAME}` in a statement is a mistake, and not a way to the environment.
    made.conf.set("spark.sql.variable.substitute", "false")
    return made


def _list_identity_columns(entry: EntityMap, catalog: Catalog) -> list[str]:
    """The columns by which rows are the same entity."""
    owner = catalog.nodes[entry.type] if entry.kind == "node" else catalog.edges[entry.type]
    if owner.key:
        return list(owner.key)
    return ["id"] if entry.id is not None else []


def _find_unfit(frame: DataFrame, entry: EntityMap, catalog: Catalog) -> list[PipelineInvalid]:
    """Columns of which no value fits their property."""
    shape = to_loadable(arrow_schema(without_marks(frame).schema).empty_table()).schema
    bound = bind_columns(f"view '{entry.view}'", entry.key, shape.names, shape.types, NO_ENTRY, catalog)
    return [
        PipelinePropertyType(
            f"{entry.kind} type '{entry.type}': {one.reason}", file=entry.place.file, line=entry.place.line
        )
        for one in bound.problems
    ]


def columns_of(frame: Any) -> dict[str, str]:
    """The columns of a DataFrame with their types in Spark."""
    return {column.name: column.dataType.simpleString() for column in without_marks(frame).schema.fields}
