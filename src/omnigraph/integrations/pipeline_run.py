"""Runs a declared pipeline, as `omnigraph pipeline run` does, and returns plain values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.pipeline.declared.check import check
from omnigraph.pipeline.declared.parse import read_pipeline
from omnigraph.pipeline.declared.plan import open_extract
from omnigraph.pipeline.declared.records import RunRecord, Status, TargetRecord
from omnigraph.pipeline.declared.run import RunOptions, parse_params
from omnigraph.pipeline.declared.run import run as run_once


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """What to run."""

    file: str | os.PathLike[str]
    pipeline: str | None = None
    """Which one, if the file has several."""
    targets: Sequence[str] = ()
    parameters: Mapping[str, str] | None = None
    full_refresh: bool = False
    actor: str | None = None


def run_pipeline(order: PipelineRun) -> RunRecord:
    """Run a pipeline once, and return its record."""
    pipeline = read_pipeline(Path(order.file), order.pipeline)
    params = parse_params(pipeline, order.parameters or {})
    check(pipeline)
    options = RunOptions(tuple(order.targets), order.full_refresh, params, order.actor)
    return run_once(pipeline, open_extract(pipeline, params), options)


def has_succeeded(record: RunRecord) -> bool:
    """Whether every target got its rows."""
    return record.status is Status.SUCCEEDED


def is_retryable(record: RunRecord) -> bool:
    """Whether another run may help all targets that did not get their rows."""
    missing = [one for one in record.targets.values() if not one.status.is_landed]
    return all(one.retryable for one in missing)


def summarize(record: RunRecord) -> dict[str, Any]:
    """Return the run as JSON: its id and status, and commit and counts of each target."""
    targets = {name: _summarize_target(one) for name, one in record.targets.items()}
    return {"run_id": record.run_id, "status": record.status.value, "targets": targets}


def _summarize_target(target: TargetRecord) -> dict[str, Any]:
    return {
        "status": target.status.value,
        "commit": target.commit_id if target.status.is_landed else None,
        "nodes": dict(target.nodes),
        "edges": dict(target.edges),
        "rejected": target.rejected,
    }
