"""Orphan topology files: those that no read of a branch can use."""

from __future__ import annotations

from contextlib import suppress

from omnigraph.engine.graph.layout import fnv1a64, split_key
from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.errors import BranchNotFound
from omnigraph.query.topology.saved_topology import WORTH_SAVING
from omnigraph.storage.location import Location

SUFFIX = ".topology"


def find_orphan_topologies(graph: OpenGraph) -> dict[Location, int]:
    """Return the topology files, with their sizes, of edge tables that no branch has or that became small."""
    kept = {file_name(path, owner) for path, owner in _large_edges(graph)}
    sizes = graph.root.objects.list_sizes(graph.root.layout.derived)
    return {at: size for at, size in sizes.items() if at.name.endswith(SUFFIX) and at.name not in kept}


def delete_topologies(graph: OpenGraph, places: dict[Location, int]) -> None:
    """Delete topology files; a read that needs one rebuilds it."""
    for at in places:
        graph.root.objects.delete(at)


def file_name(path: str, owner: str | None) -> str:
    """Return the file name for one owner's versions of an edge table."""
    return f"{fnv1a64(repr((path, owner)))}{SUFFIX}"


def _large_edges(graph: OpenGraph) -> set[tuple[str, str | None]]:
    found: set[tuple[str, str | None]] = set()
    for branch in graph.branch_names():
        # It may be deleted while the others are read, and needs no files then.
        with suppress(BranchNotFound):
            entries = graph.load(branch).state.entries().values()
            found |= {(entry.path, entry.owner) for entry in entries if _is_large_edge(entry)}
    return found


def _is_large_edge(entry: TableEntry) -> bool:
    is_large = entry.row_count is None or entry.row_count >= WORTH_SAVING
    return is_large and split_key(entry.key)[0] == "edge"
