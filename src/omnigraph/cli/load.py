"""`omnigraph load`: bring files of records into a graph."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from omnigraph.cli.addressing import (
    Place,
    echo_write,
    is_served,
    open_graph,
    require_consent,
    resolve_actor,
    resolve_graph,
)
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.commit import commit_json
from omnigraph.cli.options import AsJson, EngineBySize, Message, OnBranch
from omnigraph.cli.output import print_note, print_pending, print_result
from omnigraph.display.text import format_total
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.load.request import EngineReport, LoadResult
from omnigraph.engine.load.sources.item import Format
from omnigraph.engine.load.sources.pipes import Stream
from omnigraph.engine.load.sources.spark_source import SparkSource
from omnigraph.engine.upkeep.declared_indexes import pending_json
from omnigraph.errors import BadRequest, SourceSecretInline
from omnigraph.errors.violation_summary import group_violations
from omnigraph.lang.values import shorten_legibly

app = new_app()

_STANDARD_INPUT = "-"
_SPARK = "spark:"


@app.command()
def load(
    mode: Annotated[Mode, typer.Option("--mode", help="What to do with what is stored already.")],
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            help="A file, folder, pattern, s3:// URI or pipe; - for standard input; may be repeated.",
            metavar="FILE",
        ),
    ] = None,
    place: Place = None,
    branch: OnBranch = "main",
    source: Annotated[
        str | None,
        typer.Option("--from", help="Make the branch from this one, if missing.", metavar="BRANCH"),
    ] = None,
    mapping: Annotated[
        Path | None,
        typer.Option("--mapping", help="A file that says how columns become properties.", metavar="FILE"),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="The format of standard input and pipes, else NDJSON, or by their names; or spark:NAME, "
            "for any that Spark reads, with --type.",
            metavar="FORMAT",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            help="An option of Spark's reader, for --format spark:NAME; may be repeated.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    type_name: Annotated[
        str | None,
        typer.Option(
            "--type", help="The type of all rows; lines of JSON then hold properties alone.", metavar="TYPE"
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, and commit nothing.")] = False,
    engine: EngineBySize = "auto",
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave wrong records out instead of refusing the load.")
    ] = False,
    rejects: Annotated[
        Path | None,
        typer.Option("--rejects", help="Write all that is wrong, and why, to this file.", metavar="FILE"),
    ] = None,
    retry: Annotated[
        int,
        typer.Option(
            "--retry",
            min=0,
            help="Prepare a patch again, at most N times, when a table it changes moved.",
            metavar="N",
        ),
    ] = 0,
    message: Message = None,
    as_json: AsJson = False,
) -> None:
    """Load NDJSON, Parquet, CSV, Arrow, Lance, or what Spark reads, in one commit: everything, or nothing."""
    uri = resolve_graph(place=place)
    actor = resolve_actor(uri)
    if mode is Mode.OVERWRITE and not dry_run:
        require_consent(f"overwriting types on branch '{branch}'", uri, as_json=as_json)
    with open_graph(uri) as opened:
        done = opened.load(
            _open_inputs(data or [], form, _parse_options(option or [])),
            mode=mode.value,
            type=type_name,
            mapping=mapping,
            engine=engine,
            branch=branch,
            from_=source,
            actor=actor,
            skip_bad=skip_bad,
            rejects=rejects,
            dry_run=dry_run,
            retry=retry,
            message=message,
        )
        place = opened.uri
    text = (
        f"{'would load' if dry_run else 'loaded'} {place} on branch {branch} with {mode}: "
        f"{format_total(done.total, 'entity', 'entities')} across "
        f"{format_total(len(done.nodes), 'node type')} and {format_total(len(done.edges), 'edge type')}"
    )
    # The actor of a served write is known by its commit.
    author = done.commit.actor if done.commit is not None and is_served(uri) else actor
    print_result(_to_json(done, place, branch, source, mode, author), text, as_json=as_json)
    for file, guessed in done.dialects.items():
        print_note(f"{file}: guessed {guessed}")
    if done.skipped:
        print_note("\n".join(["left out:", *group_violations(done.skipped, done.skipped_total)]))
    print_pending(done.pending_indexes)
    if not dry_run:
        echo_write("load", place)


def _open_inputs(
    data: Sequence[str], form: str | None, options: Mapping[str, str]
) -> list[Stream] | SparkSource:
    if form is not None and form.startswith(_SPARK):
        return SparkSource(form.removeprefix(_SPARK), tuple(data), options)
    if options:
        raise BadRequest("--option is for --format spark:NAME", remedy="leave --option out")
    if not data:
        raise typer.BadParameter(f"name a file, or a format {_SPARK}NAME.", param_hint="'--data'")
    known = None if form is None else _known_format(form)
    return [Stream(name, known, _standard_input() if name == _STANDARD_INPUT else None) for name in data]


def _known_format(name: str) -> Format:
    try:
        return Format(name)
    except ValueError:
        known = ", ".join(Format)
        raise typer.BadParameter(
            f"'{shorten_legibly(name)}' is not one of {known}, {_SPARK}NAME.", param_hint="'--format'"
        ) from None


def _parse_options(given: Sequence[str]) -> dict[str, str]:
    """Parse options of Spark's reader; a secret must not be in the history of a shell."""
    if not given:
        return {}
    from omnigraph.pipeline.declared.secrets import SECRET_MEMBERS, is_reference

    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"'{shorten_legibly(text)}' is not NAME=VALUE.", param_hint="'--option'")
        if name in found:
            raise typer.BadParameter(f"'{shorten_legibly(name)}' is given twice.", param_hint="'--option'")
        if name.lower() in SECRET_MEMBERS and not is_reference(value):
            raise SourceSecretInline(
                f"the option '{name}' holds a secret",
                remedy=f"write --option '{name}=${{NAME}}' and set NAME in the environment",
            )
        found[name] = value
    return found


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise BadRequest("cannot read '-': standard input is closed", remedy="name a file")
    return sys.stdin.buffer


