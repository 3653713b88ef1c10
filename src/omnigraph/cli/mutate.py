"""`omnigraph mutate`: insert, update or delete by a query."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from omnigraph.cli.addressing import Uri, is_served, open_graph, resolve_actor, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.commit import commit_json
from omnigraph.cli.options import (
    AsJson,
    Message,
    Named,
    OnBranch,
    Param,
    Params,
    ParamsFile,
    QueryFile,
    QueryName,
    QueryText,
    parse_query_arguments,
    parse_stored_query,
)
from omnigraph.cli.output import print_error, print_json, print_pending, print_result
from omnigraph.cli.served import require_remote
from omnigraph.display.text import format_total
from omnigraph.engine.upkeep.declared_indexes import pending_json
from omnigraph.engine.write.mutate import MutationResult
from omnigraph.errors import PreconditionFailed

LOST = 4

app = new_app()


@app.command()
def mutate(
    name: QueryName = None,
    query: QueryFile = None,
    text: QueryText = None,
    named: Named = None,
    params: Params = None,
    params_file: ParamsFile = None,
    param: Param = None,
    branch: OnBranch = "main",
    if_commit: Annotated[
        str | None,
        typer.Option("--if-commit", help="Only while this commit is the branch's newest.", metavar="ID"),
    ] = None,
    retry: Annotated[
        int,
        typer.Option(
            "--retry",
            min=0,
            help="Prepare an update or delete again, at most N times, when a table it depends on moved.",
            metavar="N",
        ),
    ] = 0,
    message: Message = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Carry out a mutation query in one commit; exits with 4 when the branch has moved past --if-commit."""
    place = resolve_graph(uri=uri)
    actor = resolve_actor(place)
    given = (name, named, query, text, params, params_file, param)
    stored = parse_stored_query(*given) if is_served(place) else None
    with open_graph(place) as opened:
        try:
            if stored is not None:
                done = require_remote(opened).invoke_mutation(
                    stored.name, stored.params, branch=branch, if_commit=if_commit, message=message
                )
            else:
                meant = parse_query_arguments(*given)
                done = opened.mutate(
                    meant.source,
                    meant.params,
                    branch=branch,
                    actor=actor,
                    name=meant.name,
                    if_commit=if_commit,
                    retry=retry,
                    message=message,
                )
        except PreconditionFailed as lost:
            # A script that asked for a condition wants to read how it ended.
            if as_json:
                print_json(lost.to_json())
            else:
                print_error(lost, as_json=False)
            raise typer.Exit(LOST) from lost
    # The actor of a served write is known by its commit.
    author = done.commit.actor if done.commit is not None and is_served(place) else actor
    report = _to_json(done, branch, author)
    nodes, edges = format_total(done.affected_nodes, "node"), format_total(done.affected_edges, "edge")
    text_form = f"changed {branch} via {done.query}: {nodes}, {edges}"
    print_result(report, text_form, as_json=as_json)
    print_pending(done.pending_indexes)


def _to_json(done: MutationResult, branch: str, actor: str | None) -> dict[str, Any]:
    return {
        "branch": branch,
        "query_name": done.query,
        "affected_nodes": done.affected_nodes,
        "affected_edges": done.affected_edges,
        "tables": [{"table_key": key, **asdict(found)} for key, found in sorted(done.tables.items())],
        "actor_id": actor,
        "commit": None if done.commit is None else commit_json(done.commit),
        "pending_indexes": pending_json(done.pending_indexes),
    }
