"""One home for the records of a pipeline: a cluster takes over those that runs of a file left behind.

A file keeps them in its first target. The first run by a cluster writes `moved.json` there, which refuses
later runs of the file, and copies runs and checkpoints. Every step can be repeated; only the last one marks
the move as done, so a process that dies in between leaves the rest to the next run.

`graph.json` among its own records says which graph these are about. A cluster that finds the mark and has no
such records was given a graph of another one, or lost them: without them `append` would repeat rows.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from posixpath import normpath

from omnigraph import failpoints
from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import PipelineMovedToCluster, PipelineRecordsMissing
from omnigraph.graph import Graph
from omnigraph.pipeline.declared.declaration import Pipeline
from omnigraph.pipeline.declared.lease import hold_lease
from omnigraph.pipeline.declared.records import FOLDER, Ledger, OpenStore, RunRecord, report_invalid_record
from omnigraph.storage.location import Location
from omnigraph.storage.stores import open_store

_MARK = "moved.json"
_GRAPH = "graph.json"


@dataclass(frozen=True, slots=True)
class FirstTarget:
    """The graph that a run delivers into first."""

    graph_id: str
    """As `identify_graph` returns it."""
    starts_over: bool = False
    """Whether the run loads everything, so that it needs no earlier records."""


def identify_graph(graph: Graph) -> str:
    """Return what a graph keeps for ever and its copies share: the id of its first commit."""
    return graph.commits.list()[-1].id


def open_ledger(pipeline: Pipeline, open_store: OpenStore = open_store) -> Ledger:
    """Open the records of a pipeline: those of its cluster, or those beside the first target of a file."""
    if pipeline.cluster is None:
        return _beside_target(pipeline, open_store)
    return Ledger.at(pipeline.cluster / "__cluster", "pipelines", pipeline.name, open_store)


@contextmanager
def hold_ledger(
    pipeline: Pipeline, run_id: str, first: FirstTarget, open_store: OpenStore = open_store
) -> Iterator[Ledger]:
    """Hold the lease of a pipeline and yield its records, with those of earlier runs of its file."""
    ledger = open_ledger(pipeline, open_store)
    with hold_lease(ledger, run_id):
        if pipeline.cluster is None:
            _refuse_moved(ledger)
        else:
            _take_records(pipeline, _beside_target(pipeline, open_store), ledger, run_id, first)
        yield ledger


def _beside_target(pipeline: Pipeline, open_store: OpenStore) -> Ledger:
    return Ledger.at(Location.parse(pipeline.into[0].uri), FOLDER, pipeline.name, open_store)


def _refuse_moved(ledger: Ledger) -> None:
    mark = _read_mark(ledger)
    if mark is not None:
        raise PipelineMovedToCluster(ledger.pipeline, mark["cluster"], (ledger.place / _MARK).uri)


def _take_records(
    pipeline: Pipeline, before: Ledger, ledger: Ledger, run_id: str, first: FirstTarget
) -> None:
    """Adopt the records of a file once; after that, refuse to run without them."""
    mark = _read_mark(before)
    if mark is None or mark["status"] != "moved":
        _adopt_records(pipeline, before, ledger, run_id, first)
        return
    if not _is_about(ledger, pipeline.into[0].name, first.graph_id):
        if not first.starts_over:
            raise PipelineRecordsMissing(pipeline.name, pipeline.into[0].name, mark["cluster"], pipeline.home)
        _write_graph(ledger, first)
    if mark["cluster"] != pipeline.home:
        _write_mark(before, pipeline.home, "moved")


def _is_about(ledger: Ledger, target: str, graph_id: str) -> bool:
    """Whether the records of a cluster are about a graph; those of old releases do not say it."""
    at = ledger.place / _GRAPH
    text = ledger.objects.read_text_if_exists(at)
    if text is not None:
        with report_invalid_record(at):
            if json.loads(text)["graph"] == graph_id:
                return True
    runs = (one.targets[target] for one in ledger.list_runs() if target in one.targets)
    return any(one.graph in (None, graph_id) for one in runs)


def _adopt_records(
    pipeline: Pipeline, before: Ledger, ledger: Ledger, run_id: str, first: FirstTarget
) -> None:
    # A run of the file that is under way ends first; this refuses the next one.
    with hold_lease(before, run_id):
        _write_mark(before, pipeline.home, "moving")
        failpoints.reach(failpoints.PIPELINE_BEFORE_ADOPTION)
        runs, reached = before.list_runs(), before.read_checkpoint()
        graphs = _match_names({*reached, *(name for one in runs for name in one.targets)}, pipeline)
        for record in runs:
            ledger.copy_run(_rename_targets(record, graphs))
        ledger.add_checkpoint({graphs.get(name, name): sources for name, sources in reached.items()})
        _write_graph(ledger, first)
        failpoints.reach(failpoints.PIPELINE_AFTER_ADOPTION)
        _write_mark(before, pipeline.home, "moved")


def _rename_targets(record: RunRecord, graphs: Mapping[str, str]) -> RunRecord:
    """The record with the names that targets have in the cluster, and the former ones inside."""
    return replace(
        record,
        targets={
            graphs.get(name, name): replace(one, recorded_as=one.recorded_as or name)
            for name, one in record.targets.items()
        },
    )


def _match_names(names: Collection[str], pipeline: Pipeline) -> dict[str, str]:
    """The graphs of a cluster by the names that a file gave them; other graphs may end in `<id>.omni` too.

    A file may name a graph relative to a folder that is not on record. Of several such names, the one counts
    that agrees with the place of the graph.
    """
    found = {}
    for target in pipeline.into:
        alike = [name for name in names if _may_name(_place_in(name), target.uri)]
        exact = [name for name in alike if _matches_folders(_place_in(name), target.uri)]
        for name in exact if len(alike) > 1 else alike:
            found[name] = target.name
    return found


def _place_in(name: str) -> str:
    return name.removeprefix("graph.").rstrip("/")


def _may_name(place: str, uri: str) -> bool:
    """Whether a place, as a file names it, can be that of a graph."""
    if _is_relative(place):
        return "://" not in uri and PurePosixPath(place).name == PurePosixPath(uri).name
    given = Location.parse(place)
    if not given.is_local or "://" in uri:
        return given.uri == uri
    return given.path.resolve() == Path(uri).resolve()


def _matches_folders(place: str, uri: str) -> bool:
    """Whether a place that can be that of a graph also has the folders of it, as far as it names any."""
    parts = tuple(part for part in PurePosixPath(normpath(place)).parts if part != "..")
    return not _is_relative(place) or PurePosixPath(uri).parts[-len(parts) :] == parts


def _is_relative(place: str) -> bool:
    return "://" not in place and not place.startswith("/")


def _read_mark(ledger: Ledger) -> dict[str, str] | None:
    at = ledger.place / _MARK
    text = ledger.objects.read_text_if_exists(at)
    with report_invalid_record(at):
        found = None if text is None else json.loads(text)
        return None if found is None else {name: str(found[name]) for name in ("cluster", "status")}


def _write_graph(ledger: Ledger, first: FirstTarget) -> None:
    text = json.dumps({"schema_version": 1, "graph": first.graph_id}, indent=1)
    ledger.objects.write_text(ledger.place / _GRAPH, text)


def _write_mark(ledger: Ledger, cluster: str, status: str) -> None:
    mark = {"schema_version": 1, "pipeline": ledger.pipeline, "cluster": cluster, "status": status}
    ledger.objects.write_text(ledger.place / _MARK, json.dumps(mark, indent=1))
