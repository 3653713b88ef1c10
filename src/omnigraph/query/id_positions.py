"""A dictionary from ids to row positions, which newer versions of a table extend."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.query.frame import NO_ROW
from omnigraph.query.row_growth import needs_rebuild

_BYTES = 150  # of an id in a dictionary, about
_SMALL = 1024
_GONE_BYTES = 64  # of a number in a set, about
_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class IdPositions:
    """The position of every id of one version of a table."""

    first: Mapping[str, int]
    """All ids of the version that it was made for."""
    kept_as: Hashable
    """Where in memory that is."""
    later: Mapping[str, int]
    """The ids of the rows that came since then, also where they replace a row."""
    gone: frozenset[int] = frozenset()
    """Positions that died since then."""

    @property
    def nbytes(self) -> int:
        """Memory taken, without that of the first ids where others hold them."""
        if not self.later and not self.gone:
            return _SMALL + _BYTES * len(self.first)
        return _SMALL + _BYTES * len(self.later) + _GONE_BYTES * len(self.gone)

    def find(self, id_: str | None) -> int:
        """Return the position of an id; NO_ROW where there is none."""
        if id_ is None:
            return NO_ROW
        place = self.later.get(id_)
        if place is None:
            place = self.first.get(id_, NO_ROW)
        return NO_ROW if place in self.gone else place

    def grow(self, ids: Iterable[str], behind: int, removed: Iterable[int]) -> IdPositions | None:
        """Return the positions after rows with these ids were appended behind `behind` and others died.

        None when the dictionary should be rebuilt.
        """
        later = {**self.later, **{id_: behind + place for place, id_ in enumerate(ids)}}
        gone = self.gone.union(removed)
        if needs_rebuild(len(later) + len(gone), len(self.first)):
            return None
        return IdPositions(self.first, self.kept_as, later, gone)


def index_ids(ids: pa.Array, kept_as: Hashable) -> IdPositions:
    """Return the positions of ids in their order; null is no row."""
    places: dict[str, int] = {}
    for start in range(0, len(ids), _AT_ONCE):  # in between, other threads of this process have their turn
        some = ids.slice(start, _AT_ONCE).to_pylist()
        places.update({id_: place for place, id_ in enumerate(some, start) if id_ is not None})
    return IdPositions(places, kept_as, {})
