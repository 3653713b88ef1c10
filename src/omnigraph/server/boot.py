"""Open the graphs that a source names, with their policies, stored queries and embedding providers.

A source is a store or a cluster; nothing here knows which. A graph that fails is left out: the others are
served without it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import field

from omnigraph.deferred_dataclass import dataclass
from omnigraph.embed.settings import EmbedSettings
from omnigraph.errors import BadRequest, GraphNotFound, NoHealthyGraphs, OmnigraphError
from omnigraph.graph import Graph
from omnigraph.graph import open as open_graph
from omnigraph.phases import PhaseListener, report_phases_to
from omnigraph.policy.actions import Kind
from omnigraph.policy.policy import Policy
from omnigraph.server.auth import Tokens
from omnigraph.server.authorize import RuntimeState
from omnigraph.server.settings import ServeOptions
from omnigraph.server.sources import GraphSource, PolicyText, ServingPlan
from omnigraph.server.stored_queries import StoredQueries, load_stored_queries

MOST_AT_ONCE = 4
RESERVED = frozenset({"policies", "healthz", "openapi", "graphs"})

_GRAPH_ID = re.compile("[a-zA-Z0-9-]{1,64}")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedGraph:
    """A graph that is open, with what decides about requests to it."""

    graph_id: str
    graph: Graph
    policy: Policy | None = None
    queries: StoredQueries = field(default_factory=dict)
    """The stored queries, by name."""
    is_managed: bool = False


@dataclass(frozen=True, slots=True)
class Booted:
    """What a server serves."""

    plan: ServingPlan
    """What it was opened from."""
    state: RuntimeState
    graphs: Mapping[str, ServedGraph]
    server_policy: Policy | None = None

    def find_graph(self, graph_id: str) -> ServedGraph:
        """Return a graph that is served."""
        found = self.graphs.get(check_graph_id(graph_id))
        if found is None:
            raise GraphNotFound(graph_id)
        return found

    @property
    def is_whole(self) -> bool:
        """Whether every graph of the source is served."""
        return not self.plan.left_out and len(self.graphs) == len(self.plan.graphs)

    def close(self) -> None:
        """Close all graphs."""
        for served in self.graphs.values():
            served.graph.close()


def serve_alone(served: ServedGraph) -> Booted:
    """Return one graph that is open, for everybody who connects, with its routes at the root too."""
    plan = ServingPlan((GraphSource(served.graph_id, served.graph.uri),), flat=served.graph_id)
    return Booted(plan, RuntimeState.OPEN, {served.graph_id: served})


def check_graph_id(graph_id: str) -> str:
    """Return the id of a graph; raises `BadRequest` for one that no graph can have."""
    if not _GRAPH_ID.fullmatch(graph_id) or graph_id in RESERVED:
        raise BadRequest(
            f"'{graph_id}' cannot be the id of a graph",
            remedy="use 1 to 64 letters, digits and '-', and not policies, healthz, openapi or graphs",
        )
    return graph_id


def decide_state(tokens: Tokens, *, has_policy: bool, unauthenticated: bool) -> RuntimeState:
    """Return how the server decides; raises where it would refuse all requests, or allow all by accident."""
    if tokens:
        return RuntimeState.POLICY if has_policy else RuntimeState.DEFAULT_DENY
    if has_policy:
        raise BadRequest(
            "a policy needs bearer tokens: without any, every request would be refused",
            remedy="set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE",
        )
    if not unauthenticated:
        raise BadRequest(
            "neither bearer tokens nor a policy are configured",
            remedy="set OMNIGRAPH_SERVER_BEARER_TOKENS_FILE, or let everybody in with --unauthenticated",
        )
    return RuntimeState.OPEN


def boot(
    plan: ServingPlan,
    tokens: Tokens,
    options: ServeOptions,
    listener: PhaseListener = lambda _: nullcontext(),
) -> Booted:
    """Open what a plan names; a graph that fails is left out, unless all are required.

    `listener` gets the phases of opening, such as recoveries.
    """
    for one in plan.left_out:
        _log.warning("graph '%s' is not served: %s", one.graph_id, one.reason)
        if options.require_all_graphs:
            raise BadRequest(f"graph '{one.graph_id}' cannot be served: {one.reason}")
    state = decide_state(tokens, has_policy=plan.has_policy, unauthenticated=options.unauthenticated)
    _warn_about(state)
    server_policy = None if plan.server_policy is None else _parse_policy(plan.server_policy, None)
    graphs = _open_all(plan, listener, require_all=options.require_all_graphs)
    return Booted(plan, state, graphs, server_policy)


def _open_all(plan: ServingPlan, listener: PhaseListener, *, require_all: bool) -> dict[str, ServedGraph]:
    opened: dict[str, ServedGraph] = {}
    failures: list[OmnigraphError] = []
    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        for found in pool.map(lambda graph: _try_open(graph, plan, listener), plan.graphs):
            if isinstance(found, ServedGraph):
                opened[found.graph_id] = found
            else:
                failures.append(found)
    if failures and (require_all or not opened):
        for graph in opened.values():
            graph.graph.close()
        raise _explain(plan, failures[0], require_all=require_all)
    return opened


def _explain(plan: ServingPlan, first: OmnigraphError, *, require_all: bool) -> OmnigraphError:
    """Return why nothing is served; one graph that stands alone is its own reason."""
    if require_all or not plan.is_managed:
        return first
    return NoHealthyGraphs(first.message)


def _try_open(
    source: GraphSource, plan: ServingPlan, listener: PhaseListener
) -> ServedGraph | OmnigraphError:
    try:
        with report_phases_to(listener):
            return _open(source, plan)
    except OmnigraphError as error:
        _log.warning("graph '%s' is not served: %s", source.graph_id, error)
        return error


def _open(source: GraphSource, plan: ServingPlan) -> ServedGraph:
    graph_id = check_graph_id(source.graph_id)
    policy = None if source.policy is None else _parse_policy(source.policy, graph_id)
    embedding = None if source.embedding is None else EmbedSettings.from_profile(source.embedding)
    # The engine asks the policy again at the head of every write.
    graph = open_graph(source.uri, policy=policy, embedding=embedding)
    try:
        queries = load_stored_queries(source.queries, graph)
    except OmnigraphError:
        graph.close()
        raise
    return ServedGraph(graph_id, graph, policy, queries, plan.is_managed)


def _parse_policy(bundle: PolicyText, graph_id: str | None) -> Policy:
    """Parse the bundle of a graph, or of the server."""
    if graph_id is None:
        return Policy.parse(bundle.text, name=bundle.name, kind=Kind.SERVER)
    return Policy.parse(bundle.text, name=bundle.name, kind=Kind.GRAPH, graph=graph_id)


def _warn_about(state: RuntimeState) -> None:
    if state is RuntimeState.OPEN:
        _log.warning("the server is open: everybody who reaches it may read and change all graphs")
    if state is RuntimeState.DEFAULT_DENY:
        _log.warning("there are tokens and no policy: actors may read, and nothing else")
