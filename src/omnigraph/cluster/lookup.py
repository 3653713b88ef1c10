"""Find graphs by their cluster, and the cluster of a graph; both read at most the ledger."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from omnigraph.cluster.addresses import Kind, kind_of, name_of
from omnigraph.cluster.diagnostics import Findings, Stopped
from omnigraph.cluster.ledger import read_ledger
from omnigraph.cluster.read_config import read_config
from omnigraph.cluster.root import ClusterRoot
from omnigraph.cluster.state import State
from omnigraph.errors import BadRequest, ClusterUnreadable, GraphNotApplied, ManagedByCluster
from omnigraph.storage.location import Location

_GRAPH_URI = re.compile(r"(?P<root>.+)/graphs/[A-Za-z_][A-Za-z0-9_-]*\.omni")


def locate_graph(cluster: str, graph_id: str | None) -> str:
    """Return where a graph of a cluster is; without an id, where its only graph is.

    `cluster` is a storage root with a scheme, or the directory of a `cluster.yaml`.
    """
    root = open_cluster(cluster)
    state = read_state(cluster, root)
    applied = [name_of(address) for address in sorted(state.resources) if kind_of(address) is Kind.GRAPH]
    if graph_id is None and len(applied) > 1:
        raise BadRequest(
            f"cluster '{cluster}' has several graphs: {', '.join(applied)}", remedy="choose one with --graph"
        )
    chosen = graph_id if graph_id is not None else next(iter(applied), None)
    if chosen is None or chosen not in applied:
        raise GraphNotApplied(cluster, graph_id, applied)
    return root.graph(chosen).uri


def locate_storage(cluster: str) -> str:
    """Return the storage root of a cluster as a URI with a scheme."""
    uri = open_cluster(cluster).location.uri
    return uri if "://" in uri else f"file://{uri}"


def read_profile(cluster: str, uri: str) -> Mapping[str, str] | None:
    """Return the profile of the embedding provider of a graph of a cluster, with `${NAME}` unresolved."""
    root = open_cluster(cluster)
    resources = read_state(cluster, root).resources
    for address, entry in resources.items():
        if kind_of(address) is Kind.GRAPH and root.graph(name_of(address)).uri == uri:
            provider = resources.get(entry.embedding_provider or "")
            return None if provider is None else provider.embedding_profile
    return None


def refuse_managed(uri: str, command: str) -> None:
    """Refuse a command on a graph that a cluster manages; only a URI of that form is looked up."""
    place = Location.parse(uri)
    found = _GRAPH_URI.fullmatch(place.uri)
    if found is None:
        return
    root = ClusterRoot.at(Location(found["root"]))
    if root.objects.exists(root.state):
        raise ManagedByCluster(place.uri, root.location.uri, command)


def open_cluster(cluster: str) -> ClusterRoot:
    """Return the storage root of a cluster: a URI with a scheme, or the directory of a `cluster.yaml`."""
    if "://" in cluster:
        return ClusterRoot.at(Location.parse(cluster))
    findings = Findings()
    config = read_config(Path(cluster), findings)
    if config is None:
        reason = findings.found[-1]
        raise ClusterUnreadable(cluster, f"{reason.code}: {reason.message}", remedy="run `cluster validate`")
    return ClusterRoot.at(config.root)


def read_state(cluster: str, root: ClusterRoot) -> State:
    """Return the ledger of a cluster, which must have one."""
    try:
        state = read_ledger(root, Findings()).state
    except Stopped as stopped:
        raise ClusterUnreadable(cluster, f"{stopped.found.code}: {stopped.found.message}") from stopped
    if state is None:
        raise ClusterUnreadable(
            cluster, "it has no ledger", remedy="run `omnigraph cluster import`, then `cluster apply`"
        )
    return state
