"""A graph at one moment: which version of every table belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.engine.lineage import Commit
from omnigraph.engine.manifest import Entry, State
from omnigraph.storage.references import Identity


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The tables of a branch at a version of its manifest; plain memory, it never changes."""

    branch: str
    version: int
    commit: Commit | None
    """The newest commit it shows."""
    entries: Mapping[str, Entry]
    """By table key, sorted."""
    life: Identity = ()
    """Which life of the branch this is; version numbers repeat when a name is deleted and made again."""

    @property
    def id(self) -> str:
        """A name for this snapshot that can be asked for again."""
        return self.commit.id if self.commit else f"manifest:{self.branch}:v{self.version}"


def snapshot_of(branch: str, state: State, life: Identity) -> Snapshot:
    """The snapshot that a manifest state shows."""
    return Snapshot(branch, state.version, state.head, state.entries(), life)
