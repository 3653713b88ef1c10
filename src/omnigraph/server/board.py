"""What the worker processes of one server share: a folder of small files.

Each worker writes its own numbers and its own column of the table of admissions. Export slots are kernel
locks. When a worker ends, however it ends, the kernel frees its locks, and the supervisor clears what it had
under way.
"""

from __future__ import annotations

from pathlib import Path

from omnigraph.deferred_dataclass import dataclass
from omnigraph.storage.scratch import TemporaryFolder

SUPERVISOR = "supervisor"
"""Who writes the numbers about the workers."""


@dataclass(frozen=True, slots=True)
class Board:
    """The place of one worker among the workers of a server."""

    folder: Path
    index: int = 0
    count: int = 1
    kept: TemporaryFolder | None = None
    """Held by the process that made the folder: the folder of an object that is gone is removed."""

    @classmethod
    def create(cls, count: int = 1) -> Board:
        """Return the board of a new server."""
        kept = TemporaryFolder("server")
        return cls(kept.path, 0, count, kept)

    @property
    def admissions(self) -> Path:
        """The table of what every actor has under way in every worker."""
        return self.folder / "admissions"

    @property
    def counters(self) -> Path:
        """The counters of this worker; one that replaces it goes on counting there."""
        return self.folder / f"counters-{self.index}"

    @property
    def gauges(self) -> Path:
        """The numbers of this worker that are only true while it runs."""
        return self.folder / f"gauges-{self.index}"

    @property
    def supervisor_counters(self) -> Path:
        """The counters of the supervisor."""
        return self.folder / f"counters-{SUPERVISOR}"

    @property
    def sessions(self) -> Path:
        """The sessions of browsers, which any worker may be asked about."""
        return self.folder / "sessions"

    def all_counters(self) -> list[Path]:
        """Return the counters of all workers."""
        return sorted(self.folder.glob("counters-*"))

    def all_gauges(self) -> list[Path]:
        """Return the gauges of all workers that run."""
        return sorted(self.folder.glob("gauges-*"))
