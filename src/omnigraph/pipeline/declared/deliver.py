"""Delivers rows to one target: stage, load on a branch, merge, checkpoint; each step is recorded first."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.root import new_id
from omnigraph.errors import MergeConflicts, OmnigraphError, PipelineRunLost
from omnigraph.graph import Graph
from omnigraph.pipeline.declared.batch import Batch, Extract
from omnigraph.pipeline.declared.declaration import (
    CheckpointKind,
    Destination,
    LoadMode,
    OnConflict,
    Pipeline,
    Strategy,
    to_canonical_json,
)
from omnigraph.pipeline.declared.records import Journal, Ledger, Reached, SourceRecord, Step

INTERRUPTED = "pipeline_interrupted"
EMPTY_OVERWRITE = "pipeline_empty_overwrite"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One target of a run."""

    pipeline: Pipeline
    target: Destination
    graph: Graph
    ledger: Ledger
    journal: Journal
    extract: Extract

    @property
    def name(self) -> str:
        """The target in records."""
        return self.target.name

    def deliver(self) -> None:
        """Deliver the rows to the target; a failure is recorded and stops no other target."""
        try:
            with self.extract.open_batch(self.target, self.graph, self.find_bounds()) as batch:
                self._record_staged(batch)
                failpoints.reach(failpoints.PIPELINE_AFTER_STAGE)
                if not batch.total or self._has_landed(batch):
                    self.journal.move(self.name, status=Step.SKIPPED)
                elif self.target.strategy is Strategy.DIRECT:
                    self._write_directly(batch)
                else:
                    self._write_on_branch(batch)
            self.reach_checkpoint()
        except PipelineRunLost:
            raise
        except OmnigraphError as failure:
            if self.journal.find_target(self.name).status.is_landed:
                # The rows are there; the next run does what is left.
                raise
            self.record_failure(failure)

    def find_bounds(self) -> dict[str, SourceRecord]:
        """Return what this target gets: after what it has, up to what the run reads."""
        return bounds_of(self.pipeline, self.journal.record.sources, self._read_checkpoint())

    def read_watermarks(self) -> dict[str, str]:
        """Return the watermark up to which the target has each source."""
        watched = self.pipeline.checkpoint is CheckpointKind.WATERMARK
        return {name: one.upper for name, one in self._read_checkpoint().items()} if watched else {}

    def _read_checkpoint(self) -> Mapping[str, Reached]:
        return {} if self.journal.record.full_refresh else self.ledger.read_checkpoint().get(self.name, {})

    def merge(self) -> None:
        """Merge the staging branch into the target branch; the record already says `merging`."""
        before = self.journal.find_target(self.name)
        assert before.staging_branch is not None
        done = self.graph.merge(
            before.staging_branch, into=self.target.branch, actor=self.journal.record.actor
        )
        failpoints.reach(failpoints.PIPELINE_AFTER_MERGE)
        self.record_landed(None if done.commit is None else done.commit.id)

    def record_landed(self, commit: str | None) -> None:
        """Record that the rows landed, then remove the staging branch."""
        self.journal.move(
            self.name, status=Step.SUCCEEDED, merged_commit_id=commit, error=None, retryable=False
        )
        self.drop_staging_branch()

    def drop_staging_branch(self) -> None:
        """Remove the staging branch, if there is one."""
        branch = self.journal.find_target(self.name).staging_branch
        if branch is None:
            return
        if branch in self.graph.branches:
            self.graph.branches.delete(branch)
        self.journal.move(self.name, staging_branch=None)

    def reach_checkpoint(self) -> None:
        """Advance the checkpoint of the target."""
        failpoints.reach(failpoints.PIPELINE_BEFORE_CHECKPOINT)
        if self.pipeline.checkpoint is CheckpointKind.WATERMARK:
            run_id = self.journal.record.run_id
            read = self.journal.record.sources
            reached = {
                source.name: Reached(source.watermark.column, source.watermark.type, upper, run_id)
                for source in self.pipeline.sources
                if source.watermark is not None
                and source.name in read
                and (upper := read[source.name].upper) is not None
            }
            self.ledger.advance(self.name, reached, run_id)
        failpoints.reach(failpoints.PIPELINE_AFTER_CHECKPOINT)

    def record_failure(self, failure: OmnigraphError) -> None:
        """Record the failure, and remove the staging branch unless it is kept for inspection."""
        error = {"code": failure.code, "message": self.extract.redact(failure.message)}
        if self.journal.find_target(self.name).status is Step.MERGING and may_have_landed(failure):
            # Recovery may still finish the merge: the next run checks the history of the target.
            self.journal.move(self.name, error=error, retryable=True)
            return
        self.journal.move(self.name, status=Step.FAILED, error=error, retryable=_may_help(failure))
        self.drop_failed_branch(isinstance(failure, MergeConflicts))

    def drop_failed_branch(self, conflict: bool) -> None:
        """Remove the branch of a failed load; one with conflicts may be kept for inspection."""
        if not (conflict and self.target.on_conflict is OnConflict.KEEP_BRANCH):
            self.drop_staging_branch()

    def _record_staged(self, batch: Batch) -> None:
        record = self.journal.record
        key = self._compute_key(batch, self.name, record.definition_digest)
        self.journal.save(
            replace(
                record.with_target(
                    self.name,
                    status=Step.STAGED,
                    idempotency_key=key,
                    nodes=batch.of_kind("node"),
                    edges=batch.of_kind("edge"),
                    error=None,
                    retryable=False,
                ),
                diagnostics=(*record.diagnostics, *self._list_warnings(batch)),
            )
        )

    def _list_warnings(self, batch: Batch) -> list[Mapping[str, str]]:
        if self.target.mode is not LoadMode.OVERWRITE:
            return []
        return [
            {
                "code": EMPTY_OVERWRITE,
                "severity": "warning",
                "target": self.name,
                "message": f"'{key}' gets no rows and is left as it is",
            }
            for key, rows in batch.rows.items()
            if not rows
        ]

    def _compute_key(self, batch: Batch, target: str, definition: str) -> str:
        """Equal for the same rows of the same bounds, for one target and definition."""
        bounds = {name: (one.lower, one.upper, one.snapshot) for name, one in self.find_bounds().items()}
        parts = ("pipeline", self.pipeline.name, target, definition, to_canonical_json(bounds), batch.content)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _has_landed(self, batch: Batch) -> bool:
        """Whether an earlier run delivered these rows; checked only if a second delivery would matter.

        A definition that was changed since, or moved into a cluster, delivers the same rows under another
        key: so the key is computed as that run did.
        """
        if self.target.mode is not LoadMode.APPEND or self.journal.record.full_refresh:
            return False
        now = self.journal.find_target(self.name)
        for run in self.ledger.list_runs():
            one = run.targets.get(self.name)
            if one is None or not one.status.is_landed or one.graph not in (None, now.graph):
                continue
            if one.idempotency_key == self._compute_key(
                batch, one.recorded_as or self.name, run.definition_digest
            ):
                return True
        return False

    def _write_directly(self, batch: Batch) -> None:
        self.journal.move(self.name, status=Step.WRITING, base_head=self._find_head())
        done = self.graph.load(
            batch.files, mode="merge", branch=self.target.branch, actor=self.journal.record.actor
        )
        commits = () if done.commit is None else (done.commit.id,)
        self.journal.move(self.name, status=Step.SUCCEEDED, commit_ids=commits)

    def _write_on_branch(self, batch: Batch) -> None:
        # A name of its own for each attempt: one that was taken for dead can only touch its own branch.
        first = self.journal.find_target(self.name).base_head is None
        attempt = self.journal.record.run_id if first else new_id()
        branch = staging_branch(self.pipeline, attempt)
        self.journal.move(
            self.name, status=Step.WRITING, staging_branch=branch, base_head=self._find_head(), commit_ids=()
        )
        done = self.graph.load(
            batch.files,
            mode=self.target.mode.value,
            branch=branch,
            from_=self.target.branch,
            actor=self.journal.record.actor,
        )
        commits = () if done.commit is None else (done.commit.id,)
        self.journal.move(self.name, status=Step.MERGING, commit_ids=commits)
        self.merge()

    def _find_head(self) -> str:
        return self.graph.snapshot(self.target.branch).id


def staging_branch(pipeline: Pipeline, attempt: str) -> str:
    """Return the name of the branch on which an attempt loads; flat, since branches do not nest."""
    return f"pipeline-{pipeline.name}-{attempt}"


def bounds_of(
    pipeline: Pipeline, read: Mapping[str, SourceRecord], reached: Mapping[str, Reached]
) -> dict[str, SourceRecord]:
    """What is read of sources, from where a target has come to."""
    watched = pipeline.checkpoint is CheckpointKind.WATERMARK
    return {
        name: replace(one, lower=reached[name].upper if watched and name in reached else None)
        for name, one in read.items()
    }


def may_have_landed(failure: OmnigraphError) -> bool:
    """Whether a merge that failed may have taken place, or yet may: a refusal has not."""
    return failure.status >= 500


def _may_help(failure: OmnigraphError) -> bool:
    """Whether the same rows may go through at another time: not where they contradict what is stored."""
    return failure.retryable or failure.status >= 500
