"""`spark.readStream.format("omnigraph")`: the changes of a type, commit by commit, each exactly once.

An offset is a commit of the branch, and history below a commit never changes. So the same two offsets always
give the same changes, and with a checkpoint each of them arrives exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes.change import ChangeFilter
from omnigraph.engine.changes.diff import Diff
from omnigraph.engine.changes.feed import BranchHistory
from omnigraph.engine.changes.row_pairs import RowPairs, compare_sides, split_rows
from omnigraph.engine.changes.table_side import TableSide
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import new_id, shared_root
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.table_types import table_schema
from omnigraph.errors import ChangeFeedGap, HistoricalVersionReclaimed
from omnigraph.graph import Graph
from omnigraph.pipeline.changes.change_rows import change_columns, change_fields
from omnigraph.pipeline.fan_out import arrow_schema, conform
from omnigraph.pipeline.table_scan import to_spark_types
from omnigraph.pipeline.task_environment import apply_settings
from omnigraph.storage.blobs import is_blob

COMMITS_PER_TASK = 32
"""Most commits are small, and a task costs more than reading one of them."""
_ROWS_AT_ONCE = 4096

Offset = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ChangeScan:
    """Which changes are read: of a type, on a branch, from a place in its history on."""

    uri: str
    branch: str
    key: str
    since: str
    until: str | None
    """The newest commit at creation; a stream continues beyond it."""
    images: pa.Schema = field(repr=False)
    """The columns of an entity before and after a change, as Spark takes them; Blobs are left out."""
    work: str = field(default_factory=new_id)
    """An id that its tasks share."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of a change."""
        return pa.schema(
            [
                pa.field("commit", pa.string(), nullable=False),
                pa.field("version", pa.int64(), nullable=False),
                pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
                pa.field("actor", pa.string()),
                *change_fields(self.images),
            ]
        )

    def open_history(self) -> BranchHistory:
        """The commits of the branch as they are now."""
        return BranchHistory(
            _graph_at(self.uri, self.work), self.branch, ChangeFilter(types=frozenset({self.key}))
        )

    def find_start(self) -> str | None:
        """The commit after which it begins."""
        return self.open_history().position(self.since).after

    def plan_steps(self, after: str | None, until: str | None) -> list[Step]:
        """The commits between two others, some for each task."""
        commits = self.open_history().between(after, until)
        places = range(0, len(commits), COMMITS_PER_TASK)
        return [Step(tuple(commits[place : place + COMMITS_PER_TASK])) for place in places]

    def read(self, commits: Sequence[Commit]) -> Iterator[pa.RecordBatch]:
        """The changes of some commits, one after another, each by id."""
        history = self.open_history()
        for commit in commits:
            try:
                yield from self._read_changes(commit, history.changes(commit, self.since))
            except HistoricalVersionReclaimed as error:
                raise ChangeFeedGap(self.since, commit.id) from error

    def count_changes(self, history: BranchHistory, commit: Commit) -> int:
        """How many changes a commit has; the rows are compared, but not read as a whole."""
        diff = history.changes(commit, self.since)
        if _table_version(diff.before, self.key) == _table_version(diff.after, self.key):
            return 0
        return sum(sum(counted.to_json().values()) for counted in diff.stat().values())

    def _read_changes(self, commit: Commit, diff: Diff) -> Iterator[pa.RecordBatch]:
        if _table_version(diff.before, self.key) == _table_version(diff.after, self.key):
            return
        graph = _graph_at(self.uri, self.work)
        # A feed stops where the schema changes, so both sides have that of the commit.
        catalog = graph.catalog_at(diff.after)
        before, after = (TableSide.of(graph, at, self.key, catalog) for at in (diff.before, diff.after))
        pairs = compare_sides(before, after)
        for portion in split_rows(pairs.table, pairs.sides, _ROWS_AT_ONCE):
            yield _build_batch(self, commit, pairs, portion)


def change_scan(graph: Graph, branch: str, key: str, since: str) -> ChangeScan:
    """The changes of a type from a place in the history of a branch up to now."""
    snapshot = graph.snapshot(branch)
    stored = [column for column in table_schema(snapshot.schema, key) if not is_blob(column)]
    images = to_spark_types(pa.schema([column.with_nullable(True) for column in stored]))
    until = snapshot.commit.id if snapshot.commit else None
    return ChangeScan(graph.uri, branch, key, since, until, images)


