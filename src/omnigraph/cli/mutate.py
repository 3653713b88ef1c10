"""`omnigraph mutate`: insert, update or delete by a query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph import graph
from omnigraph.cli.addressing import Store, Uri, addressed
from omnigraph.cli.commit import commit_json
from omnigraph.cli.lazy import new_app
from omnigraph.cli.options import Actor, AsJson
from omnigraph.cli.output import print_error, print_json, print_result
from omnigraph.engine.write.mutate import MutationResult
from omnigraph.errors import BadRequest, PreconditionFailed

LOST = 4

app = new_app()


@app.command()
def mutate(
    name: Annotated[
        str | None, typer.Argument(help="The query, where there are several.", metavar="NAME")
    ] = None,
    query: Annotated[
        Path | None, typer.Option("--query", "-q", help="The query file.", metavar="FILE.gq")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--query-string", "-e", help="The query itself.", metavar="TEXT")
    ] = None,
    params: Annotated[
        str | None, typer.Option("--params", help="The parameters, a JSON object.", metavar="JSON")
    ] = None,
    params_file: Annotated[
        Path | None, typer.Option("--params-file", help="A file with the parameters.", metavar="FILE")
    ] = None,
    branch: Annotated[str, typer.Option("--branch", help="The branch.", metavar="BRANCH")] = "main",
    if_commit: Annotated[
        str | None,
        typer.Option("--if-commit", help="Only while this commit is the branch's newest.", metavar="ID"),
    ] = None,
    actor: Actor = None,
    uri: Uri = None,
    store: Store = None,
    as_json: AsJson = False,
) -> None:
    """Carry out a mutation query in one commit; exits with 4 when the branch has moved past --if-commit."""
    place = addressed(uri=uri, store=store)
    source = _source(query, text)
    values = _params(params, params_file)
    with graph.open(place) as opened:
        try:
            done = opened.mutate(source, values, branch=branch, actor=actor, name=name, if_commit=if_commit)
        except PreconditionFailed as lost:
            # A script that asked for a condition wants to read how it ended.
            if as_json:
                print_json(lost.to_json())
            else:
                print_error(lost, as_json=False)
            raise typer.Exit(LOST) from lost
    report = _json(done, branch, actor)
    text_form = f"changed {branch} via {done.query}: {done.affected_nodes} nodes, {done.affected_edges} edges"
    print_result(report, text_form, as_json=as_json)


def _json(done: MutationResult, branch: str, actor: str | None) -> dict[str, Any]:
    return {
        "branch": branch,
        "query_name": done.query,
        "affected_nodes": done.affected_nodes,
        "affected_edges": done.affected_edges,
        "actor_id": actor,
        "commit": None if done.commit is None else commit_json(done.commit),
    }


def _source(query: Path | None, text: str | None) -> Path | str:
    if query is not None and text is not None:
        raise BadRequest("--query and --query-string are mutually exclusive")
    if query is None and text is None:
        raise BadRequest("no query given", remedy="name a file with --query, or write one after -e")
    return query if query is not None else str(text)


def _params(text: str | None, file: Path | None) -> dict[str, Any] | None:
    if text is not None and file is not None:
        raise BadRequest("--params and --params-file are mutually exclusive")
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as failure:
            reason = failure.strerror if isinstance(failure, OSError) else "it is not UTF-8"
            raise BadRequest(f"cannot read '{file}': {reason}", remedy="check the path") from failure
    if text is None:
        return None
    try:
        found = json.loads(text)
    except json.JSONDecodeError as wrong:
        raise BadRequest(f"params are not JSON: {wrong}") from wrong
    if not isinstance(found, dict):
        raise BadRequest("params must be a JSON object")
    return found
