"""One home for the records of a pipeline: a cluster takes over those that runs of a file left behind.

A file keeps them in its first target. The first run by a cluster writes `moved.json` there, which refuses
later runs of the file, and copies runs and checkpoints. Every step can be repeated; only the last one marks
the move as done, so a process that dies in between leaves the rest to the next run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import PurePosixPath

from omnigraph import failpoints
from omnigraph.errors import PipelineMovedToCluster
from omnigraph.pipeline.declared.declaration import Pipeline
from omnigraph.pipeline.declared.lease import hold_lease
from omnigraph.pipeline.declared.records import FOLDER, Checkpoint, Ledger, OpenStore, RunRecord, reading
from omnigraph.storage.location import Location
from omnigraph.storage.stores import open_store

_MARK = "moved.json"


def open_ledger(pipeline: Pipeline, open_store: OpenStore = open_store) -> Ledger:
    """Open the records of a pipeline: those of its cluster, or those beside the first target of a file."""
    if pipeline.cluster is None:
        return _beside_target(pipeline, open_store)
    return Ledger.at(pipeline.cluster / "__cluster", "pipelines", pipeline.name, open_store)


@contextmanager
def hold_ledger(pipeline: Pipeline, run_id: str, open_store: OpenStore = open_store) -> Iterator[Ledger]:
    """Hold the lease of a pipeline and yield its records, with those of earlier runs of its file."""
    ledger = open_ledger(pipeline, open_store)
    with hold_lease(ledger, run_id):
        if pipeline.cluster is None:
            _refuse_moved(ledger)
        else:
            _adopt(pipeline, _beside_target(pipeline, open_store), ledger, run_id)
        yield ledger


def _beside_target(pipeline: Pipeline, open_store: OpenStore) -> Ledger:
    return Ledger.at(Location.parse(pipeline.into[0].uri), FOLDER, pipeline.name, open_store)


def _refuse_moved(ledger: Ledger) -> None:
    mark = _read_mark(ledger)
    if mark is not None:
        raise PipelineMovedToCluster(ledger.pipeline, mark["cluster"], (ledger.place / _MARK).uri)


def _adopt(pipeline: Pipeline, before: Ledger, ledger: Ledger, run_id: str) -> None:
    mark = _read_mark(before)
    if mark is not None and mark["status"] == "moved":
        return
    # A run of the file that is under way ends first; this refuses the next one.
    with hold_lease(before, run_id):
        _write_mark(before, pipeline.home, "moving")
        failpoints.reach(failpoints.PIPELINE_BEFORE_ADOPTION)
        graphs = {PurePosixPath(one.uri).name: one.name for one in pipeline.into}
        for record in before.runs():
            ledger.copy_run(_rename(record, graphs))
        ledger.add_checkpoint(_rename_checkpoint(before.checkpoint(), graphs))
        failpoints.reach(failpoints.PIPELINE_AFTER_ADOPTION)
        _write_mark(before, pipeline.home, "moved")


def _rename(record: RunRecord, graphs: Mapping[str, str]) -> RunRecord:
    """The record with the names that targets have in the cluster, and the former ones inside."""
    return replace(
        record,
        targets={
            _new_name(name, graphs): replace(one, recorded_as=one.recorded_as or name)
            for name, one in record.targets.items()
        },
    )


def _rename_checkpoint(found: Checkpoint, graphs: Mapping[str, str]) -> Checkpoint:
    return {_new_name(name, graphs): sources for name, sources in found.items()}


def _new_name(name: str, graphs: Mapping[str, str]) -> str:
    """The graph of a cluster that a file names by its path, which ends in `<id>.omni`."""
    return graphs.get(PurePosixPath(name.rstrip("/")).name, name)


def _read_mark(ledger: Ledger) -> dict[str, str] | None:
    at = ledger.place / _MARK
    text = ledger.objects.read_text_if_exists(at)
    with reading(at):
        found = None if text is None else json.loads(text)
        return None if found is None else {name: str(found[name]) for name in ("cluster", "status")}


def _write_mark(ledger: Ledger, cluster: str, status: str) -> None:
    mark = {"schema_version": 1, "pipeline": ledger.pipeline, "cluster": cluster, "status": status}
    ledger.objects.write_text(ledger.place / _MARK, json.dumps(mark, indent=1))
