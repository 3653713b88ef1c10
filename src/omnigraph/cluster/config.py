"""A parsed `cluster.yaml` as values: what its author declared, before any other file is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Any

from omnigraph.cluster.addresses import graph_address, provider_address
from omnigraph.cluster.diagnostics import Place
from omnigraph.deferred_dataclass import dataclass
from omnigraph.storage.location import Location
from omnigraph.yaml_text import YamlValue

FILE = "cluster.yaml"


class BlobScope(StrEnum):
    """Who may read external blobs below a base."""

    SERVER_SAFE = "server_safe"
    EMBEDDED_ONLY = "embedded_only"


class ProviderKind(StrEnum):
    """The kinds of embedding providers."""

    OPENAI_COMPATIBLE = "openai-compatible"
    OPENAI = "openai"
    GEMINI = "gemini"
    MOCK = "mock"


@dataclass(frozen=True, slots=True)
class Located:
    """A text of the file, such as a path, with where it stands."""

    text: str
    path: str
    """The member, such as `graphs.knowledge.schema`."""
    place: Place


@dataclass(frozen=True, slots=True)
class BlobBase:
    """External blobs below `uri` are accepted."""

    uri: str
    """Normalized."""
    scope: BlobScope
    base: str
    """As it was written."""


@dataclass(frozen=True, slots=True)
class Provider:
    """An embedding provider; its key is a reference, which only a server resolves."""

    name: str
    kind: ProviderKind
    base_url: str | None
    model: str | None
    api_key: str | None

    @property
    def address(self) -> str:
        """The address of the resource."""
        return provider_address(self.name)

    def profile(self) -> dict[str, str]:
        """The provider as the ledger records it, with `${NAME}` as it is."""
        found = {
            "kind": self.kind.value,
            "base_url": self.base_url,
            "model": self.model,
            "api_key": self.api_key,
        }
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class GraphDeclaration:
    """A graph: its schema, where its queries are, and what it may use."""

    id: str
    schema: Located
    query_files: tuple[Located, ...]
    """Files and directories, each registered with all its queries."""
    query_names: Mapping[str, Located]
    """Queries listed by name, with their files."""
    queries: Any
    """`queries` as it was written."""
    embedding_provider: Located | None
    blobs: tuple[BlobBase, ...]
    place: Place

    @property
    def address(self) -> str:
        """The address of the resource."""
        return graph_address(self.id)

    def to_json(self) -> dict[str, Any]:
        """The declaration as the digest of the configuration sees it."""
        found: dict[str, Any] = {
            "schema": self.schema.text,
            "queries": self.queries,
            "embedding_provider": None if self.embedding_provider is None else self.embedding_provider.text,
        }
        if self.blobs:
            allowed = [{"base": one.base, "scope": one.scope.value} for one in self.blobs]
            found["external_blobs"] = {"allow": allowed}
        return found


@dataclass(frozen=True, slots=True)
class PolicyDeclaration:
    """A policy bundle and what it is bound to."""

    name: str
    file: Located
    applies_to: tuple[str, ...]
    """As it was written."""
    bindings: tuple[str, ...]
    """`cluster`, or addresses of graphs; sorted, each once."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A pipeline or a provider of sources, as it was written; its own room reads it."""

    name: str
    value: YamlValue
    path: str

    def to_json(self) -> Any:
        """The declaration as the digest of the configuration sees it."""
        return json.loads(json.dumps(self.value.plain(), sort_keys=True))


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """One `cluster.yaml`."""

    directory: Path
    name: str | None
    storage: str | None
    backend: str | None
    lock: bool | None
    providers: Mapping[str, Provider]
    graphs: Mapping[str, GraphDeclaration]
    policies: Mapping[str, PolicyDeclaration]
    sources: Mapping[str, Declared] = field(default_factory=dict)
    """The providers of sources."""
    pipelines: Mapping[str, Declared] = field(default_factory=dict)

    @property
    def root(self) -> Location:
        """The storage root: where the ledger, the catalog and the graphs are."""
        if self.storage is None:
            return Location.parse(self.directory)
        is_uri = "://" in self.storage
        return Location.parse(self.storage if is_uri else self.directory / self.storage)

    @property
    def locks(self) -> bool:
        """Whether commands that change the ledger exclude each other."""
        return self.lock is not False

    def resolve(self, declared: str) -> Path:
        """Return the path of a file that the configuration names."""
        return self.directory / declared

    def to_json(self) -> dict[str, Any]:
        """The configuration as its digest sees it: comments, order and formatting do not matter."""
        providers = {
            name: {key: one.profile().get(key) for key in ("kind", "base_url", "model", "api_key")}
            for name, one in sorted(self.providers.items())
        }
        found: dict[str, Any] = {
            "version": 1,
            "metadata": {"name": self.name},
            "storage": self.storage,
            "state": {"backend": self.backend, "lock": self.lock},
            "providers": {"embedding": providers},
            "graphs": {graph_id: one.to_json() for graph_id, one in sorted(self.graphs.items())},
            "policies": {
                name: {"file": one.file.text, "applies_to": list(one.applies_to)}
                for name, one in sorted(self.policies.items())
            },
        }
        # Configurations without pipelines keep the digest that they always had.
        if self.sources:
            found["providers"]["source"] = _declared_json(self.sources)
        if self.pipelines:
            found["pipelines"] = _declared_json(self.pipelines)
        return found


def _declared_json(declared: Mapping[str, Declared]) -> dict[str, Any]:
    return {name: one.to_json() for name, one in sorted(declared.items())}
