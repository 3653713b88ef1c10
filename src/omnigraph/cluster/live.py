"""Graphs as they are: opened read-only on main, and compared with what the ledger and the files say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omnigraph import graph as graphs
from omnigraph.cluster.addresses import graph_address
from omnigraph.cluster.digests import hash_bytes
from omnigraph.cluster.root import ClusterRoot
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import ENTITY_FOLDERS, Layout
from omnigraph.errors import GraphNotFound, OmnigraphError, SchemaIdentityError, StorageFailure
from omnigraph.graph import Graph
from omnigraph.storage.location import Location

_DATA = "data"
"""The folder of the rows of a table; one that never had any has none."""


@dataclass(frozen=True, slots=True)
class LiveGraph:
    """A graph that opens."""

    manifest_version: int
    schema_digest: str
    """That of its schema source; of another source where that means the same."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The schema that a graph may have."""

    recorded: str | None
    """The digest in the ledger."""
    desired: str | None = None
    desired_source: str | None = None


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen at the place of a graph."""

    exists: bool | None
    """None when the storage did not say."""
    live: LiveGraph | None = None
    error: OmnigraphError | None = None
    """Why a graph that is there does not open."""
    is_unfinished: bool = False
    """Whether there never was a graph: an initialisation died before that."""


def look_at(root: ClusterRoot, graph_id: str, expected: Expected) -> Sight:
    """Look at a graph without changing anything."""
    at = root.graph(graph_id)
    try:
        if not root.objects.exists(at):
            return Sight(exists=False)
    except StorageFailure as failure:
        return Sight(exists=None, error=failure)
    try:
        with open_read_only(root, graph_id) as graph:
            return Sight(exists=True, live=describe(graph, expected))
    except OmnigraphError as error:
        return Sight(exists=True, error=error, is_unfinished=_is_unfinished(root, at, error))


def _is_unfinished(root: ClusterRoot, at: Location, error: OmnigraphError) -> bool:
    """Whether an initialisation left its claim, or no table that has rows."""
    if not isinstance(error, GraphNotFound):
        return False
    return root.objects.exists(Layout(at).init_claim) or not any(_find_rows(root, at))


def _find_rows(root: ClusterRoot, at: Location) -> Iterator[bool]:
    """Yield for each table whether it ever had rows."""
    for folder in ENTITY_FOLDERS:
        for table in root.objects.list_folders(at / folder):
            yield root.objects.exists(at / f"{folder}/{table}/{_DATA}")


@contextmanager
def open_read_only(root: ClusterRoot, graph_id: str) -> Iterator[Graph]:
    """Open a graph without recovering or writing anything."""
    with graphs.open_at(root.graph_root(graph_id), read_only=True) as graph:
        yield graph


def describe(graph: Graph, expected: Expected) -> LiveGraph:
    """Return version and schema digest of an open graph.

    A schema whose text changed and whose meaning did not is never stored, so the digest of the live source
    stays behind; such a graph has the desired schema.
    """
    version = graph.snapshot().version
    found = hash_bytes(graph.schema_source.encode())
    if found in (expected.recorded, expected.desired) or expected.desired_source is None:
        return LiveGraph(version, found)
    same = _means_the_same(graph, expected.desired_source)
    return LiveGraph(version, str(expected.desired) if same else found)


def _means_the_same(graph: Graph, source: str) -> bool:
    try:
        return not graph.plan_schema(source).steps
    except SchemaIdentityError:
        return False


def observation(root: ClusterRoot, graph_id: str, sight: Sight, desired: str | None) -> dict[str, Any]:
    """Return what the ledger records about a graph that was looked at; null is unknown."""
    live = sight.live
    version = None if live is None else live.manifest_version
    digest = None if live is None else live.schema_digest
    return {
        "kind": "graph",
        "address": graph_address(graph_id),
        "graph_uri": root.graph(graph_id).uri,
        "observed_at": root.now(),
        "exists": sight.exists,
        "graph_manifest_version": version,
        "manifest_version": version,
        "schema_digest": digest,
        "desired_schema_digest": desired,
        "schema_matches_desired": None if digest is None else digest == desired,
        "error": None if sight.error is None else sight.error.message,
    }
