"""Runs of places in an array: expanded into single places, and split into ranges of limited size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from omnigraph.query.frame import Positions
from omnigraph.query.topology.adjacency import Counts


def expand_runs(first: Counts, lengths: Counts) -> tuple[Positions, Positions]:
    """Return the run index and the place of every element of the runs that start at `first`."""
    return np.repeat(np.arange(len(lengths)), lengths), run_places(first, lengths)


def run_places(first: Counts, lengths: Counts) -> Positions:
    """Return every place of the runs that start at `first`."""
    ends = np.cumsum(lengths)
    places = np.repeat(first - (ends - lengths), lengths)
    places += np.arange(len(places))
    return places


def split_runs(lengths: Counts, chunk: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of runs that together have at most `chunk` places, or are one longer run."""
    ends = np.cumsum(lengths)
    if len(ends) and ends[-1] <= chunk:
        yield 0, len(ends)
        return
    begin = done = 0
    while begin < len(ends):
        end = max(begin + 1, int(np.searchsorted(ends, done + chunk, side="right")))
        yield begin, end
        begin, done = end, int(ends[end - 1])
