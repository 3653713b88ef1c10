"""`omnigraph recover`: deal with writes that were interrupted."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from omnigraph.cli.addressing import Place, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result
from omnigraph.engine.commit.recovery.forecast import RecoveryForecast, abandon_record, forecast_recovery
from omnigraph.engine.commit.recovery.sweep import RecordStatus, RecoveryReport
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.open import open_without_recovery, recover_all
from omnigraph.errors import BadRequest
from omnigraph.storage.location import Location

app = new_app()

_BLOCKED = (RecordStatus.UNREADABLE, RecordStatus.STUCK, RecordStatus.WAITING)

# The words of records and their audit, in plain English.
WRITES = {
    "Mutation": "mutation",
    "Load": "load",
    "SchemaApply": "schema change",
    "BranchMerge": "merge",
    "EnsureIndices": "building of indexes",
    "Optimize": "run of optimize",
}


@app.command()
def recover(
    place: Place = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the writes and say what would happen.")
    ] = False,
    abandoned: Annotated[
        str | None,
        typer.Option(
            "--abandon", help="Abandon this one, which cannot be finished or undone.", metavar="OPERATION"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Finish or undo interrupted writes; exits with 1 when one of them cannot be, with `--dry-run` too.

    Every write does this automatically for its own branch, and so does opening a graph for writing.
    """
    root = Root.at(Location.parse(resolve_graph(place=place)))
    if abandoned is not None:
        _abandon_operation(root, abandoned, dry_run=dry_run, as_json=as_json)
        return
    # Not through `graph.open`: that would finish or undo them before they are listed.
    opened = open_without_recovery(root, read_only=dry_run)
    if dry_run:
        ahead = forecast_recovery(opened)
        records = [prospect_json(one) for one in ahead]
        lines = [prospect_line(one) for one in ahead]
        blocked = any(one.stuck for one in ahead)
    else:
        done = recover_all(opened)
        records, lines = [_report_json(one) for one in done], [_report_line(one) for one in done]
        blocked = any(one.status in _BLOCKED for one in done)
    report = {"uri": root.uri, "dry_run": dry_run, "ok": not blocked, "operations": records}
    print_result(report, "\n".join(lines) or "no interrupted writes", as_json=as_json)
    if blocked:
        raise typer.Exit(1)


def _abandon_operation(root: Root, operation_id: str, *, dry_run: bool, as_json: bool) -> None:
    if dry_run:
        raise BadRequest("--abandon and --dry-run are mutually exclusive")
    done = abandon_record(open_without_recovery(root), operation_id)
    report = {"uri": root.uri, "abandoned": operation_id, "branch": done.branch}
    text = f"{operation_id} on {done.branch or '?'} abandoned; see `omnigraph repair` for its tables"
    print_result(report, text, as_json=as_json)


def prospect_json(one: RecoveryForecast) -> dict[str, Any]:
    """An interrupted write as scripts read it."""
    return {
        "operation_id": one.operation_id,
        "branch": one.branch,
        "write": _describe_write(one),
        "actor_id": one.actor,
        "writer": one.writer,
        "would": one.would,
        "decision": one.decision,
        "stuck": one.stuck,
        "busy": one.busy,
        "tables": [
            {"table_key": key, "state": state, "class": one.classes.get(key)}
            for key, state in sorted(one.tables.items())
        ],
    }


def prospect_line(one: RecoveryForecast) -> str:
    """An interrupted write in a line."""
    known = {} if one.busy else one.tables
    tables = ", ".join(f"{key} is {state}" for key, state in sorted(known.items()))
    write = f"{_describe_write(one) or 'write'} on {one.branch or 'an unknown branch'}"
    by = f" by {one.writer}" if one.writer else ""
    way_out = f"; fix that, or abandon it with `omnigraph recover --abandon {one.operation_id}`"
    text = f"{one.operation_id}, a {write}{by}: would {one.would}{f' ({tables})' if tables else ''}"
    return f"{text}{way_out if one.stuck else ''}"


def _describe_write(one: RecoveryForecast) -> str | None:
    return None if one.writer_kind is None else WRITES.get(one.writer_kind, one.writer_kind)


def _report_json(one: RecoveryReport) -> dict[str, Any]:
    return {
        "operation_id": one.operation_id,
        "branch": one.branch,
        "result": one.status.value,
        "outcome": one.outcome,
        "reason": one.reason or None,
    }


def _report_line(one: RecoveryReport) -> str:
    outcome = one.outcome or one.reason
    reason = f": {outcome}" if outcome else ""
    return f"{one.operation_id} on {one.branch or '?'} {one.status}{reason}"
