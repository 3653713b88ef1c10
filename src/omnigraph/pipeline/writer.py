"""`df.write.format("omnigraph")`: tasks write files, and a process of Spark commits them by a load."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from omnigraph import graph
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.root import new_id
from omnigraph.pipeline.fan_out import arrow_schema
from omnigraph.pipeline.frame_spool import PARTS, Stage
from omnigraph.pipeline.table_scan import resolve_table
from omnigraph.pipeline.task_environment import apply_settings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """How the rows are loaded."""

    mode: Any
    how: Mapping[str, Any]
    """Further arguments of the load."""


@dataclass(frozen=True, slots=True)
class WrittenFiles(WriterCommitMessage):
    """The files of one task."""

    parts: pa.Table


def stage_rows(uri: str, type_name: str) -> Stage:
    """Return a stage for the rows of a type, after checking that the type exists."""
    with graph.open(uri, read_only=True) as opened:
        return Stage(opened.uri, new_id(), resolve_table(opened.snapshot(MAIN), type_name))


class BranchWriter(DataSourceArrowWriter):
    """Loads rows into a branch, in one commit or not at all."""

    def __init__(
        self, stage: Stage, order: LoadOrder, schema: StructType, settings: Mapping[str, str]
    ) -> None:
        self._stage = stage
        self._order = order
        self._schema = schema
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write the rows of one task to files."""
        apply_settings(self._settings)
        return WrittenFiles(pa.Table.from_batches(self._stage(iterator), PARTS))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Load the files of all tasks."""
        apply_settings(self._settings)
        parts = [PARTS.empty_table(), *(one.parts for one in messages if isinstance(one, WrittenFiles))]
        try:
            files = self._stage.files(pa.concat_tables(parts), arrow_schema(self._schema))
            with graph.open(self._stage.uri) as opened:
                # This process belongs to Spark: a session here would start a second Spark.
                done = opened.load(files, mode=self._order.mode, engine="local", **self._order.how)
            _log.info("loaded %d entities of '%s' in commit %s", done.total, self._stage.key, done.commit)
        finally:
            self._stage.clear()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave nothing behind."""
        apply_settings(self._settings)
        self._stage.clear()
