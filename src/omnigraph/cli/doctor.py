"""`omnigraph doctor`: what is out of order in a graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from typing import Annotated, Any

import typer

from omnigraph.cli.addressing import Place, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result
from omnigraph.cli.recover import prospect_json, prospect_line
from omnigraph.display.text import format_value
from omnigraph.engine.commit.recovery.drift import LATE_RECOVERY, MAINTENANCE, MISSING
from omnigraph.engine.constraints.edge_rules import BelowMinimum
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.root import Root
from omnigraph.engine.lifecycle.open import open_without_recovery
from omnigraph.engine.maintenance.cleanup.staged_files import StagedLoad
from omnigraph.engine.maintenance.cleanup.stray_forks import MANIFEST, StrayFork
from omnigraph.engine.maintenance.deep_check import DeepReport, check_deeply, check_unopened, record_checksums
from omnigraph.engine.maintenance.doctor import examine
from omnigraph.engine.maintenance.health import ON_RECORD, Health, IndexReport, OrphanTable, PendingIndex
from omnigraph.errors import BadRequest, GraphNotFound, OmnigraphError
from omnigraph.storage.location import Location

app = new_app()

_RESTORE = "restore from a backup what cannot be read"
_ADVICE = {
    ON_RECORD: "",  # that about the record
    LATE_RECOVERY: "the next write to the table settles the drift",
    MAINTENANCE: "the next write to the table settles the drift",
    MISSING: _RESTORE,
}
_OF_ANY_OTHER_CAUSE = "see `omnigraph repair`"


@app.command()
def doctor(
    place: Place = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also read every file and row, and compare files with their checksums."),
    ] = False,
    record: Annotated[
        bool,
        typer.Option("--record", help="With --deep, note the checksums of files that have none yet."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Look for interrupted writes, tables and forks that are out of place; exits with 1 when there are any.

    Nothing is changed. A write that is under way at this moment shows up as well, and is in order.
    """
    if record and not deep:
        raise BadRequest("--record needs --deep", remedy="run `omnigraph doctor --deep --record`")
    root = Root.at(Location.parse(resolve_graph(place=place)))
    try:
        graph = open_without_recovery(root, read_only=True)
        found = examine(graph)
    except OmnigraphError as failure:
        if not deep or isinstance(failure, GraphNotFound):
            raise
        checked = check_unopened(root, failure)
        report: dict[str, Any] = {"uri": root.uri, "ok": False, "deep": _deep_json(checked, 0)}
        print_result(report, "\n".join(_deep_lines(checked, 0)), as_json=as_json)
        raise typer.Exit(1) from None
    report, (*lines, verdict) = _to_json(root.uri, found), _render_lines(found)
    if deep:
        checked = check_deeply(graph)
        noted = record_checksums(graph, checked.unrecorded) if record and checked.ok else 0
        report |= {"ok": found.ok and checked.ok, "deep": _deep_json(checked, noted)}
        lines += _deep_lines(checked, noted)
        verdict = verdict if checked.ok else f"something is out of order: {_RESTORE}"
    print_result(report, "\n".join([*lines, verdict]), as_json=as_json)
    if not report["ok"]:
        raise typer.Exit(1)


def _deep_json(found: DeepReport, noted: int) -> dict[str, Any]:
    return {
        "ok": found.ok,
        "damaged": [asdict(one) for one in found.damaged],
        "files": found.files,
        "bytes": found.bytes,
        "unrecorded_files": len(found.unrecorded),
        "recorded_now": noted,
        "tables": found.tables,
        "rows": found.rows,
    }


def _deep_lines(found: DeepReport, noted: int) -> Iterator[str]:
    for one in found.damaged:
        yield f"damaged: {one.path}: {one.reason}"
    yield (
        f"deep: {found.rows:,} rows of {found.tables:,} tables were read; "
        f"{found.files:,} files of {found.bytes:,} bytes were compared with their checksums"
    )
    if found.unrecorded:
        recorded = f"; {noted:,} are recorded now" if noted else "; `--deep --record` notes them as they are"
        yield f"deep: {len(found.unrecorded):,} files have no checksum{recorded}"
    if found.damaged:
        yield f"{len(found.damaged):,} damages: {_RESTORE_FILES}"


_RESTORE_FILES = (
    "restore these files from a backup; rows of other files, branches and versions are not affected"
)


def _to_json(uri: str, found: Health) -> dict[str, Any]:
    return {
        "uri": uri,
        "ok": found.ok,
        "operations": [prospect_json(one) for one in found.records],
        "unread": [
            {"branch": one.branch, "table_key": one.key, "reason": one.reason} for one in found.unread
        ],
        "drift": [_key_facts(asdict(one)) for one in found.drift],
        "forks": [_key_facts(asdict(one)) for one in found.forks],
        "last_writers": [asdict(one) for one in found.writers],
        "indexes": [_index_to_json(one) for one in found.indexes],
        "pending_indexes": [_key_facts(asdict(one)) for one in found.pending],
        "history": [_key_facts(asdict(one)) for one in found.history],
        "dropped": [{"table_key": one.key, "bytes": one.bytes} for one in found.dropped],
        "orphan_tables": [asdict(one) for one in found.orphan_tables],
        "in_vain": [asdict(one) for one in found.orphan_tables],  # its earlier name
        "derived": asdict(found.derived),
        "removals": [
            {"operation_id": one.operation_id, "table_keys": list(one.keys)} for one in found.removals
        ],
        "below_minimum": [asdict(one) for one in found.below_minimum],
        "moved": [asdict(one) for one in found.moved],
        "staged": [asdict(one) | {"removable": one.removable} for one in found.staged],
        "unreadable_files": [asdict(one) for one in found.unreadable_files],
    }


