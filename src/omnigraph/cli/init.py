"""`omnigraph init`: make a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from omnigraph import graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result
from omnigraph.cluster.lookup import refuse_managed

app = new_app()


@app.command()
def init(
    uri: Annotated[str, typer.Argument(help="Where: a folder or s3://bucket/prefix.", metavar="URI")],
    schema: Annotated[Path, typer.Option("--schema", "-s", help="The schema file.", metavar="FILE.pg")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace what an interrupted init left; never a graph.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a graph with a schema in an empty folder or bucket prefix."""
    refuse_managed(uri, "init")
    with graph.init(uri, schema=schema, force=force) as made:
        report = {"uri": made.uri, "schema_path": str(schema), "graph_commit_id": made.snapshot().id}
        print_result(report, f"initialized {made.uri}", as_json=as_json)
