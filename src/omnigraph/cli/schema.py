"""`omnigraph schema`: what changing a schema would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.files import read_source
from omnigraph.cli.lazy import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result
from omnigraph.lang.schema import MigrationPlan, compile_schema, describe_plan, plan_files

if TYPE_CHECKING:
    from omnigraph.graph import Graph

app = new_app()


@app.callback()
def schema() -> None:
    """Plan changes of a schema."""


@app.command()
def plan(
    old: Annotated[str, typer.Argument(help="The schema that holds now: a file, or a graph.", metavar="OLD")],
    new: Annotated[Path, typer.Argument(help="The schema wanted instead.", metavar="NEW.pg")],
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Let drops remove older versions too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the steps from one schema to another; exits with 1 when a step is not possible."""
    if _is_graph(old):
        with _opened(old) as graph:
            found, place = graph.plan_schema(new, allow_data_loss=allow_data_loss), {"uri": graph.uri}
    else:
        before, after = (compile_schema(read_source(path)) for path in (Path(old), new))
        found, place = plan_files(before, after, allow_data_loss), {"old": old}
    report = {**place, "new": str(new), "step_count": len(found.steps), **found.to_json()}
    print_result(report, _text(found), as_json=as_json)
    if not found.supported:
        raise typer.Exit(1)


def _is_graph(text: str) -> bool:
    """A schema file is never a folder, and has no scheme."""
    return "://" in text or Path(text).is_dir()


def _opened(uri: str) -> Graph:
    from omnigraph import graph  # not above: comparing two files needs no storage

    return graph.open(uri, read_only=True)


def _text(found: MigrationPlan) -> str:
    if not found.steps:
        return "no changes"
    steps = f"{len(found.steps)} step{'s' if len(found.steps) > 1 else ''}"
    verdict = "can be applied" if found.supported else "cannot be applied as it is"
    return "\n".join([*describe_plan(found), f"{steps}; {verdict}"])
