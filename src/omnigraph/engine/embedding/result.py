"""What is asked of a run that fills vectors, and what it did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import TypedDict

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.embedding.embed_job import RejectedText
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.tasks.runner import EngineName
from omnigraph.engine.upkeep.declared_indexes import PendingIndexes
from omnigraph.progress import ProgressListener

MAX_REPORTED_REFUSALS = 20
ROWS_PER_COMMIT = 50_000


class EmbedOptions(TypedDict, total=False):
    """How `Graph.embed` goes about it; all of it may be left out."""

    types: Iterable[str] | None
    """Only these node types."""
    everything: bool
    """Replace vectors that the configured model did not make, too."""
    engine: EngineName
    """`local`, `spark`, or chosen by how much there is to read (`auto`)."""
    batch: int
    """How many entities land in one commit, at most; 50,000 when not said."""
    dry_run: bool
    """Only report what would be done."""
    actor: str | None
    message: str | None
    """What its commits say about themselves."""
    progress: ProgressListener | None
    """Hears how far it is; see `omnigraph.Progress`."""


@dataclass(frozen=True, slots=True)
class FilledProperty:
    """What became of one property."""

    type: str
    property: str
    found: int
    """How many entities lacked their vector, or had one that was out of date."""
    embedded: int = 0
    cleared: int = 0
    """How many lost a vector because its text is gone."""
    changed_meanwhile: int = 0
    """How many were written by another writer at the same time; the next run sees to them."""
    refused: int = 0
    """How many have a text that the model does not take."""
    refusals: tuple[RejectedText, ...] = ()
    """The first of these."""


@dataclass(frozen=True, slots=True)
class EmbedResult:
    """What a run did to a branch."""

    branch: str
    model: str | None
    """None in a dry run without a provider."""
    properties: tuple[FilledProperty, ...]
    commits: tuple[Commit, ...]
    engine: str
    why: str
    """Why it ran there."""
    seconds: float
    dry_run: bool = False
    pending_indexes: PendingIndexes = field(default_factory=dict, hash=False)
    """Columns whose declared index is not built yet or lags, by table; reads are right without."""

    @property
    def embedded(self) -> int:
        """All new vectors."""
        return sum(one.embedded for one in self.properties)
