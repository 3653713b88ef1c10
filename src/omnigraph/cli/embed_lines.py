"""`omnigraph embed` for files: one file of NDJSON becomes another, with vectors or without."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.cli.invocation import current_invocation
from omnigraph.cli.output import print_note, print_result
from omnigraph.embed.providers import configured_embedder
from omnigraph.embed.settings import PROVIDER_SETTING, PROVIDERS
from omnigraph.engine.embedding.embed_file import LinesRequest, Mode, Selector, embed_lines
from omnigraph.engine.embedding.recipe import Recipe, read_manifest, read_recipe
from omnigraph.engine.files.output_paths import require_output
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
    source, output, recipe = _files(options)
    current_invocation().when_interrupted = f"'{output}' is as it was"
    mode = _mode(options)
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


def _files(options: FileOptions) -> tuple[Path, Path, Recipe]:
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


def _mode(options: FileOptions) -> Mode:
    if options.clean and options.reembed_all:
        raise BadRequest("--clean and --reembed-all are mutually exclusive")
    if options.clean:
        return Mode.CLEAN
    if options.reembed_all:
        return Mode.REEMBED_ALL
    return Mode.REEMBED_SELECTED if options.select else Mode.FILL_MISSING
