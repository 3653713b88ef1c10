"""What a ledger records about one resource; desired resources have the same form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from omnigraph.cluster.addresses import (
    Kind,
    graph_address,
    graph_of,
    group_queries,
    kind_of,
    name_of,
)
from omnigraph.cluster.digests import hash_graph


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The digest of a resource, and what else a server needs to know of it."""

    digest: str
    applies_to: tuple[str, ...] | None = None
    """What a policy is bound to."""
    embedding_profile: Mapping[str, str] | None = None
    """An embedding provider, with `${NAME}` unresolved."""
    embedding_provider: str | None = None
    """The address of the provider of a graph."""
    external_blob_policy: Mapping[str, Any] | None = None
    """The blob policy of a graph; None denies."""
    source_profile: Mapping[str, Any] | None = None
    """A provider of sources, with `${NAME}` unresolved."""
    targets: tuple[str, ...] | None = None
    """The graphs that a pipeline loads into."""


Entries = Mapping[str, Entry]
"""Resources by address."""


def compose_graphs(likes: Mapping[str, Entry], entries: Entries) -> dict[str, Entry]:
    """Return the entries of graphs by address, from their parts in `entries`.

    `likes` has the provider and the blob policy of each, by id.
    """
    queries = group_queries(entries)
    found = {}
    for graph_id, like in likes.items():
        provider, blobs = like.embedding_provider, like.external_blob_policy
        digest = hash_graph(graph_id, queries.get(graph_id, ()), entries, provider, blobs)
        found[graph_address(graph_id)] = Entry(
            digest, embedding_provider=provider, external_blob_policy=blobs
        )
    return found


def find_mismatched_graphs(entries: Entries) -> list[str]:
    """Return the graphs whose recorded digest does not follow from the other entries."""
    graphs = {address: entries[address] for address in sorted(entries) if kind_of(address) is Kind.GRAPH}
    composed = compose_graphs({name_of(address): entry for address, entry in graphs.items()}, entries)
    return [address for address, entry in graphs.items() if composed[address].digest != entry.digest]


def find_users(address: str, entries: Entries) -> set[str]:
    """Return the graphs that have a provider or a policy, by what a ledger records."""
    bound = entries[address].applies_to if address in entries else None
    found = {name_of(scope) for scope in bound or () if kind_of(scope) is Kind.GRAPH}
    return found | {
        name_of(other)
        for other, entry in entries.items()
        if kind_of(other) is Kind.GRAPH and entry.embedding_provider == address
    }


def subtree(graph_id: str, addresses: Iterable[str]) -> list[str]:
    """Return those addresses that are a graph, its schema or its queries."""
    return [address for address in sorted(addresses) if graph_of(address) == graph_id]
