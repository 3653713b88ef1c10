"""A snapshot: the version of every table at one point in time."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import ManifestState, TableEntry
from omnigraph.storage.references import Incarnation


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The tables of a branch at a version of its manifest; plain memory, it never changes."""

    branch: str
    version: int
    commit: Commit | None
    """The newest commit it shows."""
    entries: Mapping[str, TableEntry]
    """By table key, sorted."""
    incarnation: Incarnation = ()
    """The incarnation of the branch; version numbers repeat when a name is deleted and created again."""

    @property
    def id(self) -> str:
        """A name by which this snapshot can be opened again."""
        return self.commit.id if self.commit else f"manifest:{self.branch}:v{self.version}"


def make_snapshot(branch: str, state: ManifestState, incarnation: Incarnation) -> Snapshot:
    """Return the snapshot of a manifest state."""
    return Snapshot(branch, state.version, state.head, state.entries(), incarnation)