def _to_json(
    done: LoadResult, uri: str, branch: str, source: str | None, mode: Mode, actor: str | None
) -> dict[str, Any]:
    """What a load did, as scripts read it; the same counts by type and by table."""
    tables = {
        f"{kind}:{name}": rows
        for kind, counts in _count_by_kind(done).items()
        for name, rows in counts.items()
    }
    return {
        "uri": uri,
        "branch": branch,
        "base_branch": source,
        "branch_created": done.branch_created,
        "mode": mode.value,
        **{
            f"{kind}s": [{"name": name, "entities_loaded": counts[name]} for name in sorted(counts)]
            for kind, counts in _count_by_kind(done).items()
        },
        "tables": [{"table_key": key, "rows_loaded": tables[key]} for key in sorted(tables)],
        "total_entities": done.total,
        "skipped": [violation.to_json() for violation in done.skipped],
        "skipped_total": done.skipped_total,
        "skipped_counts": dict(sorted(done.skipped_counts.items())),
        "null_counts": dict(done.null_counts),
        "dialects": dict(done.dialects),
        "actor_id": actor,
        "engine": None if done.engine is None else _engine_json(done.engine),
        "commit": None if done.commit is None else commit_json(done.commit),
        "pending_indexes": pending_json(done.pending_indexes),
    }


def _count_by_kind(done: LoadResult) -> dict[str, Mapping[str, int]]:
    return {"node": done.nodes, "edge": done.edges}


def _engine_json(engine: EngineReport) -> dict[str, Any]:
    """Where the work was done, why, and how fast each stage went."""
    stages = [
        {
            "name": stage.name,
            "tasks": stage.tasks,
            "seconds": round(stage.seconds, 3),
            "rows": stage.rows,
            "bytes": stage.bytes,
            "rows_per_second": stage.rows_per_second,
        }
        for stage in engine.stages
    ]
    return {
        "name": engine.name,
        "why": engine.why,
        "stages": stages,
        "tasks": [one.to_json() for one in engine.tasks],
    }
