"""Rows derived from an older version: some died, new ones were appended.

Only the arrays of the first version in such a chain are as long as the table, and all later versions share
them. So a read after a small write costs as much as the write.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.query.frame import NO_ROW, Positions

RowIdArray = NDArray[np.uint64]

_SHARE = 16  # 1 / _SHARE of the first rows may be added; with more, all are rebuilt as one
_FEW = 4096


def needs_rebuild(later: int, first: int) -> bool:
    """Whether so many rows were added that the arrays should be rebuilt as one."""
    return later > _FEW + first // _SHARE


@dataclass(frozen=True, slots=True)
class RowNumbers:
    """The row id of each position, and the other way round."""

    first: RowIdArray
    """Those of the version that was numbered from scratch."""
    known: RowIdArray
    """The same, ascending, of rows that were alive then."""
    order: Positions
    """Where each of these is."""
    kept_as: Hashable
    """Where in memory these are."""
    later: RowIdArray
    """Those of the positions behind."""
    later_known: RowIdArray
    """The same, ascending, each once."""
    later_order: Positions
    """The last position of each of these: where a row is written again, it keeps its row id."""

    @classmethod
    def of(cls, row_ids: RowIdArray, live: Positions, kept_as: Hashable) -> RowNumbers:
        """The numbers of rows at their positions; `live` are those that exist."""
        ids = row_ids if len(live) == len(row_ids) else row_ids[live]
        nothing, nowhere = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
        if not bool((ids[1:] > ids[:-1]).all()):  # as they are where rows were never changed
            order = np.argsort(ids, kind="stable")
            ids, live = ids[order], live[order]
        return cls(row_ids, ids, live, kept_as, nothing, nothing, nowhere)

    @property
    def nbytes(self) -> int:
        """Memory taken by those of the first version."""
        shared = self.known is self.first
        return self.first.nbytes + self.order.nbytes + (0 if shared else self.known.nbytes)

    @property
    def later_nbytes(self) -> int:
        """Memory taken by those that came later."""
        return self.later.nbytes + self.later_known.nbytes + self.later_order.nbytes

    def __len__(self) -> int:
        return len(self.first) + len(self.later)

    def all(self) -> RowIdArray:
        """The row id of every position."""
        return np.concatenate([self.first, self.later]) if len(self.later) else self.first

    def at(self, positions: Positions) -> RowIdArray:
        """The row ids of these positions."""
        behind = positions - len(self.first)
        if not len(self.later):
            return self.first[positions]
        later = self.later[np.maximum(behind, 0)]
        if not len(self.first):
            return later
        return np.where(behind >= 0, later, self.first[np.minimum(positions, len(self.first) - 1)])

    def grow(self, added: RowIdArray) -> RowNumbers:
        """Return the numbers with more rows appended."""
        later = np.concatenate([self.later, added])
        # Of equal ones the last: `unique` returns the first, so the order is reversed.
        known, first = np.unique(later[::-1], return_index=True)
        order = len(self.first) + len(later) - 1 - first
        return replace(self, later=later, later_known=known, later_order=order)

    def positions_of(self, row_ids: RowIdArray, dead: Positions) -> Positions:
        """The position of each row id; NO_ROW where there is none that is alive."""
        found = _looked_up(self.known, self.order, row_ids)
        if len(self.later):
            newer = _looked_up(self.later_known, self.later_order, row_ids)
            found = np.where(newer >= 0, newer, found)
        return np.where(is_among(dead, found), NO_ROW, found) if len(dead) else found


def is_among(ordered: Positions, asked: Positions) -> NDArray[np.bool_]:
    """Which of the positions are among these, which are in order."""
    if not len(ordered):
        return np.zeros(len(asked), dtype=np.bool_)
    places = np.minimum(np.searchsorted(ordered, asked), len(ordered) - 1)
    found: NDArray[np.bool_] = ordered[places] == asked
    return found


def _looked_up(known: RowIdArray, order: Positions, asked: RowIdArray) -> Positions:
    if not len(known):
        return np.full(len(asked), NO_ROW, dtype=np.int64)
    places = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    return np.where(known[places] == asked, order[places], NO_ROW)


@dataclass(frozen=True, slots=True)
class GrowingColumn:
    """A column by position: the array of an older version, and the values appended since."""

    first: pa.Array
    kept_as: Hashable
    """Where in memory the first values are."""
    later: pa.Array | None = None

    @property
    def later_nbytes(self) -> int:
        """Memory taken by what came later."""
        return 0 if self.later is None else int(self.later.nbytes)

    def grow(self, added: pa.Array) -> GrowingColumn | None:
        """Return the column with values appended; None when it should be rebuilt as one array."""
        later = len(added) + (0 if self.later is None else len(self.later))
        return None if needs_rebuild(later, len(self.first)) else self.joined(added)

    def joined(self, added: pa.Array) -> GrowingColumn:
        """Return the column with values appended, however many."""
        added = added if added.type.equals(self.first.type) else added.cast(self.first.type)
        later = added if self.later is None else pa.concat_arrays([self.later, added])
        return GrowingColumn(self.first, self.kept_as, later)

    def whole(self) -> pa.Array:
        """All values."""
        return self.first if self.later is None else pa.concat_arrays([self.first, self.later])

    def values_from(self, start: int) -> pa.Array:
        """The values at a position and behind it."""
        behind = start - len(self.first)
        if self.later is None or behind < 0:
            held = self.first.slice(start)
            return held if self.later is None else pa.concat_arrays([held, self.later])
        return self.later.slice(behind)

    def take(self, positions: Positions) -> pa.Array:
        """The values at these positions, which are those of rows."""
        later = self.later
        if later is None:
            return self.first.take(pa.array(positions))
        behind = positions >= len(self.first)
        if not behind.any():
            return self.first.take(pa.array(positions))
        new = later.take(pa.array(positions[behind] - len(self.first)))
        if len(new) == len(positions):
            return new
        old = self.first.take(pa.array(positions[~behind]))
        places = np.empty(len(positions), dtype=np.int64)
        places[~behind], places[behind] = np.arange(len(old)), len(old) + np.arange(len(new))
        return pa.concat_arrays([old, new]).take(pa.array(places))

    def cell(self, place: int) -> pa.Array:
        """The one value at a position, not copied."""
        if self.later is None or place < len(self.first):
            return self.first.slice(place, 1)
        return self.later.slice(place - len(self.first), 1)


@dataclass(frozen=True, slots=True)
class Growth:
    """How the rows of a version derive from those of an older one."""

    base: tuple[Hashable, ...]
    """The identity of the older rows."""
    before: tuple[tuple[Hashable, ...], ...]
    """The identities of the rows from which those of the base grew, the newest first, and not all of them."""
    base_count: int
    removed: Positions
    """The positions that are dead now and were not before."""
    added: RowIdArray
    """The row ids of the positions behind those of the base."""
    values: pa.Table | None
    """What was read of these rows to know them."""
    dead: Positions
    """All dead positions, ascending."""
    numbers: RowNumbers

    @property
    def nbytes(self) -> int:
        """Memory taken, without what the first version holds."""
        read = 0 if self.values is None else int(self.values.nbytes)
        return self.removed.nbytes + self.added.nbytes + self.dead.nbytes + self.numbers.later_nbytes + read


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
