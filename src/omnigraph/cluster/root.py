"""The storage root of a cluster: where everything that a cluster stores is.

__cluster/state.json                                    the ledger
__cluster/lock.json                                     the command that changes it
__cluster/approvals/<id>.json                           approvals, consumed ones too
__cluster/recoveries/<id>.json                          operations on graphs that have not ended
__cluster/resources/query/<graph>/<name>/<digest>.gq    published queries
__cluster/resources/policy/<name>/<digest>.yaml         published policies
__cluster/resources/pipeline/<name>/<digest>.pipeline.yaml    published pipelines
__cluster/pipelines/<name>/                             lease, checkpoint and runs of a pipeline
graphs/<id>.omni/                                       graphs
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.root import Root, new_id
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore, Observer
from omnigraph.storage.stores import open_store

CONTROL = "__cluster"
GRAPHS = "graphs"
SUFFIX = ".omni"

Stored = TypeVar("Stored", bound=msgspec.Struct)


def utc_now() -> datetime:
    """Return the time of this machine."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class ClusterRoot:
    """The root with its store; clock, ids and the tools to work on graphs are replaceable for tests."""

    location: Location
    objects: ObjectStore
    clock: Callable[[], datetime] = utc_now
    new_id: Callable[[], str] = new_id
    open_graph_root: Callable[[Location], Root] = Root.at

    @classmethod
    def at(cls, location: Location, observe: Observer | None = None) -> ClusterRoot:
        """Return the root at a location, without any I/O."""
        return cls(location, open_store(location, observe))

    @property
    def state(self) -> Location:
        """The ledger."""
        return self.location / f"{CONTROL}/state.json"

    @property
    def lock(self) -> Location:
        """The lock."""
        return self.location / f"{CONTROL}/lock.json"

    @property
    def approvals(self) -> Location:
        """The folder of approvals."""
        return self.location / f"{CONTROL}/approvals"

    @property
    def recoveries(self) -> Location:
        """The folder of recovery files."""
        return self.location / f"{CONTROL}/recoveries"

    def graph(self, graph_id: str) -> Location:
        """Where a graph is; this cannot be configured."""
        return self.location / f"{GRAPHS}/{graph_id}{SUFFIX}"

    def graph_root(self, graph_id: str) -> Root:
        """The root of a graph, with the tools to work on it."""
        return self.open_graph_root(self.graph(graph_id))

    def now(self) -> str:
        """The time as it is recorded: RFC 3339 in UTC."""
        return self.clock().isoformat(timespec="milliseconds").replace("+00:00", "Z")


OpenRoot = Callable[[Location], ClusterRoot]
"""Opens the storage root of a configuration; tests watch and break its storage calls."""


def decode(text: str | bytes) -> Any:
    """Return stored JSON as plain values; raises `msgspec.DecodeError`, for bottomless nesting too."""
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise msgspec.DecodeError("it is nested too deeply") from error


def encode(value: msgspec.Struct) -> str:
    """Return a stored value as text: indented JSON with a line end."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"
