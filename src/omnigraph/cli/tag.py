"""`omnigraph tag`: names of commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from omnigraph.cli.addressing import Place, Uri, echo_write, open_graph, resolve_actor, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result
from omnigraph.display.text import escape_invisible

if TYPE_CHECKING:
    from omnigraph.engine.graph.tags import Tag

Name = Annotated[str, typer.Argument(help="The tag.", metavar="NAME")]

app = new_app()


@app.callback()
def tag() -> None:
    """Create, list and delete tags: names of commits, which cleanup keeps."""


@app.command()
def create(
    name: Name,
    at: Annotated[
        str,
        typer.Option("--at", help="What to tag: a branch, commit, tag or time.", metavar="MOMENT"),
    ] = "main",
    message: Annotated[
        str | None, typer.Option("--message", "-m", help="What the tag says about itself.", metavar="TEXT")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Move a tag that exists.")] = False,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """Name a commit: main's newest one, if none is named."""
    place = resolve_graph(uri=uri)
    with open_graph(place) as opened:
        made = opened.tags.create(name, at=at, message=message, force=force, actor=resolve_actor(place))
        text = f"tagged {made.commit_id} as {made.name}"
        print_result({"uri": opened.uri, **made.to_json()}, text, as_json=as_json)
        echo_write("tag create", opened.uri)


@app.command(name="list")
def list_(
    place: Place = None,
    limit: Annotated[int | None, typer.Option("--limit", help="At most so many.", metavar="N", min=1)] = None,
    uri: Uri = None,
    as_json: AsJson = False,
) -> None:
    """List the tags by name, with their commits."""
    with open_graph(resolve_graph(place=place, uri=uri), read_only=True) as opened:
        found = opened.tags.list()[:limit]
    report = {"tags": [one.to_json() for one in found]}
    print_result(report, "\n".join(map(_render_line, found)) or "no tags", as_json=as_json)


@app.command()
def delete(name: Name, uri: Uri = None, as_json: AsJson = False) -> None:
    """Delete a tag; cleanup may then remove what only it kept."""
    place = resolve_graph(uri=uri)
    with open_graph(place) as opened:
        opened.tags.delete(name, actor=resolve_actor(place))
        report = {"uri": opened.uri, "name": name, "actor_id": None}
        print_result(report, f"deleted tag {name}", as_json=as_json)
        echo_write("tag delete", opened.uri)


def _render_line(tag: Tag) -> str:
    time = tag.time.isoformat(timespec="seconds").replace("+00:00", "Z")
    message = escape_invisible(tag.message.strip().splitlines()[0]) if tag.message else ""
    return "  ".join(part for part in (tag.name, tag.commit_id, time, message) if part)
