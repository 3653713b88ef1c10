"""Policies that were applied last, from their verified copies."""

from __future__ import annotations

from omnigraph.cluster.addresses import CLUSTER, graph_address, name_of, policy_address
from omnigraph.cluster.catalog import BadPayload, read_payload
from omnigraph.cluster.diagnostics import stopped
from omnigraph.cluster.root import ClusterRoot
from omnigraph.cluster.serving import AppliedText, read_serving
from omnigraph.cluster.state import State
from omnigraph.errors import BadRequest
from omnigraph.policy.actions import Kind
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


def choose_policy(cluster: str, graph_id: str | None, bundle: str | None) -> Policy:
    """Return one applied policy: that of a name, that of a graph or else of the server, or the only one."""
    scopes = read_serving(cluster).policies
    if bundle is not None:
        scopes = {scope: one for scope, one in scopes.items() if one.name == policy_address(bundle)}
    if graph_id is not None:
        own, server = scopes.get(graph_address(graph_id)), scopes.get(CLUSTER)
        if own is not None:
            return _parse(own, graph_address(graph_id))
        scopes = {} if server is None else {CLUSTER: server}
    names = {one.name: scope for scope, one in sorted(scopes.items(), reverse=True)}
    if len(names) > 1:
        listed = ", ".join(sorted(name_of(name) for name in names))
        raise BadRequest(
            f"cluster '{cluster}' has several policies: {listed}", remedy="choose with --graph or --bundle"
        )
    for name, scope in names.items():
        return _parse(AppliedText(name, scopes[scope].text), scope)
    what = "such policy" if bundle is not None or graph_id is not None else "policy"
    raise BadRequest(f"cluster '{cluster}' has no {what}", remedy="run `omnigraph cluster status`")


def _parse(found: AppliedText, scope: str) -> Policy:
    name = name_of(found.name)
    if scope == CLUSTER:
        return Policy.parse(found.text, name=name, kind=Kind.SERVER)
    return Policy.parse(found.text, name=name, kind=Kind.GRAPH, graph=name_of(scope))
