"""`omnigraph optimize`: keep a graph fast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import typer

from omnigraph import graph
from omnigraph.cli.addressing import Place, echo_write, resolve_actor, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.commit import commit_json
from omnigraph.cli.options import AsJson, Message, OnBranch
from omnigraph.cli.output import print_result
from omnigraph.engine.maintenance.optimize import OptimizedTable, OptimizeResult, TableSize

app = new_app()


@app.command()
def optimize(
    place: Place = None,
    branch: OnBranch = "main",
    engine: Annotated[
        Literal["local", "spark"],
        typer.Option("--engine", help="Where new files are written and indexes are built."),
    ] = "local",
    message: Message = None,
    as_json: AsJson = False,
) -> None:
    """Put small pieces of tables together and complete the indexes that the schema asks for, in one commit.

    No row changes. Writes do the most urgent part of this automatically.
    """
    with graph.open(resolve_graph(place=place)) as opened:
        done = opened.optimize(branch, actor=resolve_actor(), message=message, engine=engine)
        report = _to_json(opened.uri, done)
    print_result(report, "\n".join(_render_lines(done)), as_json=as_json)
    echo_write("optimize", report["uri"])


def _to_json(uri: str, done: OptimizeResult) -> dict[str, Any]:
    return {
        "uri": uri,
        "branch": done.branch,
        "commit": commit_json(done.commit) if done.commit else None,
        "datasets": [_dataset_to_json(one) for one in done.tables],
        "tables": [_table_to_json(one) for one in done.tables],
    }


def _dataset_to_json(one: OptimizedTable) -> dict[str, Any]:
    return {
        "type_key": one.key,
        "fragments_removed": one.fragments_removed,
        "fragments_added": one.fragments_added,
        "committed": one.moved,
        "published_dataset_version": one.version,
        "lance_head_version": one.head,
        "skipped": one.skipped,
        "pending_indexes": [
            *({"property": name, "reason": "no value yet"} for name in one.pending),
            *({"property": left.column, "reason": left.reason} for left in one.refused),
        ],
    }


def _table_to_json(one: OptimizedTable) -> dict[str, Any]:
    return {
        "table_key": one.key,
        "changed": one.moved,
        "fragments_before": one.before.fragments,
        "fragments_after": one.after.fragments,
        "bytes_before": one.before.bytes,
        "bytes_after": one.after.bytes,
        "indexes_built": list(one.indexes),
        "indexes_pending": [*one.pending, *(left.column for left in one.refused)],
    }


def _render_lines(done: OptimizeResult) -> Iterator[str]:
    for one in done.tables:
        if one.moved:
            built = f", indexes on {', '.join(one.indexes)}" if one.indexes else ""
            yield f"{one.key}: {_format_size(one.before)} -> {_format_size(one.after)}{built}"
        if one.pending:
            yield f"{one.key}: no value yet to build an index from in {', '.join(one.pending)}"
        for left in one.refused:
            yield f"{one.key}: no index on {left.column}: {left.reason}"
        if one.skipped:
            yield (
                f"{one.key}: left as it is: it was changed outside of a commit (it is at version {one.head}, "
                f"the branch shows {one.version}); see `omnigraph repair`"
            )
    if done.commit is None:
        other = " else" if any(one.skipped for one in done.tables) else ""
        yield f"nothing{other} to do on branch '{done.branch}'"
    else:
        yield f"commit {done.commit.id} on branch '{done.branch}'"


def _format_size(size: TableSize) -> str:
    return f"{size.fragments} fragment{'' if size.fragments == 1 else 's'} of {size.bytes:,} bytes"
