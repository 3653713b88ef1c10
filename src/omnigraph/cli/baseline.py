"""`omnigraph changes baseline`: all entities of a branch, and the cursor for what is changed from then on."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from omnigraph import graph
from omnigraph.cli.addressing import Uri, open_graph, resolve_graph
from omnigraph.cli.change_options import Kinds, Ops, Types
from omnigraph.cli.options import AsJson, OnBranch
from omnigraph.cli.output import print_result
from omnigraph.client.exports import Baseline
from omnigraph.engine.changes.change import ChangeFilter, parse_filter, require_types
from omnigraph.engine.changes.feed import AFTER, NOW
from omnigraph.engine.export.exporter import ExportRequest, ExportResult, export
from omnigraph.engine.files.atomic_output import new_file
from omnigraph.engine.files.output_paths import require_output
from omnigraph.errors import BadRequest
from omnigraph.graph import Snapshot
from omnigraph.snapshot import pinned_by


def baseline(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.", metavar="FILE")],
    branch: OnBranch = "main",
    types: Types = None,
    kinds: Kinds = None,
    ops: Ops = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Write all entities of a branch to a file of NDJSON, then print the cursor to poll with from there on.

    The file is complete and on disk before the cursor is printed. Two such calls for one file wait for each
    other.
    """
    wanted = parse_filter(kinds, types, ops)
    require_output(out)
    with open_graph(resolve_graph(uri=uri), read_only=True) as opened, _alone(out):
        if isinstance(opened, graph.Graph):
            done = _capture(opened, out, branch, wanted)
        else:
            with new_file(out, overwrite=True) as temporary, temporary.open("wb") as stream:
                done = opened.baseline(stream, branch, types=types, kinds=kinds, ops=ops)
    report = {
        "out": str(out),
        "rows": done.rows,
        "bytes": done.bytes,
        "baseline": {"snapshot_commit_id": done.snapshot_id, "resume_cursor": done.cursor},
    }
    print_result(report, f"wrote {done.rows} entities to {out}\ncursor: {done.cursor}", as_json=as_json)


def _capture(opened: graph.Graph, out: Path, branch: str, wanted: ChangeFilter) -> Baseline:
    """Write the entities of a branch as it is now, and find the cursor for what comes after them."""
    moment = opened.snapshot(branch)
    since = NOW if moment.commit is None else f"{AFTER}{moment.commit.id}"
    words = wanted.to_json()
    feed = opened.changes(branch, since=since, types=words["types"], kinds=words["kinds"], ops=words["ops"])
    with new_file(out, overwrite=True) as temporary, temporary.open("wb") as stream:
        done = _export(moment, _types(moment, wanted), stream)
    return Baseline(moment.id, feed.cursor, done.rows, done.bytes)


def _export(moment: Snapshot, types: list[str] | None, stream: BinaryIO) -> ExportResult:
    """Write the entities; a line may be longer than a load takes, as the feed that follows has such, too."""
    chosen = None if types is None else tuple(types)
    return export(*pinned_by(moment), ExportRequest(stream, types=chosen, loadable=False))


def _types(moment: Snapshot, wanted: ChangeFilter) -> list[str] | None:
    """The types that the filter lets through; None for all."""
    require_types(wanted, moment.tables)
    if not wanted.kinds and not wanted.types:
        return None
    return [key for key in moment.tables if wanted.wants_table(key)]


@contextmanager
def _alone(out: Path) -> Iterator[None]:
    try:
        gate = out.with_name(f"{out.name}.lock").open("a")
    except OSError as failure:
        raise BadRequest(f"cannot write '{out}': {failure.strerror}", remedy="check the path") from failure
    with gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        yield
