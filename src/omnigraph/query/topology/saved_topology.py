"""Topologies saved beside the graph, so that the first walk after a restart need not sort all edges.

There is one file for each edge table and branch that owns versions of it, of the version that was built last.
Nothing depends on it: a file that is missing, damaged or of another version is rebuilt.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from omnigraph.engine.graph.layout import fnv1a64, split_key
from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.errors import BranchNotFound, StorageFailure
from omnigraph.query.rows import Rows
from omnigraph.query.topology.file_blocks import Bytes, File
from omnigraph.query.topology.topology import Topology
from omnigraph.query.topology.topology_file import BytesFile, is_whole, open_topology, topology_to_bytes
from omnigraph.storage.location import Location

_log = logging.getLogger(__name__)

WORTH_SAVING = 200_000
"""Edges below which building is as fast as reading."""


def open_saved_topology(graph: OpenGraph, edges: Rows) -> Topology | None:
    """Return the saved topology of exactly these edges, if there is one; its arrays are read on demand."""
    found = _open_file(graph, edges)
    return None if found is None else open_topology(found, edges.about)


def is_saved(graph: OpenGraph, edges: Rows, nodes: tuple[Rows, Rows]) -> bool:
    """Whether the topology of exactly these edges is saved, complete, and still fits these nodes."""
    found = _open_file(graph, edges)
    if found is None or not is_whole(found, edges.about):
        return False
    topology = open_topology(found, edges.about)
    named = ("", "") if topology is None else topology.shape.numbered_by
    return all(name in ("", rows.about) for name, rows in zip(named, nodes, strict=True))


def save_topology(
    graph: OpenGraph, edges: Rows, topology: Topology, numbered_by: tuple[str, str] = ("", "")
) -> None:
    """Save a topology with both directions for the next process; a failed write is only logged.

    `numbered_by` says which tables of nodes have the codes at the two ends for positions.
    """
    if graph.read_only or not is_worth_saving(edges):
        return
    for direction in ("out", "in"):
        topology.adjacency(direction, distinct=True)
    body = topology_to_bytes(topology, edges.about, numbered_by)
    try:
        graph.root.objects.write_bytes(_file_location(graph, edges), body)
    except StorageFailure as failure:
        # Only the next process is slower for it.
        _log.warning("the sorted edges of '%s' were not kept: %s", edges.key, failure)


def is_worth_saving(edges: Rows) -> bool:
    """Whether these edges are many, and numbered as every process would number them."""
    # Grown rows are numbered by what this process happened to read; no other process would number them so.
    return edges.growth is None and edges.count >= WORTH_SAVING


def _file_location(graph: OpenGraph, edges: Rows) -> Location:
    return graph.root.layout.derived / f"{fnv1a64(repr(edges.identity[2:4]))}.topology"


# --- files -------------------------------------------------------------------------------------------


class LocalFile:
    """A local file that is read in ranges; bytes that cannot be read count as damaged.

    It stays open, so that it is the same file even when it is replaced. It is not memory-mapped: truncating a
    mapped file kills the process.
    """

    held = 0

    def __init__(self, path: Path) -> None:
        self._number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._number)
        self.size = os.fstat(self._number).st_size

    def read(self, start: int, length: int) -> bytes:
        """A stretch."""
        try:
            return os.pread(self._number, length, start)
        except OSError:
            return b""

    def room(self, start: int, length: int) -> Bytes:
        """Memory, which the system gives as it is written to."""
        return np.empty(length, dtype=np.uint8)

    def fetch(self, start: int, room: Bytes, stretches: Iterable[tuple[int, int]]) -> None:
        """Read into memory."""
        with suppress(OSError):  # what was not read has no right checksum
            for begin, end in stretches:
                _fill_stretch(self._number, start + begin, room[begin:end].data)


def _fill_stretch(number: int, start: int, room: memoryview) -> None:
    """Read until a stretch is full or the file ends; a single call reads 2 GB at most."""
    done = 0
    while done < len(room) and (count := os.preadv(number, [room[done:]], start + done)):
        done += count


def _open_file(graph: OpenGraph, edges: Rows) -> File | None:
    if not is_worth_saving(edges):
        return None
    place = _file_location(graph, edges)
    try:
        if place.is_local:
            return LocalFile(place.path)
        found = graph.root.objects.read_bytes_if_exists(place)
    except (OSError, StorageFailure):
        return None  # what cannot be read is built from the table, which says so if it cannot either
    return None if found is None else BytesFile(memoryview(found))


SUFFIX = ".topology"


def remove_orphan_topologies(graph: OpenGraph, *, dry_run: bool) -> list[int]:
    """Delete topology files of edge tables that no branch has or that became small; returns their sizes.

    A read that needs one rebuilds it.
    """
    kept = {file_name(path, owner) for path, owner in _large_edges(graph)}
    sizes = graph.root.objects.list_sizes(graph.root.layout.derived)
    orphans = {at: size for at, size in sizes.items() if at.name.endswith(SUFFIX) and at.name not in kept}
    for at in () if dry_run else orphans:
        graph.root.objects.delete(at)
    return list(orphans.values())


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
