"""`omnigraph load`: bring files of records into a graph."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph import graph
from omnigraph.cli.addressing import Place, Quiet, Store, Yes, addressed, echo_write, require_consent
from omnigraph.cli.commit import commit_json
from omnigraph.cli.lazy import new_app
from omnigraph.cli.options import Actor, AsJson
from omnigraph.cli.output import print_note, print_result, violation_lines
from omnigraph.engine.write.duplicates import Mode
from omnigraph.engine.write.files import files_of
from omnigraph.engine.write.load import LoadResult

app = new_app()


@app.command()
def load(
    data: Annotated[
        list[str],
        typer.Option("--data", help="A file, folder or pattern of NDJSON; may be repeated.", metavar="FILE"),
    ],
    mode: Annotated[Mode, typer.Option("--mode", help="What to do with what is stored already.")],
    place: Place = None,
    store: Store = None,
    branch: Annotated[str, typer.Option("--branch", help="The branch.", metavar="BRANCH")] = "main",
    source: Annotated[
        str | None,
        typer.Option("--from", help="Make the branch from this one, if missing.", metavar="BRANCH"),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave wrong records out instead of refusing the load.")
    ] = False,
    rejects: Annotated[
        Path | None,
        typer.Option("--rejects", help="Write what is left out, and why, to this file.", metavar="FILE"),
    ] = None,
    actor: Actor = None,
    yes: Yes = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Load NDJSON files in one commit: everything, or nothing and all that is wrong with them."""
    uri = addressed(place=place, store=store)
    if mode is Mode.OVERWRITE:
        require_consent(f"overwriting types on branch '{branch}'", uri, yes=yes, as_json=as_json)
    files = files_of(data)
    with graph.open(uri) as opened, _progress(files) as progress:
        done = opened.load(
            files,
            mode=mode.value,
            branch=branch,
            from_=source,
            actor=actor,
            skip_bad=skip_bad,
            rejects=rejects,
            progress=progress,
        )
        place = opened.uri
    text = (
        f"loaded {place} on branch {branch} with {mode}: {done.total} entities across "
        f"{len(done.nodes)} node types and {len(done.edges)} edge types"
    )
    print_result(_json(done, place, branch, source, mode, actor), text, as_json=as_json)
    if done.skipped:
        print_note("\n".join(["left out:", *violation_lines(done.skipped, done.skipped_total)]))
    echo_write("load", place, quiet=quiet)


def _json(
    done: LoadResult, uri: str, branch: str, source: str | None, mode: Mode, actor: str | None
) -> dict[str, Any]:
    """What a load did, as scripts read it; the same counts by type and by table."""
    tables = {
        f"{kind}:{name}": rows for kind, counts in _kinds(done).items() for name, rows in counts.items()
    }
    return {
        "uri": uri,
        "branch": branch,
        "base_branch": source,
        "branch_created": done.branch_created,
        "mode": mode.value,
        **{
            f"{kind}s": [{"name": name, "entities_loaded": counts[name]} for name in sorted(counts)]
            for kind, counts in _kinds(done).items()
        },
        "tables": [{"table_key": key, "rows_loaded": tables[key]} for key in sorted(tables)],
        "total_entities": done.total,
        "skipped": [violation.to_json() for violation in done.skipped],
        "skipped_total": done.skipped_total,
        "skipped_counts": dict(sorted(done.skipped_counts.items())),
        "actor_id": actor,
        "commit": None if done.commit is None else commit_json(done.commit),
    }


def _kinds(done: LoadResult) -> dict[str, Mapping[str, int]]:
    return {"node": done.nodes, "edge": done.edges}


@contextmanager
def _progress(files: tuple[Path, ...]) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on a terminal; in a pipe nothing at all."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("loading"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[lines]:,} lines"),
        TimeElapsedColumn(),
    )
    total = sum(path.stat().st_size for path in files if path.is_file())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("load", total=total, lines=0)
        yield lambda size, lines: bar.update(task, completed=size, lines=lines)
