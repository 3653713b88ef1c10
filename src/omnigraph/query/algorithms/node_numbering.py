"""Nodes as numbers from 0 on: by type, then by id, so that equal graphs have equal numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import BadRequest
from omnigraph.lang.values import shorten_legibly

Numbers = NDArray[np.int64]

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
        places = self._places(named)
        if not places and ":" in named:
            type_name, _, id_ = named.partition(":")
            places = {name: at for name, at in self._places(id_).items() if name == type_name}
        if len(places) == 1:
            return next(iter(places.values()))
        if places:
            ways = " or ".join(f"'{name}:{shorten_legibly(named)}'" for name in places)
            raise BadRequest(f"there are several nodes '{shorten_legibly(named)}'", remedy=f"name {ways}")
        kinds = ", ".join(self.ids)
        raise BadRequest(
            f"there is no node '{shorten_legibly(named)}' among: {kinds}", remedy="name a node by its id"
        )

    def _places(self, id_: str) -> dict[str, int]:
        at = {name: pc.index(ids, pa.scalar(id_, ids.type)).as_py() for name, ids in self.ids.items()}
        return {name: self.start(name) + place for name, place in at.items() if place >= 0}

    def table(self, values: pa.Array) -> pa.Table:
        """A row for each node: its id, its type and its value."""
        names = pa.array(list(self.ids), pa.string())
        lengths = [len(ids) for ids in self.ids.values()]
        types = names.take(pa.array(np.repeat(np.arange(len(lengths)), lengths)))
        texts = [piece.cast(pa.string()) for ids in self.ids.values() for piece in _pieces(ids)]
        return pa.table({"id": pa.chunked_array(texts, pa.string()), "type": types, "value": values})


def _pieces(ids: pa.Array) -> Iterator[pa.Array]:
    """Ids in pieces that are short enough for texts with 32-bit offsets."""
    if not pa.types.is_large_string(ids.type):
        yield ids
        return
    for start in range(0, len(ids), _PIECE):
        yield ids.slice(start, _PIECE)


def whole_ids(ids: pa.ChunkedArray) -> pa.Array:
    """Ids of any total length in one array."""
    if ids.num_chunks == 0:
        return pa.array([], ids.type)
    kind = ids.type if ids.nbytes < _MOST_BYTES else pa.large_string()
    return pa.concat_arrays([chunk.cast(kind) for chunk in ids.chunks])


def in_order(ids: pa.Array) -> tuple[pa.Array, Numbers]:
    """Ids sorted, and the place that each of them has then."""
    if len(ids) < 2 or pc.all(pc.less(ids.slice(0, len(ids) - 1), ids.slice(1))).as_py():
        return ids, np.arange(len(ids))
    order = pc.sort_indices(ids)
    places = np.empty(len(ids), dtype=np.int64)
    places[order.to_numpy()] = np.arange(len(ids))
    return ids.take(order), places
