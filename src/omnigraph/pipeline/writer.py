"""`df.write.format("omnigraph")`: tasks write files, and a process of Spark's own commits them by a load."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from omnigraph import graph
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.root import new_id
from omnigraph.pipeline.fan_out import arrow_schema
from omnigraph.pipeline.sink import PARTS, Stage
from omnigraph.pipeline.source import key_of
from omnigraph.pipeline.task_settings import taken_along

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be done with the rows."""

    mode: Any
    how: Mapping[str, Any]
    """What else a load is told."""


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The files of one task."""

    parts: pa.Table


def staged_for(uri: str, type_name: str) -> Stage:
    """A place for the rows of a type; that there is one is checked before any row is written."""
    with graph.open(uri, read_only=True) as opened:
        return Stage(opened.uri, new_id(), key_of(opened.snapshot(MAIN), type_name))


class BranchWriter(DataSourceArrowWriter):
    """Rows onto a branch, in one commit or not at all."""

    def __init__(self, stage: Stage, order: Order, schema: StructType, settings: Mapping[str, str]) -> None:
        self._stage = stage
        self._order = order
        self._schema = schema
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of one task to files."""
        taken_along(self._settings)
        return Written(pa.Table.from_batches(self._stage(iterator), PARTS))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Load the files of all tasks."""
        taken_along(self._settings)
        parts = [PARTS.empty_table(), *(one.parts for one in messages if isinstance(one, Written))]
        try:
            files = self._stage.files(pa.concat_tables(parts), arrow_schema(self._schema))
            with graph.open(self._stage.uri) as opened:
                # This process belongs to Spark: a session of its own here would be a second Spark.
                done = opened.load(files, mode=self._order.mode, engine="local", **self._order.how)
            _log.info("loaded %d entities of '%s' in commit %s", done.total, self._stage.key, done.commit)
        finally:
            self._stage.clear()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave nothing behind."""
        taken_along(self._settings)
        self._stage.clear()
