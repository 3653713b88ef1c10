"""Which graph a command is about, and what is said and asked before it is changed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from omnigraph.cli.output import print_note
from omnigraph.errors import BadRequest

Place = Annotated[
    str | None, typer.Argument(help="The graph: a folder or s3://bucket/prefix.", metavar="URI")
]
Uri = Annotated[
    str | None, typer.Option("--uri", help="The graph: a folder or s3://bucket/prefix.", metavar="URI")
]
Store = Annotated[str | None, typer.Option("--store", help="The same, under another name.", metavar="URI")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not say which graph was changed.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before something is removed for good.")]


def addressed(**given: str | None) -> str:
    """The one graph that is named, by whichever argument."""
    named = [(_spelled(name), value) for name, value in given.items() if value is not None]
    if not named:
        ways = " or ".join(_spelled(name) for name in given)
        raise BadRequest("no graph addressed", remedy=f"name one with {ways}")
    if len(named) > 1:
        raise BadRequest(f"{' and '.join(name for name, _ in named)} are mutually exclusive")
    return named[0][1]


def _spelled(name: str) -> str:
    return "a URI" if name == "place" else f"--{name}"


def is_local(uri: str) -> bool:
    """Whether a graph is a folder on this machine."""
    from omnigraph.storage.location import Location

    return Location.parse(uri).is_local


def echo_write(command: str, uri: str, *, quiet: bool) -> None:
    """Say on standard error which graph a command changed."""
    if not quiet:
        print_note(f"omnigraph {command} → {uri} (direct, {'local' if is_local(uri) else 'remote'})")


def require_consent(what: str, uri: str, *, yes: bool, as_json: bool) -> None:
    """Removing something from a graph that is not a folder here needs a yes, given or typed."""
    if yes or is_local(uri):
        return
    if not as_json and sys.stdin is not None and sys.stdin.isatty():
        print_note(f"{what} in {uri}? Type yes to go on:")
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
    raise BadRequest(f"{what} in '{uri}' needs consent", remedy="pass --yes")
