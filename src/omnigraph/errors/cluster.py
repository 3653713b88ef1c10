"""What keeps a command from a graph of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.errors.conflict import Conflict
from omnigraph.errors.request import BadRequest, NotFound


class ClusterUnreadable(BadRequest):
    """The configuration or the ledger of a cluster cannot be used."""

    code = "cluster_unreadable"

    def __init__(self, cluster: str, reason: str, *, remedy: str | None = None) -> None:
        super().__init__(f"cluster '{cluster}' cannot be used: {reason}", remedy=remedy)
        self.cluster = cluster


class NoHealthyGraphs(BadRequest):
    """Every graph of a cluster is left out, so there is nothing to serve."""

    code = "cluster_no_healthy_graphs"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"no graph of the cluster can be served: {reason}", remedy="run `omnigraph cluster status`"
        )
        self.reason = reason


class GraphNotApplied(NotFound):
    """The ledger of a cluster has no such graph."""

    code = "graph_not_applied"

    def __init__(self, cluster: str, graph_id: str | None, applied: Sequence[str]) -> None:
        what = "no graph" if graph_id is None else f"no graph '{graph_id}'"
        known = f"; applied are: {', '.join(applied)}" if applied else ""
        remedy = "choose one with --graph" if applied else "run `omnigraph cluster apply`"
        super().__init__(f"{what} of cluster '{cluster}' was applied{known}", remedy=remedy)
        self.cluster = cluster
        self.graph_id = graph_id
        self.applied = tuple(applied)


class ManagedByCluster(Conflict):
    """A graph belongs to a cluster, which alone creates it and changes its schema."""

    code = "managed_by_cluster"

    def __init__(self, uri: str, cluster: str, command: str) -> None:
        super().__init__(
            f"`{command}` does not apply to '{uri}': the cluster at '{cluster}' declares that graph",
            remedy="change the files of the cluster, then run `omnigraph cluster apply`",
        )
        self.uri = uri
        self.cluster = cluster
