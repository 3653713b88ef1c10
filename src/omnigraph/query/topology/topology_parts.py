"""What a topology is made of: arrays that are in memory, or are fetched when they are first wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.topology.endpoint_codes import Codes
from omnigraph.query.topology.file_blocks import AdjacencyReader

Kind = tuple[EdgeDirection, bool]
"""Which adjacency: its direction, and whether every neighbour is there once only."""


@dataclass(frozen=True, slots=True)
class Stored:
    """How many bytes there are to fetch of an adjacency."""

    neighbours: int
    edges: int


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a topology before anything of it is fetched."""

    shared: bool
    """Whether both ends have the same type of node, and so the same codes."""
    edges: int
    """How many edge positions there are, dead ones included."""
    dead: int
    sources: int
    """How many codes there are at the source ends."""
    targets: int
    numbered_by: tuple[str, str] = ("", "")
    """The version of the table of nodes whose positions are the codes, for each end; empty if unknown."""
    stored: Mapping[Kind, Stored] = field(default_factory=dict)
    """The adjacencies that need not be sorted but can be fetched.

    Where no edges are parallel, the distinct one is the very same.
    """
    held: int = 0
    """Bytes in memory from which they are fetched."""


class Parts(Protocol):
    """Gives the arrays of a topology; each is asked for once."""

    def sources(self) -> pa.Array:
        """The ids at the source ends, by code."""

    def targets(self) -> pa.Array:
        """The ids at the target ends, by code, when these have codes of their own."""

    def src(self) -> Codes:
        """The code at the source end of each edge position."""

    def dst(self) -> Codes:
        """The code at the target end of each edge position."""

    def loops(self) -> Codes:
        """The codes of nodes with an edge to themselves, ascending."""

    def adjacency(self, kind: Kind) -> AdjacencyReader:
        """An adjacency that is stored."""


@dataclass(frozen=True, slots=True)
class InMemory:
    """Parts of which nothing is stored anywhere."""

    source_ids: pa.Array
    target_ids: pa.Array
    source_codes: Codes
    target_codes: Codes

    @property
    def shape(self) -> Shape:
        """The shape of these parts."""
        dead = int(np.count_nonzero(self.source_codes < 0))
        shared = self.source_ids is self.target_ids
        return Shape(shared, len(self.source_codes), dead, len(self.source_ids), len(self.target_ids))

    def sources(self) -> pa.Array:
        """The ids at the source ends."""
        return self.source_ids

    def targets(self) -> pa.Array:
        """The ids at the target ends."""
        return self.target_ids

    def src(self) -> Codes:
        """The codes at the source ends."""
        return self.source_codes

    def dst(self) -> Codes:
        """The codes at the target ends."""
        return self.target_codes

    def loops(self) -> Codes:
        """The codes of nodes with an edge to themselves."""
        if self.source_ids is not self.target_ids:
            return np.empty(0, dtype=np.int32)
        src, dst = self.source_codes, self.target_codes
        return np.unique(src[(src == dst) & (src >= 0)])

    def adjacency(self, kind: Kind) -> AdjacencyReader:
        """Nothing is stored."""
        raise KeyError(kind)
