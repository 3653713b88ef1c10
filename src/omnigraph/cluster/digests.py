"""Digests of resources, exactly as a ledger records them; all are lower-case hexadecimal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from omnigraph.cluster.addresses import name_of, schema_address

DENY: None = None
"""The blob policy of a graph that accepts no external blobs; it adds nothing to a digest."""


class HasDigest(Protocol):
    """A resource, as desired or as recorded."""

    @property
    def digest(self) -> str: ...


def hash_bytes(data: bytes) -> str:
    """Return the digest of the bytes of a file."""
    return hashlib.sha256(data).hexdigest()


def encode_compact(value: Any) -> str:
    """Return JSON as it stands in digests: no spaces, members in their order, nothing escaped."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def hash_profile(profile: Mapping[str, str]) -> str:
    """Return the digest of an embedding provider."""
    return _hash("embedding-provider", encode_compact(dict(profile)), closed=False)


def hash_source_profile(profile: Mapping[str, Any]) -> str:
    """Return the digest of a provider of sources."""
    return _hash("source-provider", encode_compact(dict(profile)), closed=False)


def hash_config(config: Mapping[str, Any], digests: Mapping[str, str]) -> str:
    """Return the digest of a parsed configuration with all its resources."""
    pairs = [part for address in sorted(digests) for part in (address, digests[address])]
    return _hash("cluster-config", encode_compact(config), *pairs)


def hash_graph(
    graph_id: str,
    queries: Iterable[str],
    resources: Mapping[str, HasDigest],
    provider: str | None,
    blob_policy: Mapping[str, Any] | None,
) -> str:
    """Return the composite digest of a graph from the resources around it; `queries` are its own, by name."""
    schema = resources.get(schema_address(graph_id))
    parts = ["graph", graph_id, "schema", "" if schema is None else schema.digest]
    for address in queries:
        parts += ["query", name_of(address), resources[address].digest]
    if provider is not None:
        profile = resources.get(provider)
        parts += ["embedding_provider", provider, "" if profile is None else profile.digest]
    if blob_policy is not DENY:
        parts += ["external_blob_policy", encode_compact(blob_policy)]
    return _hash(*parts)


def _hash(*parts: str, closed: bool = True) -> str:
    """Hash parts with a NUL byte between them and, where `closed`, one after the last."""
    text = "\0".join(parts) + ("\0" if closed else "")
    return hash_bytes(text.encode())
