"""What the checks of a load look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast
from uuid import uuid4

import pyarrow as pa

from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.manifest import TableEntry
from omnigraph.engine.graph.table_types import TableType
from omnigraph.engine.load.load_job import LoadJob
from omnigraph.engine.load.row_views import NewRows, StoredPart, View, list_new_rows, list_stored_parts
from omnigraph.engine.load.staging import StagedItem
from omnigraph.engine.tasks.buckets import MAX_BUCKETS
from omnigraph.engine.tasks.runner import LocalRunner, Runner
from omnigraph.lang.schema.catalog import Cardinality, EdgeType

FEW = 1 << 20
_ROWS_PER_BUCKET = 1 << 20


@dataclass(frozen=True, slots=True)
class CheckTask:
    """What travels to the tasks of the checks."""

    job: LoadJob
    mode: Mode
    targets: Mapping[str, TableType] = field(repr=False)

    def releases(self, key: str) -> bool:
        """Whether edges of a type are counted that the load may move from one source to another."""
        return self.mode is Mode.MERGE and self.counts(key)

    def counts(self, key: str) -> bool:
        """Whether it matters how many edges of a type a node has."""
        owner = self.targets[key].owner
        return isinstance(owner, EdgeType) and owner.cardinality != Cardinality()

    def note_released(self, key: str, edges: pa.Table) -> str:
        """Keep stored edges for a later check; the name by which it finds them."""
        name = uuid4().hex
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, edges.schema) as writer:
            writer.write_table(edges)
        self.job.root.objects.write_bytes(self.job.released(key, name), sink.getvalue().to_pybytes())
        return name

    def released(self, key: str, name: str) -> pa.Table:
        """Edges that were kept."""
        stored = self.job.root.objects.read_bytes_if_exists(self.job.released(key, name))
        return pa.ipc.open_stream(stored).read_all()


@dataclass(frozen=True)
class CheckScope:
    """A load and the state of the branch it is checked against."""

    runner: Runner
    task: CheckTask
    items: Sequence[StagedItem]
    entry: Callable[[str], TableEntry]
    """A table of the branch by its key."""

    @property
    def mode(self) -> Mode:
        """What happens to rows that are stored already."""
        return self.task.mode

    @cached_property
    def keys(self) -> list[str]:
        """The types of the load, nodes first."""
        found = {staged.key for one in self.items for staged in one.types}
        return sorted(found, key=lambda key: (key.startswith("edge:"), key))

    def new(self, key: str) -> list[NewRows]:
        """The load's rows of a type."""
        return list_new_rows(self.items, key)

    def old(self, key: str) -> list[StoredPart]:
        """The stored rows of a type."""
        return list_stored_parts(self.task.job, self.entry(key))

    def releases(self, key: str) -> bool:
        """As `Task.releases`."""
        return self.task.releases(key)

    def edge(self, key: str) -> EdgeType:
        """The declaration of an edge type."""
        return cast(EdgeType, self.task.targets[key].owner)

    def runner_for(self, rows: int) -> Runner:
        """Who looks at so many rows: of few, this process has seen all before another would have begun."""
        return LocalRunner() if rows <= FEW else self.runner

    def buckets(self, views: Sequence[View]) -> int:
        """Into how many parts the keys of these rows go: each is small, and there is one for every core.

        No more than that, because a part is a task, and beginning one costs as much as many rows.
        """
        rows = count_rows(views)
        return min(MAX_BUCKETS, max(self.runner_for(rows).cores, -(-rows // _ROWS_PER_BUCKET)))


def count_rows(views: Sequence[View]) -> int:
    """How many rows are looked at."""
    return sum(view.rows for view in views)
