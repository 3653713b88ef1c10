"""`spark.read.format("omnigraph")`: a type of a graph for users who only have a Spark session.

Spark runs each part of this in its own process. The snapshot is therefore pinned once, when Spark asks for
the schema, and is pickled with the source: a DataFrame shows one snapshot, however often it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from omnigraph import graph
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.engine.load.request import require_retry
from omnigraph.engine.load.sources.mapping import read_mapping
from omnigraph.errors import BadRequest
from omnigraph.pipeline.change_stream import Admission, ChangeScan, ChangeStream, PastChanges, change_scan
from omnigraph.pipeline.fan_out import arrow_schema, conform, spark_schema
from omnigraph.pipeline.sink_records import require_sink_name
from omnigraph.pipeline.source_errors import show_plainly
from omnigraph.pipeline.staged_rows import RowStage, open_row_stage
from omnigraph.pipeline.table_scan import Fragments, Scan, plan_scan, resolve_table, snapshot_at
from omnigraph.pipeline.task_environment import apply_settings, task_settings
from omnigraph.pipeline.writer import BranchWriter, LoadOrder, StreamWriter
from omnigraph.snapshot import Snapshot
from omnigraph.storage.location import Location

NAME = "omnigraph"

_READING = frozenset({"uri", "path", "type", "columns", "where", "branch", "commit", "version", "at"})
_CHANGES = frozenset(
    {"uri", "path", "type", "branch", "since", "maxChangesPerTrigger", "maxCommitsPerTrigger"}
)
_WRITING = frozenset(
    {"uri", "path", "type", "mode", "branch", "from", "actor", "message", "mapping", "retry"}
)
_STREAMING = _WRITING | {"sink", "checkpointLocation"}


def register(spark: SparkSession) -> None:
    """Make the format `omnigraph` known to a session, for reading, streaming and writing."""
    settings = dict(task_settings(spark))
    # A class made here is pickled by value, with its settings; the one of this module only by its name.
    carrier = type("OmnigraphSource", (OmnigraphSource,), {"settings": settings})
    spark.dataSource.register(carrier if settings else OmnigraphSource)


class OmnigraphSource(DataSource):
    """A node or edge type of a graph."""

    settings: Mapping[str, str] = {}
    """The caller's settings, for processes that this one did not start."""

    _scan: Scan | None = None
    _changes: ChangeScan | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name to pass to `format`."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of the type at the requested snapshot, or those of its changes."""
        with self._prepare_process():
            return self._pin_schema()

    def _pin_schema(self) -> StructType:
        shape = self._pin_changes().schema if self._reads_changes else self._pin_scan().schema
        found: StructType = spark_schema(shape)
        return found

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of all rows of one snapshot, or of all changes up to now."""
        with self._prepare_process():
            if self._reads_changes:
                return PastChanges(self._pin_changes(), schema, self.settings)
            return Reader(self._pin_scan(), schema, self.settings)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a stream of the changes of one commit after another."""
        with self._prepare_process():
            if not self._reads_changes:
                # Spark asks for the schema without saying what for, so the option has to.
                raise BadRequest(
                    "a stream of changes has to say where it begins",
                    remedy='add `.option("since", "beginning")`, or "now", or "after:" and a commit id',
                )
            limits = Admission(
                self._read_limit("maxChangesPerTrigger"), self._read_limit("maxCommitsPerTrigger")
            )
            return ChangeStream(self._pin_changes(), schema, self.settings, limits)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return a writer that loads rows into a branch, in one commit."""
        with self._prepare_process():
            self._reject_unknown_options(_WRITING)
            order = self._read_order("overwrite" if overwrite else None)
            return BranchWriter(self._row_stage(schema, order.mode), order, self.settings)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's name
        """Return a writer that loads each batch of a stream into a branch, in one commit."""
        with self._prepare_process():
            self._reject_unknown_options(_STREAMING)
            if overwrite:
                raise BadRequest(
                    "a stream cannot replace a type with every batch", remedy='use `.outputMode("append")`'
                )
            order = self._read_order(None)
            if order.mode is Mode.OVERWRITE:
                raise BadRequest(
                    "a stream appends, merges or patches, and overwrites nothing",
                    remedy='use `.option("mode", "merge")`, or omit the option to append',
                )
            sink = require_sink_name(self._require_option("sink"))
            return StreamWriter(sink, self._row_stage(schema, order.mode), order, self.settings)

    def _read_order(self, spark_mode: str | None) -> LoadOrder:
        """How rows are loaded; Spark's own mode decides if it overwrites."""
        mode = self._read_option("mode")
        if spark_mode is not None and mode not in (None, spark_mode):
            raise BadRequest(
                f"the option mode is '{mode}', but Spark is to {spark_mode}", remedy='use `.mode("append")`'
            )
        chosen = spark_mode or mode or Mode.APPEND.value
        if chosen not in (names := [one.value for one in Mode]):
            raise BadRequest(f"there is no mode '{chosen}'", remedy=f"choose one of: {', '.join(names)}")
        branch = parse_branch_name(self._read_option("branch") or MAIN)
        about = self._read_option("actor"), self._read_option("message")
        retry = self._read_limit("retry") or 0
        require_retry(Mode(chosen), retry)
        return LoadOrder(Mode(chosen), branch, self._read_option("from"), *about, retry)

    def _row_stage(self, schema: StructType, mode: Mode) -> RowStage:
        """Return the stage of the rows, after checking that they can be rows of the type."""
        mapping = self._read_option("mapping")
        with graph.open(self._graph_uri(), read_only=True) as opened:
            key, uri = resolve_table(opened.snapshot(MAIN), self._require_option("type")), opened.uri
        root = Root.at(Location(uri))
        stage = open_row_stage(
            root,
            OpenGraph.open(root, read_only=True),
            key,
            arrow_schema(schema),
            None if mapping is None else read_mapping(mapping),
            patches=mode is Mode.PATCH,
        )
        stage.check_columns()
        return stage

    @contextmanager
    def _prepare_process(self) -> Iterator[None]:
        """Apply the caller's settings, and show errors as they are designed."""
        apply_settings(self.settings)
        with show_plainly():
            yield

    @property
    def _reads_changes(self) -> bool:
        return "since" in self.options

    def _pin_changes(self) -> ChangeScan:
        """Return the changes to read, looked up once."""
        if self._changes is None:
            self._reject_unknown_options(_CHANGES)
            with graph.open(self._graph_uri(), read_only=True) as opened:
                branch = self._read_option("branch") or MAIN
                key = resolve_table(opened.snapshot(branch), self._require_option("type"))
                self._changes = change_scan(opened, branch, key, self._require_option("since"))
        return self._changes

    def _pin_scan(self) -> Scan:
        """Return the scan to read, looked up once."""
        if self._scan is None:
            self._reject_unknown_options(_READING)
            columns = self._read_option("columns")
            with graph.open(self._graph_uri(), read_only=True) as opened:
                snapshot = self._open_snapshot(opened)
                key = resolve_table(snapshot, self._require_option("type"))
                names = None if columns is None else [name.strip() for name in columns.split(",")]
                self._scan = plan_scan(opened.uri, snapshot, key, names, self._read_option("where"))
        return self._scan

    def _open_snapshot(self, opened: graph.Graph) -> Snapshot:
        version = self._read_option("version")
        if version is not None and not version.isdecimal():
            raise BadRequest(f"the option version is a number, not '{version}'")
        return snapshot_at(
            opened,
            self._read_option("branch"),
            self._read_option("commit"),
            None if version is None else int(version),
            self._read_option("at"),
        )

    def _graph_uri(self) -> str:
        uri = self._read_option("uri") or self._read_option("path")
        if uri is None:
            raise BadRequest("which graph is meant?", remedy='name it: `.option("uri", ...)`')
        return uri

    def _require_option(self, name: str) -> str:
        found = self._read_option(name)
        if found is None:
            raise BadRequest(f"the option {name} is missing", remedy=f'add `.option("{name}", ...)`')
        return found

    def _read_limit(self, name: str) -> int | None:
        found = self._read_option(name)
        if found is not None and (not found.isdecimal() or int(found) < 1):
            raise BadRequest(f"the option {name} is a number from 1, not '{found}'")
        return None if found is None else int(found)

    def _read_option(self, name: str) -> str | None:
        found: Any = self.options.get(name)
        return None if found is None else str(found)

    def _reject_unknown_options(self, known: frozenset[str]) -> None:
        """Reject unknown options: with a typo in `branch`, main would be read."""
        spelled = {name.lower() for name in known}
        for name in self.options:
            if name.lower() not in spelled:
                raise BadRequest(
                    f"there is no option '{name}' here", remedy=f"choose one of: {', '.join(sorted(known))}"
                )


@dataclass(slots=True)
class Piece(InputPartition):
    """The fragments that one task reads."""

    fragments: Fragments


class Reader(DataSourceReader):
    """Reads the rows of a scan. No filters are pushed down: Spark applies them to all uses of a DataFrame."""

    def __init__(self, scan: Scan, schema: StructType, settings: Mapping[str, str]) -> None:
        self._scan = scan
        self._schema = schema
        self._settings = settings

    def partitions(self) -> Sequence[InputPartition]:
        """The fragments, some for each task; at least one task, which may have none."""
        return [Piece(piece) for piece in self._scan.plan_pieces()] or [Piece(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, in exactly the types that Spark expects."""
        apply_settings(self._settings)
        wanted = arrow_schema(self._schema)
        assert isinstance(partition, Piece)
        if partition.fragments:
            for batch in self._scan(partition.fragments):
                yield conform(batch, wanted)
