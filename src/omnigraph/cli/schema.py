"""`omnigraph schema`: show the schema of a graph, plan a change of it, carry it out, or infer one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.addressing import Place, echo_write, is_served, open_graph, resolve_actor, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson, Message
from omnigraph.cli.output import print_pending, print_result
from omnigraph.engine.files.output_paths import require_output
from omnigraph.engine.files.source_files import read_source
from omnigraph.errors import BadRequest
from omnigraph.lang.schema import MigrationPlan, compile_schema, describe, describe_plan, plan_files
from omnigraph.lang.values import shorten_legibly

if TYPE_CHECKING:
    from omnigraph.engine.schema_apply.apply import SchemaResult
    from omnigraph.graph import Graph

app = new_app()

Wanted = Annotated[Path, typer.Option("--schema", "-s", help="The schema that is wanted.", metavar="FILE.pg")]
AllowDataLoss = Annotated[
    bool, typer.Option("--allow-data-loss", help="Let drops remove older versions too.")
]


@app.callback()
def schema() -> None:
    """Show and change the schema of a graph."""


@app.command()
def show(place: Place = None, as_json: AsJson = False) -> None:
    """Print the accepted schema as its author wrote it."""
    with open_graph(resolve_graph(place=place), read_only=True) as graph:
        source = graph.schema_source
        report = {"uri": graph.uri, "schema_source": source}
    print_result(report, source, as_json=as_json)


app.command(name="get", hidden=True)(show)


@app.command()
def plan(
    old: Annotated[
        str | None, typer.Argument(help="The schema that holds now: a graph, or a file.", metavar="OLD")
    ] = None,
    new: Annotated[Path | None, typer.Argument(help="The schema wanted instead.", metavar="NEW.pg")] = None,
    wanted: Annotated[
        Path | None, typer.Option("--schema", "-s", help="The same as NEW.pg.", metavar="FILE.pg")
    ] = None,
    allow_data_loss: AllowDataLoss = False,
    as_json: AsJson = False,
) -> None:
    """Show the steps from one schema to another; exits with 1 when a step is not possible."""
    before, after = resolve_graph(place=old), _require_wanted(new, wanted)
    if old is None or _is_graph(before):
        with _open_schema(before, read_only=True) as graph:
            found, place = graph.plan_schema(after, allow_data_loss=allow_data_loss), {"uri": graph.uri}
    else:
        one, other = (compile_schema(read_source(path)) for path in (Path(before), after))
        found, place = plan_files(one, other, allow_data_loss), {"old": before}
    report = {**place, "new": str(after), "step_count": len(found.steps), **found.to_json()}
    print_result(report, _render_plan(found), as_json=as_json)
    if not found.supported:
        raise typer.Exit(1)


@app.command()
def apply(
    wanted: Wanted,
    place: Place = None,
    allow_data_loss: AllowDataLoss = False,
    message: Message = None,
    as_json: AsJson = False,
) -> None:
    """Make a schema the accepted one, in one commit that carries all rows over, or change nothing."""
    at = resolve_graph(place=place)
    if not is_served(at):
        from omnigraph.cluster.lookup import refuse_managed  # not above: showing a schema needs no cluster

        refuse_managed(at, "schema apply")
    with open_graph(at) as graph:
        done = graph.apply_schema(
            wanted, allow_data_loss=allow_data_loss, actor=resolve_actor(at), message=message
        )
        uri = graph.uri
    echo_write("schema apply", uri)
    print_result({"uri": uri, **done.to_json()}, _render_applied(done), as_json=as_json)
    print_pending(done.pending_indexes)


@app.command()
def infer(
    files: Annotated[
        list[str],
        typer.Argument(
            help="CSV, Parquet, Arrow, Lance or JSON lines; TYPE=FILE names the type.", metavar="FILE..."
        ),
    ],
    key: Annotated[
        list[str] | None,
        typer.Option(
            "--key",
            help="A property that identifies nodes, or several: Flight.carrier,number; may be repeated.",
            metavar="TYPE.PROPERTY",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the schema to this new file.", metavar="FILE.pg"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a schema that files of data fit, with comments on what was guessed."""
    from omnigraph.engine.inference.samples import sample_files  # not above: this command alone reads data
    from omnigraph.engine.inference.schema_text import infer_schema_text

    text = infer_schema_text(sample_files(files), _parse_keys(key or []))
    if output is not None:
        _write_new(output, text)
    report = {"schema_source": text, "schema_path": None if output is None else str(output)}
    print_result(report, text if output is None else f"wrote {output}", as_json=as_json)


def _parse_keys(given: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text in given:
        name, dot, columns = text.partition(".")
        if not dot or not name or not columns:
            raise typer.BadParameter(f"'{shorten_legibly(text)}' is not TYPE.PROPERTY.", param_hint="'--key'")
        if name in found:
            raise typer.BadParameter(
                f"'{shorten_legibly(name)}' has two keys; of several properties it is TYPE.A,B.",
                param_hint="'--key'",
            )
        found[name] = columns.split(",")
    return found


def _write_new(at: Path, text: str) -> None:
    try:
        with require_output(at).open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as failure:
        raise BadRequest(
            f"cannot write '{at}': {failure.strerror}", remedy="name a file that does not exist yet"
        ) from failure


def _require_wanted(new: Path | None, wanted: Path | None) -> Path:
    if new is not None and wanted is not None:
        raise BadRequest("NEW.pg and --schema are mutually exclusive")
    found = new or wanted
    if found is None:
        raise BadRequest("no schema to compare with", remedy="name one with --schema FILE.pg")
    return found


def _is_graph(text: str) -> bool:
    """A schema file is never a folder, and has no scheme."""
    return "://" in text or Path(text).is_dir()


def _open_schema(uri: str, *, read_only: bool) -> Graph:
    from omnigraph import graph  # not above: comparing two files needs no storage

    return graph.open(uri, read_only=read_only)


def _render_plan(found: MigrationPlan) -> str:
    notes = [f"note: {note}" for note in found.notes]
    if not found.steps:
        return "\n".join([*notes, "no changes"])
    verdict = "can be applied" if found.supported else "cannot be applied as it is"
    return "\n".join([*describe_plan(found), *notes, f"{_count_steps(len(found.steps))}; {verdict}"])


def _render_applied(done: SchemaResult) -> str:
    if not done.applied:
        return "no changes"
    commit = f"; commit {done.commit.id}" if done.commit else ""
    return "\n".join([*map(describe, done.steps), f"{_count_steps(len(done.steps))} applied{commit}"])


def _count_steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"
