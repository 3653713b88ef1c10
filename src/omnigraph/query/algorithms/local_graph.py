"""A graph for algorithms in this process: one block, made of the topologies that reads keep in memory.

Nodes are numbers from 0 on: by type, then by id, so that equal graphs have equal numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import table_key
from omnigraph.errors import BadRequest
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.lang.values import shorten_legibly
from omnigraph.progress import begin_stage
from omnigraph.query.algorithms.algorithm_request import Selection
from omnigraph.query.algorithms.edge_block import Arrangement, Block, Numbers, Part, build_block, orient_edges
from omnigraph.query.expressions.pushdown import compile_filter
from omnigraph.query.frame import NO_ROW
from omnigraph.query.rows import Rows
from omnigraph.query.sources import SnapshotSources

_PIECE = 1 << 20
_MOST_BYTES = 1 << 31


@dataclass(frozen=True, slots=True)
class Numbering:
    """The ids of each type in their order; the first of a type follows the last of the type before."""

    ids: Mapping[str, pa.Array]

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return sum(map(len, self.ids.values()))

    def start(self, type_name: str) -> int:
        """The number of the first node of a type."""
        return sum(len(ids) for name, ids in self.ids.items() if name < type_name)

    def found(self, named: str) -> int:
        """The number of a node: by its id, or by `Type:id` where several types have that id."""
        places = self._find_places(named)
        if not places and ":" in named:
            type_name, _, id_ = named.partition(":")
            places = {name: at for name, at in self._find_places(id_).items() if name == type_name}
        if len(places) == 1:
            return next(iter(places.values()))
        if places:
            ways = " or ".join(f"'{name}:{shorten_legibly(named)}'" for name in places)
            raise BadRequest(f"there are several nodes '{shorten_legibly(named)}'", remedy=f"name {ways}")
        kinds = ", ".join(self.ids)
        raise BadRequest(
            f"there is no node '{shorten_legibly(named)}' among: {kinds}", remedy="name a node by its id"
        )

    def _find_places(self, id_: str) -> dict[str, int]:
        at = {name: pc.index(ids, pa.scalar(id_, ids.type)).as_py() for name, ids in self.ids.items()}
        return {name: self.start(name) + place for name, place in at.items() if place >= 0}

    def table(self, values: pa.Array) -> pa.Table:
        """A row for each node: its id, its type and its value."""
        names = pa.array(list(self.ids), pa.string())
        lengths = [len(ids) for ids in self.ids.values()]
        types = names.take(pa.array(np.repeat(np.arange(len(lengths)), lengths)))
        texts = [piece.cast(pa.string()) for ids in self.ids.values() for piece in _split_ids(ids)]
        return pa.table({"id": pa.chunked_array(texts, pa.string()), "type": types, "value": values})


def _split_ids(ids: pa.Array) -> Iterator[pa.Array]:
    """Ids in pieces that are short enough for texts with 32-bit offsets."""
    if not pa.types.is_large_string(ids.type):
        yield ids
        return
    for start in range(0, len(ids), _PIECE):
        yield ids.slice(start, _PIECE)


def concat_ids(ids: pa.ChunkedArray) -> pa.Array:
    """Ids of any total length in one array."""
    if ids.num_chunks == 0:
        return pa.array([], ids.type)
    kind = ids.type if ids.nbytes < _MOST_BYTES else pa.large_string()
    return pa.concat_arrays([chunk.cast(kind) for chunk in ids.chunks])


def sort_ids(ids: pa.Array) -> tuple[pa.Array, Numbers]:
    """Ids sorted, and the place that each of them has then."""
    if len(ids) < 2 or pc.all(pc.less(ids.slice(0, len(ids) - 1), ids.slice(1))).as_py():
        return ids, np.arange(len(ids))
    order = pc.sort_indices(ids)
    places = np.empty(len(ids), dtype=np.int64)
    places[order.to_numpy()] = np.arange(len(ids))
    return ids.take(order), places


Weights = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LocalEdges:
    """All edges in one block."""

    count: int
    block: Block
    corners: int = 1

    def parts(self, stage: str, task: Callable[[Block], Part]) -> Iterator[Part]:
        """What a task makes of it."""
        begun = begin_stage(stage, tasks=1)
        part = task(self.block)
        begun.advance(tasks=1)
        begun.end()
        yield part


class LocalGraph:
    """The chosen part of one snapshot."""

    def __init__(self, sources: SnapshotSources, selection: Selection) -> None:
        self._sources = sources
        self._selection = selection

    @cached_property
    def _numbered(self) -> dict[str, tuple[pa.Array, Numbers]]:
        return {
            name: _by_position(self._sources.nodes(name), self._find_passing(table_key("node", name)))
            for name in self._selection.nodes
        }

    def _find_passing(self, key: str) -> Numbers | None:
        """The positions of the rows that pass the filters of their type; None is all."""
        comparisons = self._selection.where.get(key)
        if comparisons is None:
            return None
        rows, where = self._sources.rows(key), compile_filter(self._sources.catalog, key, comparisons)
        found = rows.positions_of(rows.table.scan([], where=where, row_ids=True).column("_rowid").to_numpy())
        return np.sort(found[found >= 0])

    @cached_property
    def nodes(self) -> Numbering:
        """The nodes by number."""
        return Numbering({name: ids for name, (ids, _) in self._numbered.items()})

    def edges(self, arrangement: Arrangement) -> LocalEdges:
        """The edges in one block."""
        ends = [self._find_ends(edge, arrangement.weight) for edge in self._selection.edges]
        none = np.empty(0, dtype=np.int64)
        sources = np.concatenate([none, *(each[0] for each in ends)])
        targets = np.concatenate([none, *(each[1] for each in ends)])
        weights = np.concatenate([np.empty(0), *(each[2] for each in ends)]) if arrangement.weight else None
        arrive, leave, weights = orient_edges(sources, targets, weights, arrangement.way)
        count = self.nodes.count
        block = build_block(arrive, leave, count, weights, distinct=arrangement.distinct, stays=True)
        return LocalEdges(count, block)

    def _find_ends(self, edge: EdgeType, weight: str | None) -> tuple[Numbers, Numbers, Weights]:
        linked = self._sources.linked(edge.name)
        near = self._number_positions(edge.source, linked.source_positions)[linked.topology.src]
        far = self._number_positions(edge.target, linked.target_positions)[linked.topology.dst]
        alive = np.flatnonzero((near >= 0) & (far >= 0) & (linked.topology.src >= 0))
        passing = self._find_passing(table_key("edge", edge.name))
        if passing is not None:
            alive = np.intersect1d(alive, passing, assume_unique=True)
        if weight is None:
            return near[alive], far[alive], np.empty(0)
        column = self._sources.edges(edge.name).column(weight)
        return near[alive], far[alive], weights_of(column.take(pa.array(alive)), edge.name, weight)

    def _number_positions(self, type_name: str, positions: Numbers) -> Numbers:
        """The number of each code, and one more for what has none."""
        places = self._numbered[type_name][1]
        by_code = np.append(places, NO_ROW)[positions]
        by_code[by_code >= 0] += self.nodes.start(type_name)
        return np.append(by_code, NO_ROW)


def _by_position(rows: Rows, passing: Numbers | None) -> tuple[pa.Array, Numbers]:
    """The ids in their order, of all rows or of those at some positions, and the place of each among them."""
    live = rows.positions() if passing is None else passing
    whole = passing is None and rows.alive is None
    ids, places = sort_ids(rows.ids() if whole else rows.ids().take(pa.array(live)))
    by_position = np.full(rows.count, NO_ROW, dtype=np.int64)
    by_position[live] = places
    return ids, by_position


def weights_of(column: pa.Array, edge: str, name: str) -> Weights:
    """Weights as numbers; one that is missing, negative or no number at all is refused."""
    if column.null_count:
        raise BadRequest(
            f"an edge '{edge}' has no '{name}'",
            remedy=f"give every edge a '{name}', or leave the weight out",
        )
    found = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    wrong = found[~(found >= 0)]
    if len(wrong):
        raise BadRequest(
            f"an edge '{edge}' has the '{name}' {wrong[0]}; a weight is not negative",
            remedy="choose another property, or leave the weight out",
        )
    return found
