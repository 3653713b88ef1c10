"""What a ledger records about one resource; desired resources have the same form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from omnigraph.cluster.addresses import Kind, graph_of, kind_of
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


def compose_graph(graph_id: str, entries: Entries, like: Entry | None) -> Entry:
    """Return the entry of a graph from its parts in `entries`; `like` has its provider and blob policy."""
    provider = None if like is None else like.embedding_provider
    blobs = None if like is None else like.external_blob_policy
    digest = hash_graph(graph_id, entries, provider, blobs)
    return Entry(digest, embedding_provider=provider, external_blob_policy=blobs)


def find_mismatched_graphs(entries: Entries) -> list[str]:
    """Return the graphs whose recorded digest does not follow from the other entries."""
    graphs = [address for address in sorted(entries) if kind_of(address) is Kind.GRAPH]
    return [
        address
        for address in graphs
        if compose_graph(str(graph_of(address)), entries, entries[address]).digest != entries[address].digest
    ]


def subtree(graph_id: str, addresses: Iterable[str]) -> list[str]:
    """Return those addresses that are a graph, its schema or its queries."""
    return [address for address in sorted(addresses) if graph_of(address) == graph_id]
