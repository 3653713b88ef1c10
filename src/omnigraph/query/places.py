"""Where the row of an id is, one id at a time: a dictionary that newer versions of a table go on using."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from omnigraph.query.frame import NO_ROW

_BYTES = 150  # of an id in a dictionary, about
_SMALL = 1024
_SHARE = 16  # of the first ids may have come later; more, and a dictionary of all is made anew
_FEW = 4096


@dataclass(frozen=True, slots=True)
class Places:
    """The position of every id of one version of a table."""

    first: Mapping[str, int]
    """All ids of the version that it was made for."""
    kept_as: Hashable
    """Where in memory that is."""
    later: Mapping[str, int]
    """The ids of the rows that came since then, also where they replace a row."""
    alive: NDArray[np.bool_] | None = None
    """Which positions are rows of this version; None when all are."""

    @property
    def nbytes(self) -> int:
        """Memory taken, without that of the first ids where others hold them."""
        is_first = self.alive is None and not self.later
        return _SMALL + _BYTES * len(self.first if is_first else self.later)

    def of(self, id_: str | None) -> int:
        """The position of an id; NO_ROW where there is none."""
        if id_ is None:
            return NO_ROW
        place = self.later.get(id_)
        if place is None:
            place = self.first.get(id_, NO_ROW)
        return place if place < 0 or self.alive is None or self.alive[place] else NO_ROW

    def grown(self, ids: Iterable[str], behind: int, alive: NDArray[np.bool_] | None) -> Places | None:
        """The same after rows with these ids came behind so many positions, and others died.

        None when it is time for a dictionary of all.
        """
        later = {**self.later, **{id_: behind + place for place, id_ in enumerate(ids)}}
        if len(later) > _FEW + len(self.first) // _SHARE:
            return None
        return Places(self.first, self.kept_as, later, alive)


def places_of(ids: Iterable[str | None], kept_as: Hashable) -> Places:
    """The positions of ids in their order; null is no row."""
    return Places({id_: place for place, id_ in enumerate(ids) if id_ is not None}, kept_as, {})
