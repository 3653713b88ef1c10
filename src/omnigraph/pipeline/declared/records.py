"""The records of runs: of a file below the root of its first target, of a cluster below its own root.

__pipelines/<name>/ or __cluster/pipelines/<name>/
    lease.json              the run that holds the pipeline
    checkpoint.json         how far each target has come
    graph.json              the graph that the records of a cluster are about
    runs/<run id>.json      one run
    moved.json              the cluster that took the records of a file over
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import PipelineRecordInvalid, PipelineRunLost, PipelineRunNotFound
from omnigraph.storage.location import Location
from omnigraph.storage.locks import BranchLocks
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.stores import open_store

FOLDER = "__pipelines"


class Status(StrEnum):
    """How a run stands."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    FAILED = "failed"


class Step(StrEnum):
    """How far a target has come."""

    PENDING = "pending"
    STAGED = "staged"
    WRITING = "writing"
    MERGING = "merging"
    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    FAILED = "failed"

    @property
    def is_landed(self) -> bool:
        """Whether the target has all it was to get."""
        return self in (Step.SUCCEEDED, Step.SKIPPED)


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """What was read of a source."""

    rows: int | None = None
    lower: str | None = None
    upper: str | None = None
    snapshot: str | None = None


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """What became of a target."""

    mode: str
    branch: str
    status: Step = Step.PENDING
    idempotency_key: str | None = None
    staging_branch: str | None = None
    base_head: str | None = None
    commit_ids: tuple[str, ...] = ()
    merged_commit_id: str | None = None
    nodes: Mapping[str, int] = field(default_factory=dict)
    edges: Mapping[str, int] = field(default_factory=dict)
    rejected: int = 0
    retryable: bool = False
    error: Mapping[str, str] | None = None
    schema: str | None = None
    """The schema of the graph when the run began."""
    graph: str | None = None
    """The id of the first commit of the graph: another graph at the same place has none of the rows."""
    recorded_as: str | None = None
    """The name that a file gave to the target, in a record that a cluster took over."""

    @property
    def commit_id(self) -> str | None:
        """The commit that has the rows: the merge, if there was one."""
        return self.merged_commit_id or next(iter(self.commit_ids), None)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run."""

    run_id: str
    pipeline: str
    definition_digest: str
    started_at: str
    targets: Mapping[str, TargetRecord]
    actor: str | None = None
    finished_at: str | None = None
    status: Status = Status.RUNNING
    trigger: str = "manual"
    params: Mapping[str, Any] = field(default_factory=dict)
    full_refresh: bool = False
    sources: Mapping[str, SourceRecord] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    tasks: tuple[Mapping[str, Any], ...] = ()
    """What the tasks on Spark cost, stage by stage, as `TaskMetrics.to_json`."""
    diagnostics: tuple[Mapping[str, str], ...] = ()
    revision: int = 0
    """Grows with each change, so that no two texts of one record are equal."""
    schema_version: int = 1

    def with_target(self, name: str, **changes: Any) -> RunRecord:
        """The record with a target that has moved on."""
        return replace(self, targets={**self.targets, name: replace(self.targets[name], **changes)})

    def to_finished(self) -> RunRecord:
        """The record of a run that is over."""
        landed = [one.status.is_landed for one in self.targets.values()]
        status = Status.SUCCEEDED if all(landed) else Status.PARTIAL if any(landed) else Status.FAILED
        return replace(self, status=status, finished_at=format_now())

    def describe_failure(self) -> str:
        """Why targets did not get their rows, in one line."""
        errors = ((name, one.error) for name, one in self.targets.items() if one.error is not None)
        return "; ".join(f"{name}: {error['code']}: {error['message']}" for name, error in errors)

    def to_json(self) -> dict[str, Any]:
        """The record as it is stored and printed."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> RunRecord:
        """A record that was stored; members of later versions are left out."""
        targets = {
            name: _build_known(
                TargetRecord, {**one, "status": Step(one["status"]), "commit_ids": tuple(one["commit_ids"])}
            )
            for name, one in found["targets"].items()
        }
        sources = {name: _build_known(SourceRecord, one) for name, one in found["sources"].items()}
        values = {
            **found,
            "targets": targets,
            "sources": sources,
            "status": Status(found["status"]),
            "diagnostics": tuple(found["diagnostics"]),
            "tasks": tuple(found.get("tasks", ())),
        }
        record: RunRecord = _build_known(cls, values)
        return record


@contextmanager
def report_invalid_record(at: Location) -> Iterator[None]:
    """Report a stored object that is not what a run writes."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError) as wrong:
        raise PipelineRecordInvalid(at.uri, f"{type(wrong).__name__}: {wrong}") from wrong


def _build_known(kind: Any, found: Mapping[str, Any]) -> Any:
    return kind(**{name: value for name, value in found.items() if name in kind.__dataclass_fields__})


def format_now() -> str:
    """Return the time in the format of records."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a target has read a source."""

    column: str
    type: str
    upper: str
    run_id: str


Checkpoint = dict[str, dict[str, Reached]]
"""By target and source."""

