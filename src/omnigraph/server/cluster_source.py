"""A cluster as a source: what its ledger says was applied, from published copies that were verified."""

from __future__ import annotations

from omnigraph.cluster.addresses import CLUSTER, name_of
from omnigraph.cluster.lookup import locate_storage
from omnigraph.cluster.serving import AppliedGraph, AppliedText, read_mark, read_serving
from omnigraph.deferred_dataclass import dataclass
from omnigraph.server.sources import GraphSource, LeftOut, PolicyText, QueryText, ServingPlan


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """The graphs of a cluster: a directory with `cluster.yaml`, or a storage URI."""

    cluster: str
    name: str = "cluster"

    @classmethod
    def pinned(cls, cluster: str) -> ClusterSource:
        """Return the source at the storage of a cluster, whatever becomes of the files that named it."""
        return cls(locate_storage(cluster))

    def read_mark(self) -> str | None:
        """Return what identifies the ledger; another one may mean another revision."""
        return read_mark(self.cluster)

    def load(self) -> ServingPlan:
        """Return what was applied last; the files of the configuration are never served."""
        found = read_serving(self.cluster)
        return ServingPlan(
            tuple(_graph_source(one) for one in found.graphs),
            _policy(found.policies.get(CLUSTER)),
            is_managed=True,
            left_out=tuple(LeftOut(name_of(one.path), str(one)) for one in found.quarantined),
            has_policy=bool(found.policies),
        )


def _graph_source(graph: AppliedGraph) -> GraphSource:
    queries = tuple(QueryText(one.name, one.text, one.symbols) for one in graph.queries)
    return GraphSource(graph.id, graph.uri, _policy(graph.policy), queries, graph.embedding, graph.digest)


def _policy(found: AppliedText | None) -> PolicyText | None:
    return None if found is None else PolicyText(found.name, found.text)
