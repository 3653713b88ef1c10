"""`omnigraph embed`: fill the vectors that the schema asks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph import graph
from omnigraph.cli.addressing import Place, echo_write, resolve_actor, resolve_cluster, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.commit import commit_json
from omnigraph.cli.invocation import current_invocation
from omnigraph.cli.options import AsJson, EngineBySize, Message, OnBranch
from omnigraph.cli.output import print_note, print_pending, print_result
from omnigraph.deferred_dataclass import dataclass
from omnigraph.embed.providers import configured_embedder
from omnigraph.embed.settings import PROVIDER_SETTING, PROVIDERS, EmbedSettings
from omnigraph.engine.embedding.embed_file import (
    LinesRequest,
    Mode,
    Recipe,
    Selector,
    embed_lines,
    read_manifest,
    read_recipe,
)
from omnigraph.engine.embedding.result import ROWS_PER_COMMIT, EmbedResult, FilledProperty
from omnigraph.engine.files.output_paths import require_output
from omnigraph.engine.upkeep.declared_indexes import pending_json
from omnigraph.errors import BadRequest, EmbeddingNotConfigured

Seed = Annotated[
    Path | None,
    typer.Option("--seed", help="A manifest that names the files and what to embed.", metavar="FILE"),
]
Input = Annotated[
    Path | None, typer.Option("--input", help="A file of NDJSON instead of a graph.", metavar="FILE")
]
Output = Annotated[Path | None, typer.Option("--output", help="Where the new file goes.", metavar="FILE")]
Spec = Annotated[
    Path | None, typer.Option("--spec", help="Which fields of the file to embed.", metavar="FILE")
]
Clean = Annotated[bool, typer.Option("--clean", help="Take the vectors out of the file.")]
ReembedAll = Annotated[
    bool,
    typer.Option("--reembed-all", "--reembed_all", help="Also replace vectors that the file already has."),
]
Select = Annotated[
    list[str] | None,
    typer.Option(
        "--select", help="Only records with this value; may be repeated.", metavar="[TYPE:]FIELD=VALUE"
    ),
]


@dataclass(frozen=True, slots=True)
class FileOptions:
    """What was said about files; nothing, when a graph is meant."""

    seed: Path | None
    input: Path | None
    output: Path | None
    spec: Path | None
    clean: bool
    reembed_all: bool
    select: tuple[str, ...]

    @property
    def are_meant(self) -> bool:
        """Whether the command is about files."""
        if self.seed is not None or self.input is not None:
            return True
        given = {
            "--output": self.output,
            "--spec": self.spec,
            "--clean": self.clean,
            "--reembed-all": self.reembed_all,
            "--select": self.select,
        }
        for flag, value in given.items():
            if value:
                raise BadRequest(f"{flag} is about files", remedy="name them with --seed or --input")
        return False


def embed_files(options: FileOptions, types: tuple[str, ...], *, as_json: bool) -> None:
    """Copy an NDJSON file with vectors added, and report what was done."""
    source, output, recipe = _require_files(options)
    current_invocation().when_interrupted = f"'{output}' is as it was"
    mode = _choose_mode(options)
    selectors = tuple(map(Selector.parse, options.select))
    request = LinesRequest(source, output, recipe, mode, types, selectors)
    embedder = None if mode is Mode.CLEAN else configured_embedder()
    if embedder is None and mode is not Mode.CLEAN:
        raise EmbeddingNotConfigured(
            f"embedding '{source}' needs an embedding provider, and none is configured",
            remedy=f"set {PROVIDER_SETTING} to one of {', '.join(PROVIDERS)}",
        )
    done = embed_lines(request, embedder)
    report: dict[str, Any] = {
        "input": str(source),
        "output": str(output),
        "records": done.records,
        "selected_records": done.selected,
        "embedded_records": done.embedded,
        "cleaned_records": done.cleaned,
        "refused_records": done.refused,
        "mode": mode.value,
        "dimension": recipe.dimension,
        "model": "" if embedder is None else embedder.model,
    }
    how = f"{done.cleaned} cleaned" if embedder is None else f"{done.embedded} embedded by {embedder.model}"
    text = f"{output}: {how}, of {done.selected} selected and {done.records} in all"
    print_result(report, text, as_json=as_json)
    for line, reason in done.refusals:
        print_note(f"line {line} was left as it is: {reason}")
    if done.refused > len(done.refusals):
        print_note(f"and {done.refused - len(done.refusals)} more")


def _require_files(options: FileOptions) -> tuple[Path, Path, Recipe]:
    if options.output is not None:
        require_output(options.output)
    if options.seed is not None:
        if options.input is not None or options.spec is not None:
            raise BadRequest("--seed and --input or --spec are mutually exclusive")
        manifest = read_manifest(options.seed)
        return manifest.input, options.output or manifest.output, manifest.recipe
    if options.input is None or options.output is None or options.spec is None:
        raise BadRequest("--input, --output and --spec go together", remedy="name all three, or a --seed")
    return options.input, options.output, read_recipe(options.spec)


def _choose_mode(options: FileOptions) -> Mode:
    if options.clean and options.reembed_all:
        raise BadRequest("--clean and --reembed-all are mutually exclusive")
    if options.clean:
        return Mode.CLEAN
    if options.reembed_all:
        return Mode.REEMBED_ALL
    return Mode.REEMBED_SELECTED if options.select else Mode.FILL_MISSING


app = new_app()

_FOR_GRAPHS = {
    "branch": "--branch",
    "everything": "--all",
    "engine": "--engine",
    "batch": "--batch",
    "dry_run": "--dry-run",
    "message": "--message",
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
    message: Message = None,
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
    with graph.open(uri, read_only=dry_run, embedding=_declared_provider(place, uri)) as opened:
        done = opened.embed(
            branch,
            types=types or None,
            everything=everything,
            engine=engine,
            batch=batch,
            dry_run=dry_run,
            actor=resolve_actor(),
            message=message,
        )
        uri = opened.uri
    print_result(_to_json(done, uri), "\n".join(_render_lines(done)), as_json=as_json)
    refused = [line for one in done.properties for line in _describe_refusals(one)]
    if refused:
        print_note("\n".join(refused))
    print_pending(done.pending_indexes)
    if done.commits:
        echo_write("embed", uri)


def _declared_provider(place: str | None, uri: str) -> EmbedSettings | None:
    """Return the provider that the cluster of a graph declares for it."""
    cluster = resolve_cluster(place=place)
    if cluster is None:
        return None
    from omnigraph.cluster.lookup import read_profile

    profile = read_profile(cluster, uri)
    return None if profile is None else EmbedSettings.from_profile(profile)


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


def _render_lines(done: EmbedResult) -> Iterator[str]:
    for one in done.properties:
        yield f"{one.type}.{one.property}: {', '.join(_describe_property(one, dry_run=done.dry_run))}"
    if done.commits:
        commits = f"{len(done.commits)} commit{'' if len(done.commits) == 1 else 's'}"
        how = f"({done.engine}, model {done.model})"
        yield f"{commits} on branch '{done.branch}' in {done.seconds:.1f} s {how}"
    elif not done.dry_run:
        yield f"nothing was written on branch '{done.branch}'"


def _describe_property(one: FilledProperty, *, dry_run: bool) -> Iterator[str]:
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


def _describe_refusals(one: FilledProperty) -> Iterator[str]:
    for refused in one.refusals:
        yield f"{one.type} '{refused.id}' was left out: {refused.reason}"
    if one.refused > len(one.refusals):
        yield f"and {one.refused - len(one.refusals)} more of {one.type}.{one.property}"


def _to_json(done: EmbedResult, uri: str) -> dict[str, Any]:
    """What a run did, as scripts read it."""
    return {
        "uri": uri,
        "branch": done.branch,
        "model": done.model,
        "dry_run": done.dry_run,
        "engine": {"name": done.engine, "why": done.why},
        "properties": [_property_to_json(one) for one in done.properties],
        "total_embedded": done.embedded,
        "seconds": round(done.seconds, 3),
        "commits": [commit_json(commit) for commit in done.commits],
        "pending_indexes": pending_json(done.pending_indexes),
    }


def _property_to_json(one: FilledProperty) -> dict[str, Any]:
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
