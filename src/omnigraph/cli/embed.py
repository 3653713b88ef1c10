"""`omnigraph embed`: fill the vectors that the schema asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from omnigraph import graph
from omnigraph.cli.addressing import Place, echo_write, resolve_actor, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.commit import commit_json
from omnigraph.cli.embed_lines import (
    Clean,
    FileOptions,
    Input,
    Output,
    ReembedAll,
    Seed,
    Select,
    Spec,
    embed_files,
)
from omnigraph.cli.invocation import current_invocation
from omnigraph.cli.options import AsJson, EngineBySize, OnBranch
from omnigraph.cli.output import print_note, print_result
from omnigraph.cli.pending_note import print_pending
from omnigraph.engine.embedding.result import ROWS_PER_COMMIT, EmbedResult, FilledProperty
from omnigraph.engine.upkeep.pending_indexes import pending_json
from omnigraph.errors import BadRequest

app = new_app()

_FOR_GRAPHS = {
    "branch": "--branch",
    "everything": "--all",
    "engine": "--engine",
    "batch": "--batch",
    "dry_run": "--dry-run",
}


@app.command()
def embed(
    context: typer.Context,
    place: Place = None,
    branch: OnBranch = "main",
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="Only this node type; may be repeated.", metavar="TYPE"),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Replace vectors that the configured model did not make, too.")
    ] = False,
    engine: EngineBySize = "auto",
    batch: Annotated[
        int, typer.Option("--batch", help="How many entities land in one commit, at most.", metavar="N")
    ] = ROWS_PER_COMMIT,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report how many vectors are due.")] = False,
    seed: Seed = None,
    input_file: Input = None,
    output: Output = None,
    spec: Spec = None,
    clean: Clean = False,
    reembed_all: ReembedAll = False,
    select: Select = None,
    as_json: AsJson = False,
) -> None:
    """Make the vectors of `@embed` properties that are missing or whose text has changed.

    A run that was stopped is simply run again: what landed stays, and the rest is done. With --seed or
    --input there is no graph: the records of a file of NDJSON get their vectors before they are loaded.
    """
    files = FileOptions(seed, input_file, output, spec, clean, reembed_all, tuple(select or ()))
    if files.are_meant:
        _refuse_graph(place, context)
        embed_files(files, tuple(types or ()), as_json=as_json)
        return
    uri = resolve_graph(place=place)
    with graph.open(uri, read_only=dry_run) as opened:
        done = opened.embed(
            branch,
            types=types or None,
            everything=everything,
            engine=engine,
            batch=batch,
            dry_run=dry_run,
            actor=resolve_actor(),
        )
        uri = opened.uri
    print_result(_json(done, uri), "\n".join(_lines(done)), as_json=as_json)
    refused = [line for one in done.properties for line in _refusals(one)]
    if refused:
        print_note("\n".join(refused))
    print_pending(done.pending_indexes)
    if done.commits:
        echo_write("embed", uri)


def _refuse_graph(place: str | None, context: typer.Context) -> None:
    """What is said about a graph would mean nothing for files."""
    said = ["--store"] if place is None and current_invocation().text("--store") is not None else []
    said += ["a URI"] if place is not None else []
    for name, flag in _FOR_GRAPHS.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            said.append(flag)
    if said:
        raise BadRequest(f"{said[0]} is about a graph, and --seed and --input are about files")


def _lines(done: EmbedResult) -> Iterator[str]:
    for one in done.properties:
        yield f"{one.type}.{one.property}: {', '.join(_words(one, dry_run=done.dry_run))}"
    if done.commits:
        commits = f"{len(done.commits)} commit{'' if len(done.commits) == 1 else 's'}"
        how = f"({done.engine}, model {done.model})"
        yield f"{commits} on branch '{done.branch}' in {done.seconds:.1f} s {how}"
    elif not done.dry_run:
        yield f"nothing was written on branch '{done.branch}'"


def _words(one: FilledProperty, *, dry_run: bool) -> Iterator[str]:
    if dry_run or not one.found:
        yield f"{one.found} due"
        return
    yield f"{one.embedded} embedded"
    for count, what in (
        (one.cleared, "cleared"),
        (one.changed_meanwhile, "changed meanwhile"),
        (one.refused, "refused"),
    ):
        if count:
            yield f"{count} {what}"


def _refusals(one: FilledProperty) -> Iterator[str]:
    for refused in one.refusals:
        yield f"{one.type} '{refused.id}' was left out: {refused.reason}"
    if one.refused > len(one.refusals):
        yield f"and {one.refused - len(one.refusals)} more of {one.type}.{one.property}"


def _json(done: EmbedResult, uri: str) -> dict[str, Any]:
    """What a run did, as scripts read it."""
    return {
        "uri": uri,
        "branch": done.branch,
        "model": done.model,
        "dry_run": done.dry_run,
        "engine": {"name": done.engine, "why": done.why},
        "properties": [_property(one) for one in done.properties],
        "total_embedded": done.embedded,
        "seconds": round(done.seconds, 3),
        "commits": [commit_json(commit) for commit in done.commits],
        "pending_indexes": pending_json(done.pending_indexes),
    }


def _property(one: FilledProperty) -> dict[str, Any]:
    return {
        "type": one.type,
        "property": one.property,
        "due": one.found,
        "embedded": one.embedded,
        "cleared": one.cleared,
        "changed_meanwhile": one.changed_meanwhile,
        "refused": one.refused,
        "refusals": [{"id": refused.id, "reason": refused.reason} for refused in one.refusals],
    }