OpenStore = Callable[[Location], ObjectStore]
"""Opens the store of records; tests watch and break its calls."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The records of one pipeline; only the holder of the lease writes."""

    objects: ObjectStore
    base: Location
    """A graph or the control folder of a cluster; its locks are used."""
    folder: str
    pipeline: str

    @classmethod
    def at(cls, base: Location, folder: str, pipeline: str, open_store: OpenStore = open_store) -> Ledger:
        """Open the records of a pipeline in a folder, without any I/O."""
        return cls(open_store(base), base, folder, pipeline)

    @property
    def place(self) -> Location:
        """The folder of the pipeline."""
        return self.base / f"{self.folder}/{self.pipeline}"

    @property
    def locks(self) -> BranchLocks:
        """The locks beside the records."""
        return BranchLocks(self.objects, self.base)

    def read_run(self, run_id: str) -> RunRecord:
        """One run by its id."""
        found = self._read_run(run_id)
        if found is None:
            raise PipelineRunNotFound(self.pipeline, run_id)
        return found

    def list_runs(self, limit: int | None = None) -> list[RunRecord]:
        """The runs, newest first."""
        names = sorted((at.name for at in self.objects.list_dir(self.place / "runs")), reverse=True)
        ids = [name.removesuffix(".json") for name in names if name.endswith(".json")]
        return [found for run_id in ids[:limit] if (found := self._read_run(run_id)) is not None]

    def begin(self, record: RunRecord) -> Journal:
        """Write down that a run begins."""
        at = self._locate_run(record.run_id)
        token = self.objects.create_text(at, _format_json(record.to_json()))
        if token is None:
            raise PipelineRunLost(self.pipeline, record.run_id)
        return Journal(self, record, token)

    def resume(self, run_id: str) -> Journal:
        """Go on with the record of a run."""
        found = self.objects.read_text_versioned(self._locate_run(run_id))
        if found is None:
            raise PipelineRunNotFound(self.pipeline, run_id)
        with report_invalid_record(self._locate_run(run_id)):
            return Journal(self, RunRecord.from_json(json.loads(found.text)), found.token)

    def read_checkpoint(self) -> Checkpoint:
        """How far each target has come."""
        at = self.place / "checkpoint.json"
        text = self.objects.read_text_if_exists(at)
        if text is None:
            return {}
        with report_invalid_record(at):
            return {
                target: {source: _build_known(Reached, one) for source, one in sources.items()}
                for target, sources in json.loads(text)["targets"].items()
            }

    def advance(self, target: str, sources: Mapping[str, Reached], run_id: str) -> None:
        """Note how far a target has come; the lease keeps others from doing so meanwhile."""
        found = self.read_checkpoint()
        after = {**found, target: {**found.get(target, {}), **sources}}
        if after != found:
            self._write_checkpoint(after, run_id)

    def copy_run(self, record: RunRecord) -> None:
        """Add the record of a run that was recorded elsewhere; one that is here already stays."""
        self.objects.create_text(self._locate_run(record.run_id), _format_json(record.to_json()))

    def add_checkpoint(self, found: Checkpoint) -> None:
        """Take over how far targets have come; what is known here already stays."""
        known = self.read_checkpoint()
        if found.keys() - known.keys():
            self._write_checkpoint({**found, **known}, None)

    def forget(self, targets: tuple[str, ...] | None) -> list[str]:
        """Forget how far targets have come, all if none is named; which these were."""
        found = self.read_checkpoint()
        gone = [name for name in found if targets is None or name in targets]
        if gone:
            self._write_checkpoint({name: one for name, one in found.items() if name not in gone}, None)
        return gone

    def _write_checkpoint(self, found: Checkpoint, run_id: str | None) -> None:
        targets = {
            target: {source: asdict(one) for source, one in sources.items()}
            for target, sources in found.items()
        }
        text = _format_json({"schema_version": 1, "targets": targets, "updated_by_run": run_id})
        self.objects.write_text(self.place / "checkpoint.json", text)

    def _locate_run(self, run_id: str) -> Location:
        return self.place / f"runs/{run_id}.json"

    def _read_run(self, run_id: str) -> RunRecord | None:
        text = self.objects.read_text_if_exists(self._locate_run(run_id))
        with report_invalid_record(self._locate_run(run_id)):
            return None if text is None else RunRecord.from_json(json.loads(text))

    def swap(self, record: RunRecord, token: str) -> str:
        """Replace the record of a run; fails if another process replaced it."""
        at = self._locate_run(record.run_id)
        after = self.objects.write_text_if_match(at, _format_json(record.to_json()), token)
        if after is None:
            raise PipelineRunLost(self.pipeline, record.run_id)
        return after


class Journal:
    """The record of a run while it is written: each step is stored before the next is taken."""

    def __init__(self, ledger: Ledger, record: RunRecord, token: str) -> None:
        self._ledger = ledger
        self._token = token
        self.record = record

    def find_target(self, name: str) -> TargetRecord:
        """How a target stands."""
        return self.record.targets[name]

    def move(self, name: str, **changes: Any) -> None:
        """Write down that a target has moved on."""
        self.save(self.record.with_target(name, **changes))

    def save(self, record: RunRecord) -> None:
        """Write the record down."""
        after = replace(record, revision=self.record.revision + 1)
        self._token = self._ledger.swap(after, self._token)
        self.record = after


def _format_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False)
