"""`omnigraph doctor`: what is out of order in a graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import typer

from omnigraph.cli.addressing import Place, addressed
from omnigraph.cli.lazy import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result
from omnigraph.cli.recover import prospect_json, prospect_line
from omnigraph.engine.cleanup.strays import MANIFEST, Stray
from omnigraph.engine.doctor import ON_RECORD, Health, Indexed, Vain, examine
from omnigraph.engine.manifest import MAIN
from omnigraph.engine.open import unsettled_graph
from omnigraph.engine.recovery.drift import LATE_RECOVERY, MAINTENANCE, MISSING
from omnigraph.engine.root import Root
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
def doctor(place: Place = None, as_json: AsJson = False) -> None:
    """Look for interrupted writes, tables and forks that are out of place; exits with 1 when there are any.

    Nothing is changed. A write that is under way at this moment shows up as well, and is in order.
    """
    root = Root.at(Location.parse(addressed(place=place)))
    found = examine(unsettled_graph(root, read_only=True))
    print_result(_json(root.uri, found), "\n".join(_lines(found)), as_json=as_json)
    if not found.ok:
        raise typer.Exit(1)


def _json(uri: str, found: Health) -> dict[str, Any]:
    return {
        "uri": uri,
        "ok": found.ok,
        "operations": [prospect_json(one) for one in found.records],
        "unread": [
            {"branch": one.branch, "table_key": one.key, "reason": one.reason} for one in found.unread
        ],
        "drift": [_keyed(asdict(one)) for one in found.drift],
        "forks": [_keyed(asdict(one)) for one in found.forks],
        "last_writers": [asdict(one) for one in found.writers],
        "indexes": [_index(one) for one in found.indexes],
        "history": [_keyed(asdict(one)) for one in found.history],
        "dropped": [{"table_key": one.key, "bytes": one.bytes} for one in found.dropped],
        "in_vain": [asdict(one) for one in found.in_vain],
        "derived": asdict(found.derived),
    }


def _keyed(facts: dict[str, Any]) -> dict[str, Any]:
    return {"table_key": facts.pop("key"), **facts}


def _index(one: Indexed) -> dict[str, Any]:
    return {
        "table_key": one.key,
        "branch": one.branch,
        "name": one.index.name,
        "columns": list(one.index.columns),
        "type": one.index.type,
        "covered_fragments": one.index.covered_fragments,
        "total_fragments": one.index.total_fragments,
    }


def _lines(found: Health) -> Iterator[str]:
    for record in found.records:
        yield f"{'under way' if record.busy else 'interrupted'}: {prospect_line(record)}"
    for unread in found.unread:
        what = f"{unread.key} on {unread.branch}" if unread.key else f"branch {unread.branch}"
        yield f"cannot be read: {what}: {unread.reason}"
    for drift in found.drift:
        yield (
            f"drift: {drift.key} on {drift.branch} is at version {drift.head}, "
            f"the branch shows {drift.pinned}: {drift.cause}"
        )
    yield from map(_fork_line, found.forks)
    for writer in found.writers:
        operation = f" for operation {writer.operation_id}" if writer.operation_id else ""
        yield f"last writer: {writer.branch} by {writer.owner}{operation}"
    yield from map(_index_line, filter(_is_shown, found.indexes))
    past = sum(one.past for one in found.history)
    if past:
        stored = sum(one.versions for one in found.history)
        yield f"history: {past:,} of {stored:,} versions of tables are past; see `omnigraph cleanup`"
    for table in found.dropped:
        kept = f"{table.key} with {table.bytes:,} bytes is kept for the past"
        yield f"dropped: {kept}; see `omnigraph cleanup`"
    yield from map(_vain_line, found.in_vain)
    if found.derived.files:
        yield f"derived: {found.derived.files:,} files of {found.derived.bytes:,} bytes in __derived"
    yield "all in order" if found.ok else f"something is out of order: {_remedies(found)}"


def _fork_line(fork: Stray) -> str:
    if fork.key == MANIFEST:
        return f"half a branch: {fork.branch}: {fork.reason}"
    return f"stray fork: {fork.key} for branch {fork.branch}: {fork.reason}"


def _is_shown(one: Indexed) -> bool:
    """Of branches only what lags: there may be very many of them."""
    return one.branch == MAIN or not one.index.is_complete


def _index_line(one: Indexed) -> str:
    where = one.key if one.branch == MAIN else f"{one.key} of branch {one.branch}"
    covered = f"{one.index.covered_fragments} of {one.index.total_fragments} fragments"
    return f"index: {one.index.name} on {where} covers {covered}"


def _vain_line(one: Vain) -> str:
    if one.removable:
        return f"made in vain: {one.path}: no branch ever showed this table; see `omnigraph cleanup`"
    return f"made in vain, or being made: {one.path}: `omnigraph cleanup` removes it when it is a week old"


def _remedies(found: Health) -> str:
    """What to look at next, for what was found; each piece of advice once."""
    ways = [
        "see `omnigraph recover --dry-run`" if found.interrupted else "",
        _RESTORE if found.unread else "",
        *(_ADVICE.get(one.cause, _OF_ANY_OTHER_CAUSE) for one in found.drift),
        "see `omnigraph cleanup`" if found.forks else "",
    ]
    return "; ".join(dict.fromkeys(filter(None, ways)))
