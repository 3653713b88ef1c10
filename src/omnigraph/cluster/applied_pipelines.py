"""The pipelines that were applied: what `omnigraph pipeline` runs, from verified copies alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.cluster.addresses import Kind, kind_of, name_of, pipeline_address, source_address
from omnigraph.cluster.applied_policy import read_applied_policy
from omnigraph.cluster.catalog import BadPayload, read_payload
from omnigraph.cluster.desired import load_desired
from omnigraph.cluster.diagnostics import Findings, Severity, Stopped
from omnigraph.cluster.digests import hash_source_profile
from omnigraph.cluster.lookup import open_cluster, read_state
from omnigraph.cluster.pipelines import InCluster
from omnigraph.cluster.root import ClusterRoot
from omnigraph.cluster.state import State
from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import ClusterUnreadable, PipelineNotApplied
from omnigraph.pipeline.declared.declaration import Pipeline
from omnigraph.pipeline.declared.document import decode_document
from omnigraph.pipeline.declared.members import Node, Problems
from omnigraph.pipeline.declared.parse import parse_pipelines
from omnigraph.pipeline.declared.sources import Provider, read_provider
from omnigraph.yaml_text import to_yaml_value

if TYPE_CHECKING:
    from omnigraph.policy.policy import Policy

_HEAL = "run `omnigraph cluster refresh`, then `omnigraph cluster apply`"


@dataclass(frozen=True, slots=True)
class AppliedPipelines:
    """The pipelines in the ledger of one cluster."""

    cluster: str
    """As the user named it."""
    root: ClusterRoot
    state: State
    directory: Path | None
    """The directory of `cluster.yaml`; a storage root has none."""

    @classmethod
    def open(cls, cluster: str) -> AppliedPipelines:
        """Read the ledger of a cluster, which is named as for `locate_graph`."""
        root = open_cluster(cluster)
        return cls(cluster, root, read_state(cluster, root), None if "://" in cluster else Path(cluster))

    def names(self) -> list[str]:
        """The names of all applied pipelines."""
        return [name_of(one) for one in sorted(self.state.resources) if kind_of(one) is Kind.PIPELINE]

    def read(self, name: str) -> Pipeline:
        """Return an applied pipeline, from its verified copy."""
        address = pipeline_address(name)
        entry = self.state.resources.get(address)
        if entry is None:
            raise PipelineNotApplied(self.cluster, name, self.names())
        data = read_payload(self.root, address, entry.digest)
        if isinstance(data, BadPayload):
            raise ClusterUnreadable(self.cluster, f"{data.state.code}: {data.message}", remedy=_HEAL)
        document = decode_document(data.decode(), address).members({"version", "pipelines"}, ["pipelines"])
        problems = Problems()
        graphs = frozenset(name_of(one) for one in self.state.resources if kind_of(one) is Kind.GRAPH)
        surroundings = InCluster(self.root.location, graphs, self.directory)
        nodes = document["pipelines"].object()
        found = parse_pipelines(nodes, dict(self._providers()), surroundings, problems)
        problems.raise_if_any()
        return found[name]

    def read_desired(self, name: str) -> Pipeline:
        """Return a pipeline of the working tree, applied or not."""
        if self.directory is None:
            raise ClusterUnreadable(
                self.cluster, "a storage root has no working tree", remedy="name its directory"
            )
        findings = Findings()
        desired = load_desired(self.directory, findings)
        wrong = [one for one in findings.found if one.severity is Severity.ERROR]
        if desired is None or wrong:
            raise ClusterUnreadable(
                self.cluster,
                f"{wrong[0].code}: {wrong[0].message}",
                remedy="run `omnigraph cluster validate`",
            )
        if name not in desired.pipelines:
            raise PipelineNotApplied(self.cluster, name, list(desired.pipelines))
        return desired.pipelines[name].pipeline

    def policies(self, pipeline: Pipeline) -> dict[str, Policy]:
        """Return the applied policy of each target that has one."""
        try:
            found = {one.name: read_applied_policy(self.root, self.state, one.graph) for one in pipeline.into}
        except Stopped as stopped:
            reason = f"{stopped.found.code}: {stopped.found.message}"
            raise ClusterUnreadable(self.cluster, reason, remedy=_HEAL) from stopped
        return {name: policy for name, policy in found.items() if policy is not None}

    def _providers(self) -> Iterator[tuple[str, Provider]]:
        for address, entry in sorted(self.state.resources.items()):
            if kind_of(address) is not Kind.SOURCE:
                continue
            profile: Mapping[str, Any] = entry.source_profile or {}
            name = name_of(address)
            if hash_source_profile(profile) != entry.digest:
                reason = f"the recorded profile of '{source_address(name)}' does not have its digest"
                raise ClusterUnreadable(self.cluster, reason, remedy=_HEAL)
            yield name, read_provider(Node(to_yaml_value(dict(profile)), address, "state.json"))
