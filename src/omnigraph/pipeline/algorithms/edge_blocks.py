"""Edges from ids to numbers, and from there into blocks: tasks that bring rows together by Arrow.

Where the ids of all nodes are small enough to go to every task, an edge is numbered where it is read, and
travels once: to its block. Otherwise it travels three times: to where its source is numbered, to where its
target is, and to its block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.pipeline.map_reduce import emit, emit_to
from omnigraph.pipeline.table_scan import Fragments, Scan
from omnigraph.query.algorithms.edge_block import (
    Arrangement,
    Block,
    Numbers,
    build_block,
    find_corners,
    orient_edges,
)
from omnigraph.query.algorithms.local_graph import Numbering, weights_of

NODES, EDGES = "nodes", "edges"
BLOCKS = pa.schema(
    [
        ("corner", pa.int32()),
        ("targets", pa.binary()),
        ("first", pa.binary()),
        ("sources", pa.binary()),
        ("weights", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some fragments of an edge type."""

    scan: Scan
    fragments: Fragments
    edge: str
    source: str
    target: str

    def read_edges(self, weight: str | None) -> Iterator[pa.Table]:
        """Yield the edges with their ends, and a weight if there is one."""
        for batch in self.scan(self.fragments):
            columns = {"source": batch.column("src"), "target": batch.column("dst")}
            if weight is not None:
                columns["weight"] = pa.array(weights_of(batch.column(weight), self.edge, weight))
            yield pa.table(columns)


@dataclass(frozen=True, slots=True)
class BySource:
    """The edges of a piece, on their way to the numbers of their sources."""

    weight: str | None
    buckets: int

    def __call__(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        for edges in piece.read_edges(self.weight):
            yield from emit(f"{EDGES}:{piece.source}:{piece.target}", edges, "source", self.buckets)


def emit_numbers(nodes: Numbering, buckets: int) -> Iterator[pa.RecordBatch]:
    """Every node with its number, on its way to the edges that have its id at an end."""
    for name in nodes.ids:
        yield from emit(f"{NODES}:{name}", _numbers_of(nodes, name), "id", buckets)


@dataclass(frozen=True, slots=True)
class ByTarget:
    """Edges whose sources are numbered here, on their way to the numbers of their targets."""

    buckets: int

    def __call__(self, rows: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
        for tag, edges in rows.items():
            kind, _, ends = tag.partition(":")
            if kind == EDGES:
                source, _, target = ends.partition(":")
                met = _replace_ids(edges, "source", rows.get(f"{NODES}:{source}"))
                yield from emit(f"{EDGES}:{target}", met, "target", self.buckets)


@dataclass(frozen=True, slots=True)
class ByBlock:
    """Edges whose targets are numbered here, turned as an algorithm wants them, on their way to blocks."""

    arrangement: Arrangement
    buckets: int
    colours: int

    def __call__(self, rows: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
        for tag, edges in rows.items():
            kind, _, target = tag.partition(":")
            if kind == EDGES:
                yield from self.place_edges(_replace_ids(edges, "target", rows.get(f"{NODES}:{target}")))

    def place_edges(self, edges: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield edges between numbers for the blocks they belong to."""
        weights = edges.column("weight").to_numpy() if "weight" in edges.column_names else None
        ends = edges.column("source").to_numpy(), edges.column("target").to_numpy()
        arrive, leave, weights = orient_edges(*ends, weights, self.arrangement.way)
        if self.arrangement.corners:
            for corner in find_corners(arrive, leave, self.colours):
                rows = _build_table(arrive, leave, None).append_column("corner", pa.array(corner))
                yield from emit_to(EDGES, rows, corner, self.buckets)
        else:
            yield from emit_to(
                EDGES, _build_table(arrive, leave, weights), arrive % self.buckets, self.buckets
            )


@dataclass(frozen=True, slots=True)
class StraightToBlocks:
    """The edges of a piece, numbered by a task that has the ids of all nodes, on their way to blocks."""

    nodes: Numbering
    placing: ByBlock

    def __call__(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        sources, targets = _numbers_of(self.nodes, piece.source), _numbers_of(self.nodes, piece.target)
        for edges in piece.read_edges(self.placing.arrangement.weight):
            met = _replace_ids(edges, "source", sources)
            yield from self.placing.place_edges(_replace_ids(met, "target", targets))


@dataclass(frozen=True, slots=True)
class IntoBlocks:
    """The block of all edges that arrived in one place."""

    distinct: bool
    count: int

    def __call__(self, rows: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
        edges = rows[EDGES]
        weights = edges.column("weight").to_numpy() if "weight" in edges.column_names else None
        corner = edges.column("corner")[0].as_py() if "corner" in edges.column_names else 0
        made = build_block(
            edges.column("target").to_numpy(),
            edges.column("source").to_numpy(),
            self.count,
            weights,
            distinct=self.distinct,
            corner=corner,
        )
        yield pack_block(made)


def _numbers_of(nodes: Numbering, name: str) -> pa.Table:
    start, ids = nodes.start(name), nodes.ids[name]
    return pa.table({"id": ids, "number": np.arange(start, start + len(ids))})


def _replace_ids(edges: pa.Table, end: str, nodes: pa.Table | None) -> pa.Table:
    """The edges with numbers instead of ids at one end; those whose node is not there go."""
    if nodes is None:
        return edges.slice(0, 0).set_column(edges.column_names.index(end), end, pa.array([], pa.int64()))
    known = nodes.column("id").cast(edges.column(end).type)
    places = pc.index_in(edges.column(end), value_set=known)
    found = nodes.column("number").take(places.combine_chunks())
    whole = edges.set_column(edges.column_names.index(end), end, found)
    return whole.filter(found.is_valid()) if found.null_count else whole


def _build_table(targets: Numbers, sources: Numbers, weights: object) -> pa.Table:
    columns = {"target": targets, "source": sources}
    return pa.table(columns if weights is None else {**columns, "weight": weights})


def pack_block(block: Block) -> pa.RecordBatch:
    """A block as a row."""
    arrays = (block.targets, block.first, block.sources, block.weights)
    row = [block.corner, *(None if each is None else each.tobytes() for each in arrays)]
    return pa.record_batch(
        [pa.array([value], field.type) for value, field in zip(row, BLOCKS, strict=True)], schema=BLOCKS
    )


def unpack_blocks(batch: pa.RecordBatch) -> Iterator[Block]:
    """The blocks of a batch; nothing is copied."""
    for row in range(batch.num_rows):
        corner, targets, first, sources, weights = (batch.column(name)[row] for name in BLOCKS.names)
        yield Block(
            np.frombuffer(targets.as_buffer(), np.int64),
            np.frombuffer(first.as_buffer(), np.int64),
            np.frombuffer(sources.as_buffer(), np.int64),
            np.frombuffer(weights.as_buffer(), np.float64) if weights.is_valid else None,
            corner.as_py(),
        )
