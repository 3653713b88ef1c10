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
from omnigraph.engine.doctor import Health, Indexed, examine
from omnigraph.engine.open import unsettled_graph
from omnigraph.engine.root import Root
from omnigraph.storage.location import Location

app = new_app()


@app.command()
def doctor(place: Place = None, as_json: AsJson = False) -> None:
    """Look for interrupted writes, tables and forks that are out of place; exits with 1 when there are any.

    Nothing is changed. A write that is under way at this moment shows up as well.
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
        "derived": asdict(found.derived),
    }


def _keyed(facts: dict[str, Any]) -> dict[str, Any]:
    return {"table_key": facts.pop("key"), **facts}


def _index(one: Indexed) -> dict[str, Any]:
    return {
        "table_key": one.key,
        "name": one.index.name,
        "columns": list(one.index.columns),
        "type": one.index.type,
        "covered_fragments": one.index.covered_fragments,
        "total_fragments": one.index.total_fragments,
    }


def _lines(found: Health) -> Iterator[str]:
    for record in found.records:
        yield f"interrupted or under way: {prospect_line(record)}"
    for unread in found.unread:
        what = f"{unread.key} on {unread.branch}" if unread.key else f"branch {unread.branch}"
        yield f"cannot be read: {what}: {unread.reason}"
    for drift in found.drift:
        yield (
            f"drift: {drift.key} on {drift.branch} is at version {drift.head}, "
            f"the branch shows {drift.pinned}: {drift.cause}"
        )
    for fork in found.forks:
        yield f"stray fork: {fork.key} for branch {fork.branch}: {fork.reason}"
    for writer in found.writers:
        operation = f" for operation {writer.operation_id}" if writer.operation_id else ""
        yield f"last writer: {writer.branch} by {writer.owner}{operation}"
    for one in found.indexes:
        covered = f"{one.index.covered_fragments} of {one.index.total_fragments} fragments"
        yield f"index: {one.index.name} on {one.key} covers {covered}"
    past = sum(one.past for one in found.history)
    if past:
        stored = sum(one.versions for one in found.history)
        yield f"history: {past:,} of {stored:,} versions of tables are past; see `omnigraph cleanup`"
    if found.derived.files:
        yield f"derived: {found.derived.files:,} files of {found.derived.bytes:,} bytes in __derived"
    yield "all in order" if found.ok else f"something is out of order: {_remedies(found)}"


def _remedies(found: Health) -> str:
    """What to look at next, for what was found."""
    ways = (
        (found.records, "see `omnigraph recover --dry-run`"),
        (found.unread, "restore from a backup what cannot be read"),
        (found.drift, "see `omnigraph repair`"),
        (found.forks, "see `omnigraph cleanup`"),
    )
    return "; ".join(way for found_there, way in ways if found_there)
