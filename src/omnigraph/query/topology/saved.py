"""Topologies kept beside the graph, so that the first walk after a restart need not sort all edges.

There is one file for each edge table and branch that owns versions of it, always of the version that was
built last. Nothing depends on it: a file that is missing, damaged or of another version is built anew.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from omnigraph.engine.layout import fnv1a64
from omnigraph.engine.opened import OpenGraph
from omnigraph.errors import StorageFailure
from omnigraph.query.rows import Rows
from omnigraph.query.topology.files import File, Whole, is_whole, opened, to_bytes
from omnigraph.query.topology.topology import Topology
from omnigraph.storage.location import Location

_log = logging.getLogger(__name__)

WORTH_SAVING = 200_000
"""Edges below which building is as fast as reading."""


def saved_topology(graph: OpenGraph, edges: Rows) -> Topology | None:
    """The topology of exactly these edges, if it was kept; its arrays are read as they are wanted."""
    found = _file(graph, edges)
    return None if found is None else opened(found, about(edges))


def is_saved(graph: OpenGraph, edges: Rows, nodes: tuple[Rows, Rows]) -> bool:
    """Whether the topology of exactly these edges was kept, is whole, and fits these nodes as it did once."""
    found = _file(graph, edges)
    if found is None or not is_whole(found, about(edges)):
        return False
    topology = opened(found, about(edges))
    named = ("", "") if topology is None else topology.shape.numbered_by
    return all(name in ("", about(rows)) for name, rows in zip(named, nodes, strict=True))


def save_topology(
    graph: OpenGraph, edges: Rows, topology: Topology, numbered_by: tuple[str, str] = ("", "")
) -> None:
    """Keep a topology with both directions for the next process; a store that refuses is left alone.

    `numbered_by` says which tables of nodes have the codes at the two ends for positions.
    """
    if graph.read_only or not is_worth_saving(edges):
        return
    for direction in ("out", "in"):
        topology.adjacency(direction, distinct=True)
    body = to_bytes(topology, about(edges), numbered_by)
    try:
        graph.root.objects.write_bytes(_place(graph, edges), body)
    except StorageFailure as failure:
        # Only the next process is slower for it.
        _log.warning("the sorted edges of '%s' were not kept: %s", edges.key, failure)


def is_worth_saving(edges: Rows) -> bool:
    """Whether these edges are many, and numbered as every process would number them."""
    # Grown rows are numbered by what this process happened to read; no other process would number them so.
    return edges.growth is None and edges.count >= WORTH_SAVING


def about(rows: Rows) -> str:
    """Which version of which table; nothing for rows that only this process numbers like that."""
    return "" if rows.growth is not None else f"{rows.identity[1:]!r} {rows.table.signature}"


def _place(graph: OpenGraph, edges: Rows) -> Location:
    return graph.root.layout.derived / f"{fnv1a64(repr(edges.identity[2:4]))}.topology"


# --- files -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _InFolder:
    """A file of which stretches are read; what cannot be read any more is taken for damaged."""

    path: Path
    size: int
    held: int = 0

    def read(self, start: int, length: int) -> bytes:
        """A stretch; the file may be another one by now, which checksums show."""
        try:
            with self.path.open("rb") as file:
                file.seek(start)
                return file.read(length)
        except OSError:
            return b""


def _file(graph: OpenGraph, edges: Rows) -> File | None:
    if not is_worth_saving(edges):
        return None
    place = _place(graph, edges)
    try:
        if place.is_local:
            return _InFolder(place.path, place.path.stat().st_size)
        found = graph.root.objects.read_bytes_if_exists(place)
    except (OSError, StorageFailure):
        return None  # what cannot be read is built from the table, which says so if it cannot either
    return None if found is None else Whole(memoryview(found))
