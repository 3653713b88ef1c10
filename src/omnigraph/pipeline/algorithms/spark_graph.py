"""A graph for algorithms on Spark: nodes are numbered here, edges are blocks that tasks keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.table_types import ID
from omnigraph.errors import BadRequest
from omnigraph.pipeline.algorithms.edge_blocks import (
    BLOCKS,
    ByBlock,
    BySource,
    ByTarget,
    IntoBlocks,
    Piece,
    StraightToBlocks,
    emit_numbers,
    unpack_blocks,
)
from omnigraph.pipeline.connection import is_connect
from omnigraph.pipeline.fan_out import arrow_schema, fan_out, map_partitions, spark_schema
from omnigraph.pipeline.map_reduce import BLOBS, reduce_buckets
from omnigraph.pipeline.progress import watch_stage
from omnigraph.pipeline.runner import SparkRunner
from omnigraph.pipeline.table_scan import plan_scan
from omnigraph.query.algorithms.algorithm_request import Selection
from omnigraph.query.algorithms.edge_block import Arrangement, Block, Part, list_corners
from omnigraph.query.algorithms.local_graph import Numbering, concat_ids, sort_ids
from omnigraph.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EDGES_OF_BLOCK = 4_000_000
BYTES_FOR_EVERY_TASK = 64 * 2**20
"""The ids of all nodes go to every task up to so many bytes, about three million: it saves two shuffles."""
MOST_COLOURS = 12
MOST_NODES_OVER_CONNECT = 12_000_000
"""A vector with a value for each goes to a server in one message, which ends at 128 MiB."""
PARTS = pa.schema([("nodes", pa.binary()), ("values", pa.binary()), ("kind", pa.string())])


@dataclass(frozen=True)
class SparkEdges:
    """Edges in blocks that Spark keeps, in memory and beyond that on disk."""

    spark: SparkSession
    blocks: DataFrame
    count: int
    corners: int

    def parts(self, stage: str, task: Callable[[Block], Part]) -> Iterator[Part]:
        """One Spark task for each block; the vectors that a task holds travel with it."""
        frame = map_partitions(self.spark, self.blocks, _Parts(task), PARTS)
        with watch_stage(self.spark, stage):
            found = frame.toArrow()
        for nodes, values, kind in zip(*(found.column(name) for name in PARTS.names), strict=True):
            yield (
                np.frombuffer(nodes.as_buffer(), np.int64),
                np.frombuffer(values.as_buffer(), np.dtype(kind.as_py())),
            )


@dataclass(frozen=True, slots=True)
class _Parts:
    """A task on blocks, as one on the rows that hold them."""

    task: Callable[[Block], Part]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for block in unpack_blocks(batch):
                nodes, values = self.task(block)
                row = (nodes.tobytes(), values.tobytes(), values.dtype.str)
                yield pa.record_batch([pa.array([each]) for each in row], schema=PARTS)


class SparkGraph:
    """The chosen part of one snapshot."""

    def __init__(self, spark: SparkSession, uri: str, snapshot: Snapshot, selection: Selection) -> None:
        self._spark = spark
        self._uri = uri
        self._snapshot = snapshot
        self._selection = selection
        self.nodes = Numbering({name: self._read_ids(name) for name in selection.nodes})
        if is_connect(spark) and self.nodes.count > MOST_NODES_OVER_CONNECT:
            raise BadRequest(
                f"{self.nodes.count} nodes are more than go to a Spark Connect server at once",
                remedy="stop the warm server, or name a master such as local[*] or spark://host:port",
            )

    def _read_ids(self, type_name: str) -> pa.Array:
        key = table_key("node", type_name)
        comparisons = self._selection.where.get(key)
        if comparisons is None:
            ids = self._snapshot.rows(key, columns=[ID]).column(ID)
        else:
            scan = plan_scan(self._uri, self._snapshot, key, [ID], comparisons)
            parts = [batch.column(0) for some in scan.plan_pieces() for batch in scan(some)]
            ids = pa.chunked_array(parts, pa.string())
        return sort_ids(concat_ids(ids))[0]

    @contextmanager
    def arrange_edges(self, arrangement: Arrangement) -> Iterator[SparkEdges]:
        """The edges in blocks, there while the block lasts."""
        cores = SparkRunner(self._spark).cores
        many = max(1, -(-self._edge_count() // EDGES_OF_BLOCK))
        buckets = max(cores, many)
        # Each task of a corner has about nine parts in the square of the colours of all edges.
        colours = min(MOST_COLOURS, max(2 if cores > 1 else 1, int(3 * many**0.5)))
        blocks = self._build_blocks(arrangement, buckets, colours).persist()
        try:
            yield SparkEdges(self._spark, blocks, self.nodes.count, colours)
        finally:
            blocks.unpersist()

    def _build_blocks(self, arrangement: Arrangement, buckets: int, colours: int) -> DataFrame:
        spark = self._spark
        places = len(list_corners(colours)) if arrangement.corners else buckets
        into = IntoBlocks(arrangement.distinct, self.nodes.count)
        placing = ByBlock(arrangement, places, colours)
        if sum(ids.nbytes for ids in self.nodes.ids.values()) <= BYTES_FOR_EVERY_TASK:
            straight = StraightToBlocks(self.nodes, placing)
            return reduce_buckets(
                spark, fan_out(spark, self._plan_pieces(arrangement), straight, BLOBS), into, BLOCKS, places
            )
        numbered = self._build_number_frame(buckets)
        raw = fan_out(spark, self._plan_pieces(arrangement), BySource(arrangement.weight, buckets), BLOBS)
        half = reduce_buckets(spark, raw.union(numbered), ByTarget(buckets), BLOBS, buckets)
        whole = reduce_buckets(spark, half.union(numbered), placing, BLOBS, buckets)
        return reduce_buckets(spark, whole, into, BLOCKS, places)

    def _build_number_frame(self, buckets: int) -> DataFrame:
        wanted = arrow_schema(spark_schema(BLOBS))
        rows = pa.Table.from_batches(list(emit_numbers(self.nodes, buckets)), BLOBS)
        return self._spark.createDataFrame(rows.cast(wanted), spark_schema(BLOBS))

    def _plan_pieces(self, arrangement: Arrangement) -> list[Piece]:
        weight = [] if arrangement.weight is None else [arrangement.weight]
        found: list[Piece] = []
        for edge in self._selection.edges:
            key = table_key("edge", edge.name)
            columns, comparisons = ["src", "dst", *weight], self._selection.where.get(key)
            scan = plan_scan(self._uri, self._snapshot, key, columns, comparisons)
            ends = (edge.name, edge.source, edge.target)
            found += [Piece(scan, some, *ends) for some in scan.plan_pieces()]
        return found

    def _edge_count(self) -> int:
        tables = self._snapshot.tables
        return sum(tables[table_key("edge", edge.name)].rows or 0 for edge in self._selection.edges)
