"""Addresses of resources: `graph.<id>`, `schema.<id>`, `query.<graph>.<name>`, `policy.<name>` and others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

CLUSTER = "cluster"
"""What a policy for the whole server is bound to."""

_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,199}")
_SERVABLE = re.compile(r"[a-zA-Z0-9-]{1,64}")
_RESERVED = frozenset({"policies", "healthz", "openapi", "graphs"})
_PROVIDER = "provider.embedding."


class Kind(StrEnum):
    """The kinds of resources."""

    GRAPH = "graph"
    SCHEMA = "schema"
    QUERY = "query"
    POLICY = "policy"
    PROVIDER = "embedding_provider"
    SOURCE = "source_provider"
    PIPELINE = "pipeline"


def is_id(text: str) -> bool:
    """Whether a text may be the id of a resource; a longer one is no name of a file."""
    return _ID.fullmatch(text) is not None


def is_servable(graph_id: str) -> bool:
    """Whether a server can route to a graph of this id."""
    return _SERVABLE.fullmatch(graph_id) is not None and graph_id not in _RESERVED


def graph_address(graph_id: str) -> str:
    """Return the address of a graph."""
    return f"graph.{graph_id}"


def schema_address(graph_id: str) -> str:
    """Return the address of the schema of a graph."""
    return f"schema.{graph_id}"


def query_address(graph_id: str, name: str) -> str:
    """Return the address of a stored query."""
    return f"query.{graph_id}.{name}"


def policy_address(name: str) -> str:
    """Return the address of a policy bundle."""
    return f"policy.{name}"


def provider_address(name: str) -> str:
    """Return the address of an embedding provider."""
    return f"{_PROVIDER}{name}"


def source_address(name: str) -> str:
    """Return the address of a provider of sources."""
    return f"provider.source.{name}"


def pipeline_address(name: str) -> str:
    """Return the address of a pipeline."""
    return f"pipeline.{name}"


def kind_of(address: str) -> Kind | None:
    """Return the kind of the resource at an address; None for an address of no known form."""
    match address.split("."):
        case ["graph", name] if name:
            return Kind.GRAPH
        case ["schema", name] if name:
            return Kind.SCHEMA
        case ["query", graph_id, name] if graph_id and name:
            return Kind.QUERY
        case ["policy", name] if name:
            return Kind.POLICY
        case ["provider", "embedding", name] if name:
            return Kind.PROVIDER
        case ["provider", "source", name] if name:
            return Kind.SOURCE
        case ["pipeline", name] if name:
            return Kind.PIPELINE
    return None


def group_queries(addresses: Iterable[str]) -> dict[str, list[str]]:
    """Return the addresses of the queries of each graph, by name; one pass, however many graphs there are."""
    found: dict[str, list[str]] = {}
    for address in addresses:
        if address.startswith("query.") and kind_of(address) is Kind.QUERY:
            found.setdefault(address.split(".")[1], []).append(address)
    return {graph_id: sorted(queries) for graph_id, queries in found.items()}


def graph_of(address: str) -> str | None:
    """Return the id of the graph that a graph, schema or query belongs to."""
    kind = kind_of(address)
    return address.split(".")[1] if kind in (Kind.GRAPH, Kind.SCHEMA, Kind.QUERY) else None


def name_of(address: str) -> str:
    """Return the last part: the id of a graph, or the name of a query, policy, provider or pipeline."""
    return address.rpartition(".")[2]
