"""`omnigraph branch`: create, list, merge and delete branches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from omnigraph.cli.addressing import (
    Place,
    Uri,
    echo_write,
    open_graph,
    require_consent,
    resolve_actor,
    resolve_graph,
)
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.config_file import current_config
from omnigraph.cli.options import AsJson, Message
from omnigraph.cli.output import print_json, print_note, print_result, print_text
from omnigraph.display.text import escape_invisible, format_value
from omnigraph.errors import MergeConflicts

if TYPE_CHECKING:
    from omnigraph.engine.changes.change import ChangeCounts, EntityImage
    from omnigraph.engine.merge.conflict import MergeConflict
    from omnigraph.engine.merge.result import MergePreview, MergeResult


CONFLICTS = 1
SHOWN = 20


def check_strategies(given: list[str] | None) -> list[str] | None:
    """Refuse a strategy that is none, as typer does with other options."""
    for text in given or ():
        if text.rpartition("=")[2] not in ("ours", "theirs"):
            raise typer.BadParameter(
                f"'{text}' is not ours, theirs, or one of them behind a type, as in T=ours"
            )
    return given


Source = Annotated[str, typer.Argument(help="The branch to take in.", metavar="SOURCE")]
Into = Annotated[str, typer.Option("--into", help="The branch that gets the changes.", metavar="BRANCH")]
DeleteBranch = Annotated[bool, typer.Option("--delete-branch", help="Delete SOURCE once it is merged.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only report what would happen, with all conflicts.")]
Strategy = Annotated[
    list[str] | None,
    typer.Option(
        "--strategy",
        help="Whose version stands where both branches changed an entity: ours (that of --into) or theirs, "
        "or for a type or property, as in Person.age=ours; may be repeated.",
        metavar="[TYPE[.PROPERTY]=]ours|theirs",
        callback=check_strategies,
    ),
]
Resolutions = Annotated[
    Path | None,
    typer.Option("--resolutions", help="A JSON file with decisions about conflicts.", metavar="FILE"),
]
WriteResolutions = Annotated[
    Path | None,
    typer.Option(
        "--write-resolutions",
        help="Only preview, and write all conflicts to a file in which to decide on them.",
        metavar="FILE",
    ),
]
ByGranularity = Annotated[
    Literal["row", "property"] | None,
    typer.Option(
        "--granularity",
        help="What contradicts: two changes of one entity (row), or only of one property of it (property). "
        "If not said, the @merge of each type, then the config file (not behind a server), else row.",
    ),
]

Engine = Annotated[
    Literal["auto", "local", "spark"],
    typer.Option("--engine", help="Where the work is done; by the size of the change, if not said."),
]


def merge(
    source: Source,
    into: Into = "main",
    delete_branch: DeleteBranch = False,
    dry_run: DryRun = False,
    strategy: Strategy = None,
    resolutions: Resolutions = None,
    write_resolutions: WriteResolutions = None,
    granularity: ByGranularity = None,
    message: Message = None,
    engine: Engine = "auto",
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Take what SOURCE changed into another branch, in one commit; on conflicts nothing, and exit code 1."""
    previewing = dry_run or write_resolutions is not None
    place = resolve_graph(uri=uri)
    actor = resolve_actor(place)
    default = current_config().defaults.merge_granularity
    with open_graph(place, read_only=previewing, merge_granularity=default) as opened:
        if previewing:
            found = opened.merge(
                source,
                into,
                dry_run=True,
                strategy=strategy or None,
                resolutions=resolutions,
                granularity=granularity,
                engine=engine,
            )
            _print_preview(found, resolutions, write_resolutions, as_json=as_json)
            return
        try:
            done = opened.merge(
                source,
                into,
                actor=actor,
                strategy=strategy or None,
                resolutions=resolutions,
                granularity=granularity,
                delete_branch=delete_branch,
                message=message,
                engine=engine,
            )
        except MergeConflicts as error:
            if as_json:
                raise
            print_note("\n".join(render_refusal(error)))
            raise typer.Exit(CONFLICTS) from error
        _print_merge(done, as_json=as_json)
        echo_write("branch merge", opened.uri)


def _print_merge(done: MergeResult, *, as_json: bool) -> None:
    from omnigraph.cli.output import print_pending

    text = f"merged {done.source} into {done.target}: {done.outcome.value}"
    print_result(done.to_json(), "\n".join([text, *_given_up(done)]), as_json=as_json)
    print_pending(done.pending_indexes)
    if done.branch_delete_error is not None:
        print_note(
            f"warning: branch '{done.source}' was not deleted: {escape_invisible(done.branch_delete_error)}"
        )


def _print_preview(
    found: MergePreview, resolutions: Path | None, wanted: Path | None, *, as_json: bool
) -> None:
    if wanted is not None:
        # Decisions that were read are written again, so their own file may be replaced.
        same = resolutions is not None and wanted.exists() and wanted.samefile(resolutions)
        found.write_resolutions(wanted, replaces=same)
    if as_json:
        print_json(found.to_json())
    else:
        print_text("\n".join(_render_preview(found)))
    if wanted is not None:
        then = f"; fill in what should stand, then merge with --resolutions {wanted}" if found.met else ""
        print_note(f"wrote {_count_conflicts(found.met)} to {wanted}{then}")
    if found.conflicts:
        raise typer.Exit(CONFLICTS)