def _table_version(snapshot: Snapshot, key: str) -> object:
    """Return the table version; equal ones hold equal rows."""
    entry = snapshot.entries.get(key)
    return entry and (entry.path, entry.owner, entry.version)


@lru_cache(maxsize=4)
def _graph_at(uri: str, work: str) -> OpenGraph:
    """Return an open graph of this process; its reads see the newest state."""
    return OpenGraph.open(shared_root(uri, work), read_only=True)


def _build_batch(scan: ChangeScan, commit: Commit, pairs: RowPairs, portion: pa.Table) -> pa.RecordBatch:
    """Changes as rows, each with its commit."""
    count = portion.num_rows
    columns = [
        pa.repeat(commit.id, count),
        pa.repeat(pa.scalar(commit.version, pa.int64()), count),
        pa.repeat(pa.scalar(commit.created_at, pa.int64()), count).cast(pa.timestamp("us", "UTC")),
        pa.repeat(pa.scalar(commit.actor, pa.string()), count),
        *change_columns(scan.images, pairs, portion),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=scan.schema)


# --- for Spark -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step(InputPartition):
    """The commits that one task reads."""

    commits: tuple[Commit, ...]


class _ChangeReader:
    """The part that a reader and a stream of changes share."""

    def __init__(self, scan: ChangeScan, schema: StructType, settings: Mapping[str, str]) -> None:
        self._scan = scan
        self._schema = schema
        self._settings = settings

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one task, in exactly the types that Spark expects."""
        apply_settings(self._settings)
        wanted = arrow_schema(self._schema)
        assert isinstance(partition, Step)
        for batch in self._scan.read(partition.commits):
            yield conform(batch, wanted)


class PastChanges(_ChangeReader, DataSourceReader):
    """Reads all changes up to the commit that was the newest when it was created."""

    def partitions(self) -> Sequence[InputPartition]:
        """The commits, some for each task; at least one task, which may have none."""
        return self._scan.plan_steps(self._scan.find_start(), self._scan.until) or [Step(())]


@dataclass(frozen=True, slots=True)
class Admission:
    """How much a batch of a stream takes; None for no limit. A commit is never divided."""

    changes: int | None = None
    commits: int | None = None

    @property
    def is_limited(self) -> bool:
        """Whether a backlog is more than one batch."""
        return self.changes is not None or self.commits is not None

    def admit(self, scan: ChangeScan, after: str | None, until: str | None) -> str | None:
        """Return the last commit of the next batch."""
        history = scan.open_history()
        waiting = history.between(after, until)[: self.commits]
        if self.changes is None or not waiting:
            return waiting[-1].id if waiting else until
        taken = 0
        for number, commit in enumerate(waiting):
            taken += scan.count_changes(history, commit)
            if taken > self.changes:
                return waiting[max(0, number - 1)].id
        return waiting[-1].id


class ChangeStream(_ChangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The changes of one commit after another."""

    def __init__(
        self,
        scan: ChangeScan,
        schema: StructType,
        settings: Mapping[str, str],
        admission: Admission = Admission(),  # noqa: B008 - a frozen value
    ) -> None:
        super().__init__(scan, schema, settings)
        self._admission = admission
        self._target: str | None = None
        """The newest commit when a query began that ends there."""

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Where a stream without a checkpoint begins."""
        apply_settings(self._settings)
        return {"commit": self._scan.find_start() or ""}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Tell Spark that batches are limited; how, our own options say."""
        limited = self._admission.is_limited
        return ReadMaxRows(self._admission.changes or 1) if limited else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Note where a query ends that reads what there is now."""
        self._target = self._find_head()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        """The newest commit of the branch, or the last one that the next batch takes."""
        end = self._target or self._find_head()
        if self._admission.is_limited and not isinstance(limit, ReadAllAvailable):
            end = self._admission.admit(self._scan, start["commit"] or None, end or None) or ""
        return {"commit": end}

    def _find_head(self) -> str:
        head = self._scan.open_history().head
        return head.id if head else ""

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The commits after one, up to another."""
        apply_settings(self._settings)
        return self._scan.plan_steps(start["commit"] or None, end["commit"] or None)
