"""What to serve, as plain values: where graphs are, and the texts of their policies and stored queries.

Texts are read once, by the process that was started. So all workers serve the same, also one that
replaces another after the files have changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.files.source_files import read_source
from omnigraph.errors import BadRequest
from omnigraph.policy.members import read_file
from omnigraph.server.settings import ServeOptions

DEFAULT_GRAPH = "default"
ENDING = ".gq"
PLAN = "plan.json"


@dataclass(frozen=True, slots=True)
class PolicyText:
    """A policy bundle."""

    name: str
    """What mistakes in it are reported with."""
    text: str


@dataclass(frozen=True, slots=True)
class QueryText:
    """A text with stored queries."""

    name: str
    """What mistakes in it are reported with."""
    text: str
    chosen: tuple[str, ...] | None = None
    """The queries of the text that are served; None for all."""


@dataclass(frozen=True, slots=True)
class GraphSource:
    """A graph to serve: where it is, its policy and its stored queries."""

    graph_id: str
    uri: str
    policy: PolicyText | None = None
    queries: tuple[QueryText, ...] = ()
    embedding: Mapping[str, str] | None = None
    """The profile of its embedding provider, with `${NAME}` unresolved; None leaves it to the environment."""
    digest: str | None = None
    """What a ledger records of it, so that a change of its schema alone is a change as well."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A graph that is not served, and why."""

    graph_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ServingPlan:
    """What a source wants served."""

    graphs: tuple[GraphSource, ...]
    server_policy: PolicyText | None = None
    flat: str | None = None
    """The graph whose routes are mounted at the root as well."""
    is_managed: bool = False
    """Whether a declared deployment owns the schemas, so that they are not changed over HTTP."""
    left_out: tuple[LeftOut, ...] = ()
    """Other graphs of the source, which cannot be served now."""
    has_policy: bool = False
    """Whether any scope has a policy, that of a graph which is not served included."""


class BootSource(Protocol):
    """Where a server learns what to serve."""

    @property
    def name(self) -> str:
        """What logs call it."""

    def load(self) -> ServingPlan:
        """Return what is to be served now."""


@dataclass(frozen=True, slots=True)
class FixedSource:
    """A plan that was made before."""

    name: str
    plan: ServingPlan

    def load(self) -> ServingPlan:
        """Return the plan."""
        return self.plan


@dataclass(frozen=True, slots=True)
class StoreSource:
    """One graph, without a cluster."""

    store: str
    options: ServeOptions
    name: str = "store"

    def load(self) -> ServingPlan:
        """Return the one graph, with its routes at the root too."""
        chosen = self.options
        policy, server_policy = _read_policy(chosen.policy), _read_policy(chosen.server_policy)
        graph = GraphSource(DEFAULT_GRAPH, self.store, policy, read_query_files(chosen.queries))
        has_policy = policy is not None or server_policy is not None
        return ServingPlan((graph,), server_policy, flat=DEFAULT_GRAPH, has_policy=has_policy)


def save_plan(folder: Path, plan: ServingPlan) -> None:
    """Keep what is served now, for a worker that replaces another one."""
    written = folder / f"{PLAN}.{os.getpid()}"
    written.write_bytes(msgspec.json.encode(plan))
    written.replace(folder / PLAN)


def load_plan(folder: Path, otherwise: FixedSource) -> FixedSource:
    """Return what other workers serve by now, or what the server was started with."""
    try:
        saved = (folder / PLAN).read_bytes()
    except FileNotFoundError:
        return otherwise
    return FixedSource(otherwise.name, msgspec.json.decode(saved, type=ServingPlan))


def read_query_files(paths: Iterable[Path]) -> tuple[QueryText, ...]:
    """Read files and folders of stored queries."""
    sources = [read_source(path) for path in _list_files(paths)]
    return tuple(QueryText(str(source.name), source.text) for source in sources)


def _list_files(paths: Iterable[Path]) -> Sequence[Path]:
    """Return the files that paths name: a file itself, and the queries in a folder."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.glob(f"*{ENDING}")) if path.is_dir() else [path]
        if not inside:
            raise BadRequest(f"folder '{path}' has no {ENDING} files", remedy="check --queries")
        found += inside
    return found


def _read_policy(path: Path | None) -> PolicyText | None:
    return None if path is None else PolicyText(str(path), read_file(path))
