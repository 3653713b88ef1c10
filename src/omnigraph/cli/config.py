"""The values of the operator's config file: actor, servers, clusters, profiles, defaults and aliases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from omnigraph.deferred_dataclass import dataclass

FILE = "config.yaml"
OUTPUTS = ("table", "kv", "csv", "jsonl", "json")
WIDTH = 80
LAYOUTS = ("truncate", "wrap")
SCOPES = ("server", "cluster", "store")


@dataclass(frozen=True, slots=True)
class Profile:
    """A name for where to work; it binds exactly one of server, cluster and store."""

    name: str
    server: str | None = None
    cluster: str | None = None
    store: str | None = None
    default_graph: str | None = None

    @property
    def bindings(self) -> dict[str, str]:
        """What it binds, by kind."""
        found = {"server": self.server, "cluster": self.cluster, "store": self.store}
        return {kind: target for kind, target in found.items() if target is not None}


@dataclass(frozen=True, slots=True)
class Defaults:
    """The values that apply when no option overrides them."""

    output: str = "table"
    table_max_column_width: int = WIDTH
    table_cell_layout: str = "truncate"
    server: str | None = None
    store: str | None = None
    default_graph: str | None = None
    merge_granularity: Literal["row", "property"] | None = None


@dataclass(frozen=True, slots=True)
class Alias:
    """A query under a short name: of a file, on a store, or one that a server keeps."""

    name: str
    query: str | None = None
    file: Path | None = None
    server: str | None = None
    graph: str | None = None
    store: str | None = None
    branch: str | None = None
    args: tuple[str, ...] = ()
    """The parameters that arguments on the command line are for, in their order."""
    params: Mapping[str, Any] = field(default_factory=dict)
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """The whole file."""

    path: Path | None = None
    actor: str | None = None
    servers: Mapping[str, str] = field(default_factory=dict)
    """The URL of each."""
    clusters: Mapping[str, str] = field(default_factory=dict)
    """The root of each."""
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    defaults: Defaults = Defaults()
    aliases: Mapping[str, Alias] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return FILE if self.path is None else str(self.path)