def _render_preview(found: MergePreview) -> Iterator[str]:
    from omnigraph.cli.changes import stat_lines

    yield f"merging {found.source} into {found.target} would be: {found.outcome.value}"
    yield from stat_lines(dict(found.changes))
    yield from _side_lines(found)
    if found.resolved:
        yield f"{found.resolved} decided"
        yield from _given_up(found)
    if found.conflicts:
        yield f"{_count_conflicts(found.conflicts)}; {_describe_sides(found.source, found.target)}"
        yield from _conflict_lines(found.conflicts)


def _side_lines(found: MergePreview) -> Iterator[str]:
    """What each branch did to the types that both changed."""
    for key, one in found.by_branch.items():
        if not any(one.target.to_json().values()):
            continue
        sides = ((found.source, one.source), (found.target, one.target))
        yield f"  {key}: " + "; ".join(f"{name} {_render_counts(counts)}" for name, counts in sides)


def _render_counts(counts: ChangeCounts) -> str:
    return f"{counts.inserted} inserted, {counts.updated} updated, {counts.deleted} deleted"


def _given_up(found: MergeResult | MergePreview) -> Iterator[str]:
    """What was decided on with a whole entity although only one branch had changed it."""
    for one in found.given_up[:SHOWN]:
        lost = [(found.source, name, value) for name, value in one.source.items()]
        lost += [(found.target, name, value) for name, value in one.target.items()]
        dropped = ", ".join(
            f"{escape_invisible(name)} {format_value(value)} of {branch}" for branch, name, value in lost
        )
        yield f"  {escape_invisible(one.name)} was taken whole and gave up {dropped}"
    if found.given_up_count > SHOWN:
        yield f"  and {found.given_up_count - SHOWN} more entities"
    if found.given_up:
        yield "  help: --granularity property keeps what only one branch changed"


def render_refusal(error: MergeConflicts) -> Iterator[str]:
    counted = _count_conflicts(error.conflicts)
    sides = _describe_sides(error.source, error.target)
    yield f"error[{error.code}]: merging '{error.source}' into '{error.target}' has {counted}; {sides}"
    yield from _conflict_lines(error.conflicts)
    yield f"  help: {error.remedy}"


def _describe_sides(source: str, target: str) -> str:
    return f"ours is {target}, theirs is {source}"


def _count_conflicts(conflicts: Sequence[MergeConflict]) -> str:
    return "1 conflict" if len(conflicts) == 1 else f"{len(conflicts)} conflicts"


def _conflict_lines(conflicts: Sequence[MergeConflict]) -> Iterator[str]:
    from omnigraph.engine.merge.conflict import SEPARABLE

    for conflict in conflicts[:SHOWN]:
        yield f"  {conflict.kind.value}: {escape_invisible(conflict.message)}"
        for name in conflict.properties:
            images = (conflict.base, conflict.target, conflict.source)
            base, ours, theirs = (_format_side(image, name) for image in images)
            yield f"      {escape_invisible(name)}: base {base}, ours {ours}, theirs {theirs}"
        if conflict.is_separable:
            yield f"      help: {SEPARABLE}"
    if len(conflicts) > SHOWN:
        yield f"  and {len(conflicts) - SHOWN} more"


def _format_side(image: EntityImage | None, name: str) -> str:
    """A property as one side has it; no value is another thing than no entity."""
    if image is None:
        return "not there"
    return format_value({"src": image.source, "dst": image.target, **image.properties}.get(name))


Name = Annotated[str, typer.Argument(help="The branch.", metavar="NAME")]

app = new_app()

# Reports have an `actor_id` and it is null: only commits record their actor, and neither is one.


@app.callback()
def branch() -> None:
    """Create, list, merge and delete branches."""


@app.command()
def create(
    name: Name,
    from_branch: Annotated[
        str,
        typer.Option("--from", help="Where to start: a branch, commit, tag or time.", metavar="MOMENT"),
    ] = "main",
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Make a branch that starts as another one is now, or at an older moment."""
    with open_graph(resolve_graph(uri=uri)) as opened:
        made = opened.branches.create(name, from_=from_branch)
        report = {"uri": opened.uri, "from": from_branch, "name": made, "actor_id": None}
        print_result(report, f"created branch {made} from {from_branch}", as_json=as_json)
        echo_write("branch create", opened.uri)


@app.command(name="list")
def list_(place: Place = None, uri: Uri = None, as_json: AsJson = False) -> None:
    """List the branches: main first, then by name."""
    with open_graph(resolve_graph(place=place, uri=uri), read_only=True) as opened:
        names = opened.branches.list()
        print_result({"branches": names}, "\n".join(names), as_json=as_json)


@app.command()
def delete(
    name: Name,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Remove a branch and what only it has; in a bucket this needs --yes."""
    place = resolve_graph(uri=uri)
    require_consent(f"deleting branch '{name}'", place, as_json=as_json)
    with open_graph(place) as opened:
        opened.branches.delete(name)
        report = {"uri": opened.uri, "name": name, "actor_id": None}
        print_result(report, f"deleted branch {name}", as_json=as_json)
        echo_write("branch delete", opened.uri)


app.command()(merge)