def _key_facts(facts: dict[str, Any]) -> dict[str, Any]:
    return {"table_key": facts.pop("key"), **facts}


def _index_to_json(one: IndexReport) -> dict[str, Any]:
    return {
        "table_key": one.key,
        "branch": one.branch,
        "name": one.index.name,
        "columns": list(one.index.columns),
        "type": one.index.type,
        "covered_fragments": one.index.covered_fragments,
        "total_fragments": one.index.total_fragments,
    }


def _render_lines(found: Health) -> Iterator[str]:
    for record in found.records:
        yield f"{'under way' if record.busy else 'interrupted'}: {prospect_line(record)}"
    for unread in found.unread:
        what = f"{unread.key} on {unread.branch}" if unread.key else f"branch {unread.branch}"
        yield f"cannot be read: {what}: {unread.reason}"
    for file in found.unreadable_files:
        yield f"cannot be read: {file.path}: {file.reason}"
    for drift in found.drift:
        yield (
            f"drift: {drift.key} on {drift.branch} is at version {drift.head}, "
            f"the branch shows {drift.pinned}: {drift.cause}"
        )
    yield from map(_fork_line, found.forks)
    for owed in found.removals:
        what = ", ".join(owed.keys) or "an unreadable intent"
        yield f"removal owed: {what}: schema change {owed.operation_id} dropped data that is still stored"
    for writer in found.writers:
        operation = f" for operation {writer.operation_id}" if writer.operation_id else ""
        yield f"last writer: {writer.branch} by {writer.owner}{operation}"
    yield from map(_index_line, filter(_needs_attention, found.indexes))
    yield from chain.from_iterable(map(_pending_lines, found.pending))
    past = sum(one.past for one in found.history)
    if past:
        stored = sum(one.versions for one in found.history)
        yield f"history: {past:,} of {stored:,} versions of tables are past; see `omnigraph cleanup`"
    for table in found.dropped:
        kept = f"{table.key} with {table.bytes:,} bytes is kept for the past"
        yield f"dropped: {kept}; see `omnigraph cleanup`"
    yield from map(_orphan_line, found.orphan_tables)
    yield from map(_staged_line, found.staged)
    yield from map(_minimum_line, found.below_minimum)
    if found.moved:
        recorded = f"{len(found.moved):,} forks record another place, such as {found.moved[0].recorded}"
        yield f"moved: {recorded}; `omnigraph optimize` rewrites them for this place"
    if found.derived.files:
        yield f"derived: {found.derived.files:,} files of {found.derived.bytes:,} bytes in __derived"
    yield _describe_verdict(found)


def _describe_verdict(found: Health) -> str:
    if not found.ok:
        return f"something is out of order: {_suggest_remedies(found)}"
    if found.staged:
        return f"in order, unless the loads of staged files ({len(found.staged)}) were interrupted"
    return "all in order"


def _fork_line(fork: StrayFork) -> str:
    if fork.key == MANIFEST:
        return f"half a branch: {fork.branch}: {fork.reason}"
    return f"stray fork: {fork.key} for branch {fork.branch}: {fork.reason}"


def _needs_attention(one: IndexReport) -> bool:
    """Of branches only what lags: there may be very many of them."""
    return one.branch == MAIN or not one.index.is_complete


def _index_line(one: IndexReport) -> str:
    where = one.key if one.branch == MAIN else f"{one.key} of branch {one.branch}"
    covered = f"{one.index.covered_fragments} of {one.index.total_fragments} fragments"
    return f"index: {one.index.name} on {where} covers {covered}"


def _pending_lines(one: PendingIndex) -> Iterator[str]:
    where = one.key if one.branch == MAIN else f"{one.key} of branch {one.branch}"
    yield from (f"no index on {left.column} of {where}: {left.reason}" for left in one.refused)
    refused = {left.column for left in one.refused}
    columns = ", ".join(column for column in one.columns if column not in refused)
    if columns:
        yield f"pending indexes on {where}: {columns}; later writes or `omnigraph optimize` build them"


def _orphan_line(one: OrphanTable) -> str:
    if one.removable:
        return f"orphan table: {one.path}: no branch ever published this table; see `omnigraph cleanup`"
    return f"orphan table, or one in creation: {one.path}: `omnigraph cleanup` removes it after a week"


def _staged_line(one: StagedLoad) -> str:
    held = f"{one.files:,} files of {one.bytes:,} bytes"
    if one.removable:
        return f"staged: {held} of interrupted load {one.load}; see `omnigraph cleanup`"
    advice = "if none is running, `omnigraph cleanup --staged-older-than 0s`"
    return f"staged: {held} of load {one.load}, running or interrupted; {advice}"


def _minimum_line(one: BelowMinimum) -> str:
    where = "" if one.branch == MAIN else f" of branch {one.branch}"
    named = ", ".join(f"{format_value(few.id)} ({few.edges})" for few in one.examples)
    more = ", ..." if one.count > len(one.examples) else ""
    nodes = f"{one.count:,} of {one.nodes:,} {one.node}{where}"
    return f"below minimum: {nodes} have fewer than {one.minimum} {one.edge}: {named}{more}"


def _suggest_remedies(found: Health) -> str:
    """What to look at next, for what was found; each piece of advice once."""
    ways = [
        "see `omnigraph recover --dry-run`" if found.interrupted else "",
        _RESTORE if found.unread else "",
        *(one.remedy for one in found.unreadable_files),
        *(_ADVICE.get(one.cause, _OF_ANY_OTHER_CAUSE) for one in found.drift),
        "see `omnigraph cleanup`" if found.forks or found.abandoned else "",
        "run `omnigraph recover` to remove dropped data" if found.removals else "",
    ]
    return "; ".join(dict.fromkeys(filter(None, ways)))
