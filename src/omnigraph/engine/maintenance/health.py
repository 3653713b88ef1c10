"""What the doctor reports, as values."""

from __future__ import annotations

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.recovery.forecast import RecoveryForecast
from omnigraph.engine.constraints.edge_rules import (
    BelowMinimum,
)
from omnigraph.engine.maintenance.cleanup.staged_files import StagedLoad
from omnigraph.engine.maintenance.cleanup.stray_forks import (
    StrayFork,
)
from omnigraph.engine.maintenance.cleanup.unneeded_tables import DroppedTable
from omnigraph.storage.indexes import IndexCoverage, RefusedIndex

ON_RECORD = "a write on record"


@dataclass(frozen=True, slots=True)
class DriftedTable:
    """A table whose newest version is not the one its branch publishes."""

    key: str
    branch: str
    pinned: int
    head: int
    cause: str
    """What made the versions in between: `ON_RECORD`, or one of `recovery.drift`."""


@dataclass(frozen=True, slots=True)
class UnreadablePart:
    """A branch, or a table of one, that cannot be read at all."""

    branch: str
    key: str | None
    """None when it is the branch itself."""
    reason: str


@dataclass(frozen=True, slots=True)
class UnreadableFile:
    """A small file of the graph that cannot be understood: a tag, or the record of a branch's creation."""

    path: str
    """Relative to the root."""
    reason: str
    remedy: str


@dataclass(frozen=True, slots=True)
class LastWriter:
    """The last holder of the lock of a branch; it may still hold it."""

    branch: str
    owner: str
    operation_id: str | None


@dataclass(frozen=True, slots=True)
class IndexReport:
    """An index of a table that a branch owns, and its coverage."""

    key: str
    branch: str
    index: IndexCoverage


@dataclass(frozen=True, slots=True)
class PendingIndex:
    """Declared indexes of a table that are missing, or lag by more rows than writes leave unindexed."""

    key: str
    branch: str
    columns: tuple[str, ...]
    refused: tuple[RefusedIndex, ...] = ()
    """Those that cannot be built from the values of their column."""


@dataclass(frozen=True, slots=True)
class VersionCount:
    """The stored versions of a table, and how many of them only history needs."""

    key: str
    branch: str
    versions: int
    past: int
    """What a cleanup could remove that keeps one commit of each branch."""


@dataclass(frozen=True, slots=True)
class OrphanTable:
    """A table that no branch ever published: its schema change failed, or is in progress."""

    path: str
    removable: bool
    """Whether a cleanup removes it: its last write is long ago."""


@dataclass(frozen=True, slots=True)
class OwedRemoval:
    """Data that a schema change should have removed and that is still stored."""

    operation_id: str
    keys: tuple[str, ...]
    """The tables; empty when the intent cannot be read."""


@dataclass(frozen=True, slots=True)
class DerivedFiles:
    """Files that speed up reads; they may be deleted at any time."""

    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class MovedFork:
    """A fork that records its shared files at another location: the graph was moved or copied."""

    path: str
    """Below the root."""
    recorded: str


@dataclass(frozen=True, slots=True)
class Health:
    """Everything that the doctor found."""

    records: tuple[RecoveryForecast, ...]
    """Recorded writes: in progress, or interrupted."""
    unread: tuple[UnreadablePart, ...]
    drift: tuple[DriftedTable, ...]
    forks: tuple[StrayFork, ...]
    """Forks that no branch publishes, and files of such; files of a branch itself have the key `manifest`."""
    writers: tuple[LastWriter, ...]
    indexes: tuple[IndexReport, ...]
    pending: tuple[PendingIndex, ...]
    history: tuple[VersionCount, ...]
    dropped: tuple[DroppedTable, ...]
    """Tables of dropped types that only history needs."""
    orphan_tables: tuple[OrphanTable, ...]
    derived: DerivedFiles
    removals: tuple[OwedRemoval, ...]
    below_minimum: tuple[BelowMinimum, ...]
    """Nodes with fewer edges than `@card` asks for; of a branch only where it differs from main."""
    moved: tuple[MovedFork, ...]
    """Reads work; only Lance itself and earlier releases use the recorded location."""
    staged: tuple[StagedLoad, ...] = ()
    """Staged files of loads that are in progress, or were interrupted."""
    unreadable_files: tuple[UnreadableFile, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there is nothing to fix; a lagging index is not a problem, nor a write in progress."""
        found = self.interrupted or self.unread or self.drift or self.forks or self.removals
        return not (found or self.abandoned or self.unreadable_files)

    @property
    def abandoned(self) -> tuple[StagedLoad, ...]:
        """The staged files of loads that cannot be in progress any more."""
        return tuple(one for one in self.staged if one.removable)

    @property
    def interrupted(self) -> tuple[RecoveryForecast, ...]:
        """The recorded writes without a running process."""
        return tuple(one for one in self.records if not one.busy)
