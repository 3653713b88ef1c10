"""Where nodes stand in a picture, and in which colours; the same every time."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omnigraph.errors import MissingExtra
from omnigraph.notebook.subgraph import Subgraph

NEEDED = ("igraph", "ipysigma", "matplotlib")


def require_packages() -> None:
    """Fail before anything is read when a package for pictures is not installed."""
    for name in NEEDED:
        if find_spec(name) is None:
            raise MissingExtra("draw", package=name, extra="notebook")


def load_package(name: str) -> Any:
    """A module of one of them, loaded when the first picture needs it."""
    return import_module(name)


Places = NDArray[np.float64]

COLOURS = (
    "#4e79a7",
    "#f28e2b",
    "#59a14f",
    "#e15759",
    "#b07aa1",
    "#76b7b2",
    "#edc948",
    "#9c755f",
    "#ff9da7",
    "#7f7f7f",
)
_GOLDEN = math.pi * (3 - math.sqrt(5))


def to_igraph(part: Subgraph) -> Any:
    """The part as an igraph graph: nodes are its vertices, in order."""
    return load_package("igraph").Graph(n=len(part.nodes), edges=part.ends.tolist(), directed=True)


def compute_positions(graph: Any) -> Places:
    """A place for each vertex, close to those it is joined with, from 0 to 1 both ways."""
    count = graph.vcount()
    if count == 0:
        return np.empty((0, 2))
    turns, radius = np.arange(count) * _GOLDEN, np.sqrt(np.arange(count) + 0.5)
    spiral = np.stack([np.cos(turns) * radius, np.sin(turns) * radius], axis=1)
    with _fixed_random():
        found = graph.layout_fruchterman_reingold(seed=spiral.tolist())
    return _scale_to_unit(np.array(found.coords, dtype=np.float64))


@contextmanager
def _fixed_random() -> Iterator[None]:
    """Fix `random` for the block, from which igraph draws, so that equal graphs get equal pictures."""
    before = random.getstate()
    random.seed(1)
    try:
        yield
    finally:
        random.setstate(before)


def _scale_to_unit(places: Places) -> Places:
    low, high = places.min(axis=0), places.max(axis=0)
    extent = np.where(high > low, high - low, 1.0)
    return np.where(high > low, (places - low) / extent, 0.5)


def assign_colours(names: Iterable[str], skipped: int = 0) -> dict[str, str]:
    """A colour for each name; those beyond the palette share the last one."""
    ordered = list(dict.fromkeys(names))
    last = len(COLOURS) - 1
    return {name: COLOURS[min(place + skipped, last)] for place, name in enumerate(ordered)}
