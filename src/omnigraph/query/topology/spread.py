"""Runs of places written out one by one, and long work cut into pieces."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from omnigraph.query.frame import Positions
from omnigraph.query.topology.adjacency import Counts


def spread(first: Counts, lengths: Counts) -> tuple[Positions, Positions]:
    """Every place of the runs that start at `first`, with the index of its run."""
    return np.repeat(np.arange(len(lengths)), lengths), places_of(first, lengths)


def places_of(first: Counts, lengths: Counts) -> Positions:
    """Every place of the runs that start at `first`."""
    ends = np.cumsum(lengths)
    places = np.repeat(first - (ends - lengths), lengths)
    places += np.arange(len(places))
    return places


def pieces(lengths: Counts, chunk: int) -> Iterator[tuple[int, int]]:
    """Ranges of runs that together have at most `chunk` places, or are one longer run."""
    ends = np.cumsum(lengths)
    if len(ends) and ends[-1] <= chunk:
        yield 0, len(ends)
        return
    begin = done = 0
    while begin < len(ends):
        end = max(begin + 1, int(np.searchsorted(ends, done + chunk, side="right")))
        yield begin, end
        begin, done = end, int(ends[end - 1])
