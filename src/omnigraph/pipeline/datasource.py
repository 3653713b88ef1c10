"""`spark.read.format("omnigraph")`: a type of a graph for those who only have a Spark session.

Spark runs each part of this in a process of its own. What is asked for is therefore settled once, when Spark
wants to know the schema, and travels with the source: a DataFrame shows one moment, however often it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from omnigraph import graph
from omnigraph.engine.manifest import MAIN
from omnigraph.errors import BadRequest
from omnigraph.graph import Snapshot
from omnigraph.pipeline.fan_out import arrow_schema, conform, spark_schema
from omnigraph.pipeline.source import Fragments, Scan, key_of, moment, scan_of
from omnigraph.pipeline.stream import ChangeScan, ChangeStream, PastChanges, change_scan
from omnigraph.pipeline.task_settings import taken_along, task_settings
from omnigraph.pipeline.writer import BranchWriter, Order, staged_for

NAME = "omnigraph"

_READING = frozenset({"uri", "path", "type", "columns", "where", "branch", "commit", "version", "at"})
_CHANGES = frozenset({"uri", "path", "type", "branch", "since"})
_LOADING = {"branch": "branch", "from_": "from", "actor": "actor", "mapping": "mapping"}
"""What a load takes, and the options that give it."""
_WRITING = frozenset({"uri", "path", "type", "mode", *_LOADING.values()})


def register(spark: SparkSession) -> None:
    """Make the format `omnigraph` known to a session, for reading, streaming and writing."""
    settings = dict(task_settings(spark))
    # A class made here travels as it is, with its settings; the one of this module only by its name.
    carrier = type("OmnigraphSource", (OmnigraphSource,), {"settings": settings})
    spark.dataSource.register(carrier if settings else OmnigraphSource)


class OmnigraphSource(DataSource):
    """A node or edge type of a graph."""

    settings: Mapping[str, str] = {}
    """What goes along to processes that were not started from here."""

    _scan: Scan | None = None
    _changes: ChangeScan | None = None

    @classmethod
    def name(cls) -> str:
        """What stands in `format`."""
        return NAME

    def schema(self) -> StructType:
        """The columns of the type at the moment that is asked for, or those of its changes."""
        taken_along(self.settings)
        shape = self._told().schema if self._tells_changes else self._settled().schema
        found: StructType = spark_schema(shape)
        return found

    def reader(self, schema: StructType) -> DataSourceReader:
        """All rows of one moment, or all changes up to now."""
        taken_along(self.settings)
        if self._tells_changes:
            return PastChanges(self._told(), schema, self.settings)
        return Reader(self._settled(), schema, self.settings)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The changes of one commit after another."""
        taken_along(self.settings)
        if not self._tells_changes:
            # Spark asks for the schema without saying what for, so the option has to.
            raise BadRequest(
                "a stream of changes has to say where it begins",
                remedy='add `.option("since", "beginning")`, or "now", or "after:" and the id of a commit',
            )
        return ChangeStream(self._told(), schema, self.settings)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Rows onto a branch, in one commit."""
        taken_along(self.settings)
        self._allow(_WRITING)
        mode = self._option("mode")
        if overwrite and mode not in (None, "overwrite"):
            raise BadRequest(
                f"the option mode is '{mode}', but Spark is to overwrite", remedy='use `.mode("append")`'
            )
        how = {name: self._option(option) for name, option in _LOADING.items()}
        given = {name: value for name, value in how.items() if value is not None}
        order = Order("overwrite" if overwrite else mode or "append", given)
        return BranchWriter(staged_for(self._place(), self._required("type")), order, schema, self.settings)

    @property
    def _tells_changes(self) -> bool:
        return "since" in self.options

    def _told(self) -> ChangeScan:
        """Which changes are read, looked up once."""
        if self._changes is None:
            self._allow(_CHANGES)
            with graph.open(self._place(), read_only=True) as opened:
                branch = self._option("branch") or MAIN
                key = key_of(opened.snapshot(branch), self._required("type"))
                self._changes = change_scan(opened, branch, key, self._required("since"))
        return self._changes

    def _settled(self) -> Scan:
        """What is read, looked up once."""
        if self._scan is None:
            self._allow(_READING)
            columns = self._option("columns")
            with graph.open(self._place(), read_only=True) as opened:
                snapshot = self._moment(opened)
                key = key_of(snapshot, self._required("type"))
                names = None if columns is None else [name.strip() for name in columns.split(",")]
                self._scan = scan_of(opened.uri, snapshot, key, names, self._option("where"))
        return self._scan

    def _moment(self, opened: graph.Graph) -> Snapshot:
        version = self._option("version")
        if version is not None and not version.isdecimal():
            raise BadRequest(f"the option version is a number, not '{version}'")
        return moment(
            opened,
            self._option("branch"),
            self._option("commit"),
            None if version is None else int(version),
            self._option("at"),
        )

    def _place(self) -> str:
        uri = self._option("uri") or self._option("path")
        if uri is None:
            raise BadRequest("which graph is meant?", remedy='name it: `.option("uri", ...)`')
        return uri

    def _required(self, name: str) -> str:
        found = self._option(name)
        if found is None:
            raise BadRequest(f"the option {name} is missing", remedy=f'add `.option("{name}", ...)`')
        return found

    def _option(self, name: str) -> str | None:
        found: Any = self.options.get(name)
        return None if found is None else str(found)

    def _allow(self, known: frozenset[str]) -> None:
        """Refuse an option that means nothing: with a typing error in `branch`, main would be read."""
        for name in self.options:
            if name.lower() not in known:
                raise BadRequest(
                    f"there is no option '{name}' here", remedy=f"choose one of: {', '.join(sorted(known))}"
                )


@dataclass(slots=True)
class Piece(InputPartition):
    """The fragments that one task reads."""

    fragments: Fragments


class Reader(DataSourceReader):
    """The rows of a scan. Filters stay with Spark, which would apply one to all uses of a DataFrame."""

    def __init__(self, scan: Scan, schema: StructType, settings: Mapping[str, str]) -> None:
        self._scan = scan
        self._schema = schema
        self._settings = settings

    def partitions(self) -> Sequence[InputPartition]:
        """The fragments, some for each task; at least one task, which may have none."""
        return [Piece(piece) for piece in self._scan.pieces()] or [Piece(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, in exactly the types that Spark expects."""
        taken_along(self._settings)
        wanted = arrow_schema(self._schema)
        assert isinstance(partition, Piece)
        if partition.fragments:
            for batch in self._scan(partition.fragments):
                yield conform(batch, wanted)
