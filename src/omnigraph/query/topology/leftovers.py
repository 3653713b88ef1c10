"""Topology files that no read of a branch can use any more."""

from __future__ import annotations

from omnigraph.engine.layout import fnv1a64, split_key
from omnigraph.engine.opened import OpenGraph
from omnigraph.query.topology.saved import WORTH_SAVING
from omnigraph.storage.location import Location

SUFFIX = ".topology"


def stray_topologies(graph: OpenGraph) -> dict[Location, int]:
    """The files, each with its bytes, of edge tables that no branch shows, or that became small."""
    kept = {file_name(path, owner) for path, owner in _large_edges(graph)}
    sizes = graph.root.objects.list_sizes(graph.root.layout.derived)
    return {at: size for at, size in sizes.items() if at.name.endswith(SUFFIX) and at.name not in kept}


def remove_topologies(graph: OpenGraph, places: dict[Location, int]) -> None:
    """Remove files; whoever wants one of them all the same builds it anew."""
    for at in places:
        graph.root.objects.delete(at)


def file_name(path: str, owner: str | None) -> str:
    """The name of the file for one owner's versions of an edge table."""
    return f"{fnv1a64(repr((path, owner)))}{SUFFIX}"


def _large_edges(graph: OpenGraph) -> set[tuple[str, str | None]]:
    return {
        (entry.path, entry.owner)
        for branch in graph.branch_names()
        for entry in graph.load(branch).state.entries().values()
        if split_key(entry.key)[0] == "edge" and (entry.row_count is None or entry.row_count >= WORTH_SAVING)
    }
