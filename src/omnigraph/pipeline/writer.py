"""`df.write` and `df.writeStream` with the format `omnigraph`: tasks stage rows, a process of Spark commits.

A batch of a stream is one commit, exactly once: `sink_records.py` says how.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.load.loader import load
from omnigraph.engine.load.request import LoadRequest, LoadResult
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import InternalError
from omnigraph.pipeline.sink_records import claim_batch
from omnigraph.pipeline.source_errors import show_plainly
from omnigraph.pipeline.staged_rows import RowStage, StagedPart
from omnigraph.pipeline.task_environment import apply_settings

_log = logging.getLogger(__name__)

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""What Spark calls them among the properties of a task."""


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """How the rows are loaded."""

    mode: Mode
    branch: str
    from_: str | None = None
    actor: str | None = None
    message: str | None = None
    retry: int = 0
    """How often a patch is prepared again when a table it changes moved."""


@dataclass(frozen=True, slots=True)
class StagedMessage(WriterCommitMessage):
    """What one task staged."""

    part: StagedPart


@dataclass(frozen=True, slots=True)
class BatchMessage(WriterCommitMessage):
    """What one task staged for a batch of a stream."""

    query: str
    stage: RowStage
    part: StagedPart


class BranchWriter(DataSourceArrowWriter):
    """Loads rows into a branch, in one commit or not at all."""

    def __init__(self, stage: RowStage, order: LoadOrder, settings: Mapping[str, str]) -> None:
        self._stage = stage
        self._order = order
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        """Check and stage the rows of one task."""
        apply_settings(self._settings)
        return StagedMessage(self._stage.stage(iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Load the rows that all tasks staged."""
        apply_settings(self._settings)
        with show_plainly():
            parts = [one.part for one in messages if isinstance(one, StagedMessage)]
            _load_staged(self._stage, parts, self._order)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Leave nothing behind."""
        apply_settings(self._settings)
        self._stage.clear()


class StreamWriter(DataSourceStreamArrowWriter):
    """Loads each batch of a stream into a branch, in one commit, exactly once."""

    def __init__(self, sink: str, stage: RowStage, order: LoadOrder, settings: Mapping[str, str]) -> None:
        self._sink = sink
        self._stage = stage
        self._order = order
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchMessage:
        """Check and stage the rows of one task."""
        apply_settings(self._settings)
        stage = self._stage.for_batch(int(_read_property(_BATCH)))
        return BatchMessage(_read_property(_QUERY), stage, stage.stage(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Load the rows of a batch, unless the branch has them."""
        apply_settings(self._settings)
        staged = [one for one in messages if isinstance(one, BatchMessage)]
        if not staged:
            return
        with show_plainly():
            self._commit_batch(staged, batchId)

    def _commit_batch(self, staged: Sequence[BatchMessage], batch: int) -> None:
        stage, order = staged[0].stage, self._order
        root = stage.job.root
        try:
            commit_id = claim_batch(root, self._sink, staged[0].query, order.branch, batch)
            if commit_id is None:
                _log.info("sink '%s' has batch %d already", self._sink, batch)
                return
            _load_staged(stage, [one.part for one in staged], order, commit_id)
        finally:
            stage.clear()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Leave nothing behind."""
        apply_settings(self._settings)
        for one in messages:
            if isinstance(one, BatchMessage):
                one.stage.clear()


def _load_staged(
    stage: RowStage, parts: Sequence[StagedPart], order: LoadOrder, commit_id: str | None = None
) -> LoadResult:
    """Commit the rows that tasks staged; nothing is left of them otherwise."""
    try:
        staged, names = stage.gather(parts)
        author = Author(
            parse_branch_name(order.branch),
            order.actor,
            retry=order.retry,
            commit_id=commit_id,
            message=order.message,
        )
        done = load(
            OpenGraph.open(stage.job.root),
            LoadRequest(names, order.mode),
            author,
            from_=order.from_,
            staged=staged,
        )
    finally:
        stage.clear()
    commit = done.commit.id if done.commit else "none"
    _log.info("loaded %d entities of '%s' in commit %s", done.total, stage.key, commit)
    return done


def _read_property(name: str) -> str:
    """What Spark says about the batch that a task belongs to."""
    context = TaskContext.get()
    found = None if context is None else context.getLocalProperty(name)
    if found is None:
        raise InternalError(f"Spark does not say '{name}' in a task of a stream")
    return found
