"""The policy of a graph that was applied last, from its verified copy."""

from __future__ import annotations

from omnigraph.cluster.addresses import graph_address
from omnigraph.cluster.catalog import BadPayload, read_payload
from omnigraph.cluster.diagnostics import stopped
from omnigraph.cluster.root import ClusterRoot
from omnigraph.cluster.state import State
from omnigraph.policy.policy import Policy


def read_applied_policy(root: ClusterRoot, state: State, graph_id: str) -> Policy | None:
    """Return the policy of a graph; a copy that is gone or changed ends the command."""
    for address, entry in sorted(state.resources.items()):
        if graph_address(graph_id) in (entry.applies_to or ()):
            data = read_payload(root, address, entry.digest)
            if isinstance(data, BadPayload):
                message = f"{data.message}; run `cluster refresh` and apply again"
                raise stopped(data.state.code, address, message)
            return Policy.parse(data.decode(), name=address, kind="graph", graph=graph_id)
    return None
