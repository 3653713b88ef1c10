"""The rows of a DataFrame as Arrow files that a load reads; each task writes those it has.

The files are in the graph's staging folder. Of a task that ran twice, only the files of the run that Spark
reports count; the others are removed with the folder.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate, repeat
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as kinds

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.root import Root, shared_root
from omnigraph.engine.load.sources.plan import file_of
from omnigraph.engine.load.sources.spark_source import SparkSource
from omnigraph.engine.load.spool import PassedRows, Spool
from omnigraph.engine.tasks.runner import Engine
from omnigraph.pipeline.fan_out import arrow_schema, map_partitions
from omnigraph.pipeline.progress import watch_stage
from omnigraph.pipeline.runner import SparkRunner
from omnigraph.pipeline.source_reader import open_source
from omnigraph.storage.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART_BYTES = 64 * 2**20
"""The approximate size of a file, which a load reads as one task."""
PARTS = pa.schema(
    [("partition", pa.int64()), ("number", pa.int64()), ("file", pa.string()), ("rows", pa.int64())]
)

_LONG_DIGITS = 18
"""Decimals of so many digits are 64-bit integers."""


@contextmanager
def spool_frame(frame: DataFrame, root: Root, key: str) -> Iterator[Spool]:
    """Write the rows of a DataFrame to files of a type; no row passes through this process."""
    spark = frame.sparkSession
    stage = Stage(root.uri, root.new_id(), key)
    try:
        with watch_stage(spark, "rows"):
            parts = map_partitions(spark, frame, stage, PARTS).toArrow()
        files = stage.list_files(parts, arrow_schema(frame.schema))
        yield Spool(files, Engine(SparkRunner(spark), "the rows are a DataFrame of Spark"))
    finally:
        stage.clear()


@contextmanager
def spool_source(spark: SparkSession, source: SparkSource, root: Root, key: str) -> Iterator[Spool]:
    """Write the rows of a source of Spark to files of a type; the source is read once."""
    with ExitStack() as files:
        with open_source(spark, source) as frame:
            spool = files.enter_context(spool_frame(frame, root, key))
        yield spool


@dataclass(frozen=True, slots=True)
class Stage:
    """The staged files of a type; a task calls it with the batches of its partition."""

    uri: str
    load: str
    """The staging folder of this load."""
    key: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        partition = frame_partition()
        for number, rows in enumerate(frame_portions(batches)):
            file = self._write_file(rows, f"{partition:05}-{number:05}-{uuid.uuid4().hex}")
            yield pa.record_batch([[partition], [number], [file], [rows.num_rows]], schema=PARTS)

    def list_files(self, parts: pa.Table, schema: pa.Schema) -> tuple[PassedRows, ...]:
        """Return the files of all tasks in the order of the rows; an empty frame has one empty file."""
        name = self.key.partition(":")[2]
        if not parts.num_rows:
            return (PassedRows(self._write_file(schema.empty_table(), "empty"), name),)
        ordered = parts.sort_by([("partition", "ascending"), ("number", "ascending")])
        files, rows = ordered["file"].to_pylist(), ordered["rows"].to_pylist()
        return tuple(map(PassedRows, files, repeat(name), accumulate(rows, initial=0)))

    def clear(self) -> None:
        """Remove all files."""
        self._root.objects.delete_prefix(self._place)

    @property
    def _root(self) -> Root:
        return shared_root(self.uri, self.load)

    @property
    def _place(self) -> Location:
        return self._root.layout.staging / self.load

    def _write_file(self, rows: pa.Table, folder: str) -> str:
        """Rows as a file that is named after their type, below a folder that is named after its kind."""
        stored = to_loadable(rows)
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_file(buffer, stored.schema) as writer:
            writer.write_table(stored)
        at = self._place / f"{folder}/{file_of(self.key)}"
        self._root.objects.write_bytes(at, buffer.getvalue().to_pybytes())
        return at.uri


def frame_partition() -> int:
    """Return the number of the partition that this task has."""
    from pyspark import TaskContext

    found = TaskContext.get()
    return 0 if found is None else int(found.partitionId())


def frame_portions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine batches to about the size of a file."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size > PART_BYTES:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def to_loadable(rows: pa.Table) -> pa.Table:
    """Convert rows to the types that a load accepts: whole decimals to integers."""
    columns = [_convert_column(rows.column(place)) for place in range(rows.num_columns)]
    return pa.Table.from_arrays(columns, names=rows.column_names)


def _convert_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if kinds.is_list(kind) and kinds.is_decimal(kind.value_type):
        return _items_to_integers(column)
    return _to_integers(column) if kinds.is_decimal(kind) else column


def _items_to_integers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    items = pa.chunked_array([chunk.flatten() for chunk in column.chunks], column.type.value_type)
    return column.cast(pa.list_(_to_integers(items).type))


def _to_integers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert decimals without a fraction to integers if they fit; the load reports those that do not."""
    if column.type.scale != 0:
        return column
    least = pc.min(column).as_py()
    wide = column.type.precision > _LONG_DIGITS and (least is None or least >= 0)
    try:
        return column.cast(pa.uint64() if wide else pa.int64())
    except pa.ArrowInvalid:
        return column
