"""The graphs to serve, and how they are opened.

A source says what to serve; one store is one, a cluster will be another. Nothing else knows which it is.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import BadRequest, OmnigraphError
from omnigraph.graph import Graph
from omnigraph.graph import open as open_graph
from omnigraph.phases import PhaseListener, report_phases_to
from omnigraph.policy.policy import Policy
from omnigraph.server.auth import Tokens
from omnigraph.server.authorize import RuntimeState
from omnigraph.server.settings import ServeOptions

DEFAULT_GRAPH = "default"
MOST_AT_ONCE = 4
RESERVED = frozenset({"policies", "healthz", "openapi", "graphs"})

_GRAPH_ID = re.compile("[a-zA-Z0-9-]{1,64}")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GraphSource:
    """A graph to serve: where it is, and the files of its policy and its stored queries."""

    graph_id: str
    uri: str
    policy: Path | None = None
    queries: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """What a source wants served."""

    graphs: Sequence[GraphSource]
    server_policy: Path | None = None
    flat: str | None = None
    """The graph whose routes are mounted at the root as well."""
    is_managed: bool = False
    """Whether a declared deployment owns the schemas, so that they are not changed over HTTP."""
    diagnostics: Sequence[str] = ()


class BootSource(Protocol):
    """Where a server learns what to serve."""

    @property
    def name(self) -> str:
        """What logs call it."""

    def load(self) -> ServingPlan:
        """Return what is to be served now."""


@dataclass(frozen=True, slots=True)
class StoreSource:
    """One graph, without a cluster."""

    options: ServeOptions
    name: str = "store"

    def load(self) -> ServingPlan:
        """Return the one graph, with its routes at the root too."""
        chosen = self.options
        graph = GraphSource(DEFAULT_GRAPH, chosen.store, chosen.policy, chosen.queries)
        return ServingPlan((graph,), chosen.server_policy, flat=DEFAULT_GRAPH)


@dataclass(frozen=True, slots=True)
class ServedGraph:
    """A graph that is open, with what decides about requests to it."""

    graph_id: str
    graph: Graph
    policy: Policy | None = None
    queries: Mapping[str, Any] = field(default_factory=dict)
    """The stored queries, by name."""
    is_managed: bool = False


@dataclass(frozen=True, slots=True)
class Booted:
    """What a server serves."""

    state: RuntimeState
    graphs: Mapping[str, ServedGraph]
    server_policy: Policy | None
    flat: str | None


LoadPolicy = Callable[[Path, str | None], Policy]
"""Parses a bundle for a graph of this id, or for the server."""
LoadQueries = Callable[[Sequence[Path], Graph], Mapping[str, Any]]
"""Reads stored queries and checks them against the schema of a graph."""


@dataclass(frozen=True, slots=True)
class Loaders:
    """What reads the files that a source names."""

    policy: LoadPolicy
    queries: LoadQueries


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
    source: BootSource,
    tokens: Tokens,
    options: ServeOptions,
    loaders: Loaders,
    listener: PhaseListener = lambda _: nullcontext(),
) -> Booted:
    """Open what a source names; a graph that fails is left out, unless all are required.

    `listener` gets the phases of opening, such as recoveries.
    """
    plan = source.load()
    for diagnostic in plan.diagnostics:
        _log.warning("startup diagnostic: %s", diagnostic)
    if plan.diagnostics and options.require_all_graphs:
        raise BadRequest(f"a graph cannot be served: {plan.diagnostics[0]}")
    has_policy = plan.server_policy is not None or any(graph.policy for graph in plan.graphs)
    state = decide_state(tokens, has_policy=has_policy, unauthenticated=options.unauthenticated)
    _warn_about(state)
    server_policy = None if plan.server_policy is None else loaders.policy(plan.server_policy, None)
    graphs = _open_all(plan, loaders, listener, require_all=options.require_all_graphs)
    return Booted(state, graphs, server_policy, plan.flat)


def _open_all(
    plan: ServingPlan, loaders: Loaders, listener: PhaseListener, *, require_all: bool
) -> dict[str, ServedGraph]:
    opened: dict[str, ServedGraph] = {}
    failures: list[OmnigraphError] = []
    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        for found in pool.map(lambda graph: _try_open(graph, plan, loaders, listener), plan.graphs):
            if isinstance(found, ServedGraph):
                opened[found.graph_id] = found
            else:
                failures.append(found)
    if failures and (require_all or not opened):
        for graph in opened.values():
            graph.graph.close()
        raise failures[0]
    return opened


def _try_open(
    source: GraphSource, plan: ServingPlan, loaders: Loaders, listener: PhaseListener
) -> ServedGraph | OmnigraphError:
    try:
        with report_phases_to(listener):
            return _open(source, plan, loaders)
    except OmnigraphError as error:
        _log.warning("graph '%s' is not served: %s", source.graph_id, error)
        return error


def _open(source: GraphSource, plan: ServingPlan, loaders: Loaders) -> ServedGraph:
    graph_id = check_graph_id(source.graph_id)
    policy = None if source.policy is None else loaders.policy(source.policy, graph_id)
    graph = open_graph(source.uri, policy=policy)  # the engine asks it again at the head of every write
    try:
        queries = loaders.queries(source.queries, graph) if source.queries else {}
    except OmnigraphError:
        graph.close()
        raise
    return ServedGraph(graph_id, graph, policy, queries, plan.is_managed)


def _warn_about(state: RuntimeState) -> None:
    if state is RuntimeState.OPEN:
        _log.warning("the server is open: everybody who reaches it may read and change all graphs")
    if state is RuntimeState.DEFAULT_DENY:
        _log.warning("there are tokens and no policy: actors may read, and nothing else")
