"""Topologies kept beside the graph, so that the first walk after a restart need not sort all edges.

There is one file for each edge table and branch that owns versions of it, always of the version that was
built last. Nothing depends on it: a file that is missing, damaged or of another version is built anew.
"""

from __future__ import annotations

import logging

from omnigraph.engine.layout import fnv1a64
from omnigraph.engine.opened import OpenGraph
from omnigraph.errors import StorageFailure
from omnigraph.query.rows import Rows
from omnigraph.query.topology.files import from_bytes, to_bytes
from omnigraph.query.topology.topology import Topology
from omnigraph.storage.location import Location

_log = logging.getLogger(__name__)

WORTH_SAVING = 200_000
"""Edges below which building is as fast as reading."""


def saved_topology(graph: OpenGraph, edges: Rows) -> Topology | None:
    """The topology of exactly these edges, if it was kept."""
    if not is_worth_saving(edges):
        return None
    try:
        found = graph.root.objects.read_bytes_if_exists(_place(graph, edges))
    except StorageFailure:
        return None  # what cannot be read is built from the table, which says so if it cannot either
    return None if found is None else from_bytes(found, _about(edges))


def save_topology(graph: OpenGraph, edges: Rows, topology: Topology) -> None:
    """Keep a topology with both directions for the next process; a store that refuses is left alone."""
    if graph.read_only or not is_worth_saving(edges):
        return
    for direction in ("out", "in"):
        topology.adjacency(direction)
    try:
        graph.root.objects.write_bytes(_place(graph, edges), to_bytes(topology, _about(edges)))
    except StorageFailure as failure:
        # Only the next process is slower for it.
        _log.warning("the sorted edges of '%s' were not kept: %s", edges.key, failure)


def is_worth_saving(edges: Rows) -> bool:
    """Whether these edges are many, and numbered as every process would number them."""
    # Grown rows are numbered by what this process happened to read; no other process would number them so.
    return edges.growth is None and edges.count >= WORTH_SAVING


def _place(graph: OpenGraph, edges: Rows) -> Location:
    return graph.root.layout.derived / f"{fnv1a64(repr(edges.identity[2:4]))}.topology"


def _about(edges: Rows) -> str:
    return f"{edges.identity[1:]!r} {edges.table.signature}"
