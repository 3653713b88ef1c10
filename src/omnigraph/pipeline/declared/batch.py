"""The rows that a run loads, and the protocol of what extracts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import split_key
from omnigraph.engine.load.spool import PassedRows
from omnigraph.graph import Graph
from omnigraph.pipeline.declared.declaration import Destination
from omnigraph.pipeline.declared.records import SourceRecord


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of a target as files that a load reads."""

    files: tuple[PassedRows, ...]
    rows: Mapping[str, int]
    """How many there are, by table; mapped types without rows are 0."""
    content: str
    """Equal for batches with the same rows, in whatever order."""

    @property
    def total(self) -> int:
        """All rows."""
        return sum(self.rows.values())

    def of_kind(self, kind: str) -> dict[str, int]:
        """How many rows each node type, or each edge type, has."""
        return {split_key(key)[1]: rows for key, rows in self.rows.items() if split_key(key)[0] == kind}


Bounds = Mapping[str, SourceRecord]
"""What is read of each source: behind `lower`, up to `upper`, at `snapshot`."""


class Extract(Protocol):
    """Reads sources and makes rows of them."""

    def find_bounds(self, known: Bounds, reached: Sequence[Mapping[str, str]]) -> Bounds:
        """Up to where sources are to be read; what is known of them already stays.

        `reached` has what each target has of each source.
        """
        ...

    def release(self) -> None:
        """Remove what is kept of sources between their uses."""
        ...

    def open_batch(self, target: Destination, graph: Graph, bounds: Bounds) -> AbstractContextManager[Batch]:
        """The rows of a target as files, there while the block lasts."""
        ...

    def describe_engine(self) -> Mapping[str, str]:
        """Return what runs the work, for the record."""
        ...

    def redact(self, text: str) -> str:
        """Return a text without secrets."""
        ...
