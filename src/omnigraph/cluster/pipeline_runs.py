"""What a ledger shows of the runs of a pipeline; their records stay where they are."""

from __future__ import annotations

from typing import Any

from omnigraph.cluster.root import CONTROL, ClusterRoot

PARTIAL = "partial"
PARTIAL_RUN = "PartialPipelineRun"
"""The condition of a pipeline whose last run left a target without its rows."""


def summarize_runs(root: ClusterRoot, name: str) -> dict[str, Any]:
    """Return the observation of a pipeline: its last run, and how far its targets have come."""
    from omnigraph.pipeline.declared.records import Ledger

    ledger = Ledger(root.objects, root.location / CONTROL, "pipelines", name)
    last = next(iter(ledger.list_runs(1)), None)
    return {
        "kind": "pipeline",
        "last_run_id": None if last is None else last.run_id,
        "last_status": None if last is None else last.status.value,
        "finished_at": None if last is None else last.finished_at,
        "checkpoints": {
            target: {source: one.upper for source, one in sources.items()}
            for target, sources in ledger.read_checkpoint().items()
        },
    }
