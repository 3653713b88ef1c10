"""`omnigraph revert`, `cherry-pick` and `reset`: older commits in new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omnigraph.cli.addressing import Uri, echo_write, open_graph, resolve_actor, resolve_graph
from omnigraph.cli.branch import CONFLICTS, ByGranularity, check_strategies, render_refusal
from omnigraph.cli.changes import stat_lines
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.config_file import current_config
from omnigraph.cli.options import AsJson, EngineBySize, Message, OnBranch
from omnigraph.cli.output import print_note, print_pending, print_result
from omnigraph.errors import MergeConflicts

if TYPE_CHECKING:
    from omnigraph.client.graph import RemoteGraph
    from omnigraph.engine.merge.result import MergeResult
    from omnigraph.graph import Graph

app = new_app()
pick_app = new_app()
reset_app = new_app()

CommitId = Annotated[str, typer.Argument(help="The id of the commit, or a tag.", metavar="COMMIT")]
Strategy = Annotated[
    list[str] | None,
    typer.Option(
        "--strategy",
        help="Whose version stands in a conflict: ours (that of the branch) or theirs (that of the commit), "
        "or for a type or property, as in Person.age=ours; may be repeated.",
        metavar="[TYPE[.PROPERTY]=]ours|theirs",
        callback=check_strategies,
    ),
]


@app.command()
def revert(
    commit: CommitId,
    branch: OnBranch = "main",
    strategy: Strategy = None,
    granularity: ByGranularity = None,
    message: Message = None,
    engine: EngineBySize = "auto",
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Take back what a commit changed, in a new commit; on conflicts nothing, and exit code 1."""
    how = {"strategy": strategy or None, "granularity": granularity, "message": message, "engine": engine}
    _run("revert", uri, lambda graph, actor: graph.revert(commit, branch, actor=actor, **how), as_json)


@pick_app.command(name="cherry-pick")
def cherry_pick(
    commit: CommitId,
    branch: OnBranch = "main",
    strategy: Strategy = None,
    granularity: ByGranularity = None,
    message: Message = None,
    engine: EngineBySize = "auto",
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Take in what one commit changed, in a new commit; on conflicts nothing, and exit code 1."""
    how = {"strategy": strategy or None, "granularity": granularity, "message": message, "engine": engine}
    _run(
        "cherry-pick",
        uri,
        lambda graph, actor: graph.cherry_pick(commit, branch, actor=actor, **how),
        as_json,
    )


@reset_app.command()
def reset(
    to: Annotated[
        str,
        typer.Option(
            "--to", help="The commit, tag, branch, time, BRANCH@TIME or BRANCH@vVERSION.", metavar="MOMENT"
        ),
    ],
    branch: OnBranch = "main",
    message: Message = None,
    engine: EngineBySize = "auto",
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Give a branch the content of an older moment, in a new commit; its history stays as it is."""
    how = {"message": message, "engine": engine}
    _run("reset", uri, lambda graph, actor: graph.reset(to, branch, actor=actor, **how), as_json)


def _run(
    command: str,
    uri: str | None,
    run: Callable[[Any, str | None], MergeResult],
    as_json: bool,
) -> None:
    place = resolve_graph(uri=uri)
    opened: Graph | RemoteGraph
    default = current_config().defaults.merge_granularity
    with open_graph(place, merge_granularity=default) as opened:
        try:
            done = run(opened, resolve_actor(place))
        except MergeConflicts as error:
            if as_json:
                raise
            print_note("\n".join(render_refusal(error)))
            raise typer.Exit(CONFLICTS) from error
        where = opened.uri
    print_result(done.to_json(), "\n".join(_render(command, done)), as_json=as_json)
    print_pending(done.pending_indexes)
    echo_write(command, where)


def _render(command: str, done: MergeResult) -> list[str]:
    if done.commit is None:
        return [f"{command} {done.source}: nothing to change on {done.target}"]
    return [f"{command} {done.source} on {done.target}: commit {done.commit.id}", *stat_lines(done.changes)]
