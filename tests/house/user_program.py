"""A program that users could write, with annotations from the public face alone.

`make check` reads it in strict mode, with all other files; nothing runs it. An ignore that nothing needs is
an error there, so the last lines show that these types are not `Any`.
"""

from __future__ import annotations

from pathlib import Path

import omnigraph as og
from omnigraph.errors import LoadRejected, OmnigraphError
from omnigraph.spark import GraphFrames


def report(progress: og.Progress) -> None:
    print(progress.stage, progress.event)


listener: og.ProgressListener = report
mode: og.LoadMode = "merge"
engine: og.EngineName = "local"


def load(graph: og.Graph, files: list[Path]) -> og.LoadResult:
    try:
        return graph.load(files, mode=mode, engine=engine, progress=listener)
    except LoadRejected as rejected:
        first: og.Violation = rejected.violations[0]
        raise SystemExit(str(first)) from rejected


def review(graph: og.Graph, strategy: og.MergeStrategy) -> list[og.MergeConflict]:
    preview: og.MergePreview = graph.merge("draft", dry_run=True, strategy=strategy)
    counts: dict[str, og.ChangeCounts] = dict(preview.changes)
    return list(preview.conflicts) if counts else []


def names(result: og.Result) -> list[og.Json]:
    rows: list[og.Row] = result.rows()
    return [row["name"] for row in rows]


def columns(node: og.NodeType) -> dict[str, og.ValueType]:
    return {name: declared.type for name, declared in node.properties.items()}


def tables(snapshot: og.Snapshot) -> dict[str, og.TableInfo]:
    return dict(snapshot.tables)


def changed(diff: og.Diff) -> list[tuple[str, og.ChangeOperation, og.EntityImage | None]]:
    return [(change.id, change.op, change.after) for change in diff]


def as_frames(graph: og.Graph) -> GraphFrames:
    frames: GraphFrames = graph.spark()
    return frames


def code(error: OmnigraphError) -> str:
    return error.code


with og.init("people.omni", schema="node Person { name: String @key }") as graph:
    block: og.WriteBlock = graph.write()
    commits: list[og.Commit] = graph.commits.list()
    catalog: og.Catalog = graph.schema
    result: og.AlgorithmResult = graph.algorithms.pagerank()
    cleaned: og.CleanupResult = graph.cleanup(keep=1)

wrong_mode: og.LoadMode = "replace"  # type: ignore[assignment]
wrong_result: og.LoadResult = graph.query("query q() { }")  # type: ignore[assignment]
