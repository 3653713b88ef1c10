"""`omnigraph cleanup`: remove what is past."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from omnigraph import graph
from omnigraph.cli.addressing import Place, echo_write, require_consent, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_note, print_result
from omnigraph.engine.maintenance.cleanup.old_versions import CleanedTable
from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
from omnigraph.engine.maintenance.cleanup.run_cleanup import CleanupResult

app = new_app()


@app.command()
def cleanup(
    place: Place = None,
    keep: Annotated[
        int | None, typer.Option("--keep", help="Keep the newest N commits of each branch.", metavar="N")
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", help="Keep what was current in this time: 90s, 30m, 12h, 7d, 2w.", metavar="DUR"
        ),
    ] = None,
    staged_older_than: Annotated[
        str | None,
        typer.Option(
            "--staged-older-than",
            help="Remove staged files of loads that began longer ago (default 7d). Only if none runs.",
            metavar="DUR",
        ),
    ] = None,
    confirm: Annotated[bool, typer.Option("--confirm", help="Really do it.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove versions of tables that no kept commit shows, and what failed writes left behind.

    Without --confirm nothing is changed: it shows what would go. Commits stay in the history; the graph as an
    old one left it cannot be read any more. Exits with 1 when something that was to go is still there.
    """
    uri = resolve_graph(place=place)
    if confirm:
        require_consent("removing old versions", uri, as_json=as_json)
    with graph.open(uri, read_only=not confirm) as opened:
        done = opened.cleanup(keep, older_than, staged_older_than=staged_older_than, dry_run=not confirm)
        where = opened.uri
    if not confirm:
        print_note(_describe_policy(done.policy))
    print_result(_to_json(where, done), "\n".join(render_lines(done)), as_json=as_json)
    if confirm:
        echo_write("cleanup", where)
    if not done.ok and confirm:
        raise typer.Exit(1)


def _describe_policy(policy: CleanupPolicy) -> str:
    return (
        f"keeps {policy}, and whatever was current {policy.minimum_age:g} seconds ago or later; "
        "nothing is removed without --confirm"
    )


# --- what happened -------------------------------------------------------------------------------


def _to_json(uri: str, done: CleanupResult) -> dict[str, Any]:
    return {
        "uri": uri,
        "dry_run": done.dry_run,
        "ok": done.ok,
        "policy": {
            "keep": done.policy.keep,
            "older_than_seconds": done.policy.older_than,
            "minimum_age_seconds": done.policy.minimum_age,
            "staged_older_than_seconds": done.policy.staged_older_than,
        },
        "versions_removed": done.versions_removed,
        "bytes_removed": done.bytes_removed,
        "tables": [_table_to_json(one) for one in done.tables],
        "manifests": [_without_key(_table_to_json(one)) for one in done.manifests],
        "forks": [_key_facts(asdict(one)) for one in done.forks],
        "forks_left": [_key_facts(asdict(one)) for one in done.forks_left],
        "dropped": [_key_facts(asdict(one)) for one in done.dropped],
        "derived": {"files": done.derived_files, "bytes": done.derived_bytes},
        "loads": list(done.loads),
        "staged_bytes": done.staged_bytes,
        "orphan_tables": list(done.orphan_tables),
        "in_vain": list(done.orphan_tables),  # its earlier name
        "bases": list(done.bases),
    }


def _table_to_json(one: CleanedTable) -> dict[str, Any]:
    return _key_facts(asdict(one)) | {"versions_after": one.versions_after}


def _key_facts(facts: dict[str, Any]) -> dict[str, Any]:
    return {"table_key": facts.pop("key"), **facts}


def _without_key(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name != "table_key"}


def render_lines(done: CleanupResult) -> Iterator[str]:
    """What went, or would go, as people read it."""
    for one in (*done.tables, *done.manifests):
        if one.versions_removed or one.files_removed:
            yield (
                f"{one.key} on {one.branch}: {one.versions_before} versions -> {one.versions_after}, "
                f"{one.bytes_removed:,} bytes"
            )
        if one.failure:
            yield f"{one.key} on {one.branch}: left as it is: {one.failure}"
    for stray in done.forks:
        yield f"{stray.key} for branch {stray.branch}: files of a fork: {stray.reason}"
    for stray in done.forks_left:
        yield f"{stray.key} for branch {stray.branch}: left as it is: {stray.reason}"
    for table in done.dropped:
        yield f"{table.key}: of a type that was dropped, {table.failure or f'{table.bytes:,} bytes'}"
    if done.loads:
        yield f"__staging: files of {len(done.loads)} interrupted loads, {done.staged_bytes:,} bytes"
    for path in done.orphan_tables:
        yield f"{path}: an orphan table of a schema change"
    if done.bases:
        yield f"__bases: merge bases of deleted branches that no merge needs, {len(done.bases)} commits"
    if done.derived_files:
        yield f"__derived: {done.derived_files} files of {done.derived_bytes:,} bytes"
    yield _summarize(done)


def _summarize(done: CleanupResult) -> str:
    others = done.forks or done.dropped or done.loads or done.orphan_tables or done.bases
    if not (done.versions_removed or done.bytes_removed or others):
        return "nothing to remove"
    what = f"{done.versions_removed:,} versions, {done.bytes_removed:,} bytes"
    return f"would remove {what}" if done.dry_run else f"removed {what}"
