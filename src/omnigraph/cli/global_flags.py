"""The flags that every command takes, before or after its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import wraps
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from omnigraph import __version__
from omnigraph.cli.capabilities import reject_unused_flags, shown_flags
from omnigraph.cli.conversion import convert_plain_values
from omnigraph.cli.graph_argument import accept_leading_graph
from omnigraph.cli.invocation import current_invocation
from omnigraph.cli.output import print_text
from omnigraph.cli.progress import show_progress


def _print_version(wanted: bool) -> None:
    if wanted:
        print_text(f"omnigraph {__version__}")
        raise typer.Exit


def _record_flag(param: typer.CallbackParam, value: Any) -> None:
    """Record a flag, wherever it stands; the last one wins."""
    if value is not None and value is not False:
        current_invocation().flags[param.opts[0]] = value


def _make_flag(name: str, help: str, **settings: Any) -> Any:
    return typer.Option(name, help=help, callback=_record_flag, expose_value=False, **settings)


Store = Annotated[
    str | None, _make_flag("--store", "The graph: a folder or s3://bucket/prefix.", metavar="URI")
]
ProfileName = Annotated[
    str | None, _make_flag("--profile", "The graph of a profile in the config file.", metavar="NAME")
]
As = Annotated[str | None, _make_flag("--as", "Who does this, for the history.", metavar="ACTOR")]
Yes = Annotated[bool, _make_flag("--yes", "Do not ask before something is removed for good.")]
Quiet = Annotated[bool, _make_flag("--quiet", "Say neither which graph was changed nor how far it is.")]
Debug = Annotated[bool, _make_flag("--debug", "Show the whole stack of a failure, of Spark's side as well.")]
Version = Annotated[
    bool,
    typer.Option(
        "--version",
        "-v",
        callback=_print_version,
        is_eager=True,
        expose_value=False,
        help="Print the version.",
    ),
]
Server = Annotated[
    str | None, _make_flag("--server", "A server: a name in the config file, or a URL.", metavar="NAME|URL")
]
GraphId = Annotated[str | None, _make_flag("--graph", "The graph of the server or cluster.", metavar="ID")]
Cluster = Annotated[
    str | None,
    _make_flag(
        "--cluster", "A cluster: a name in the config file, a directory, or a URI.", metavar="DIR|URI"
    ),
]


def add_global_flags(flags: Sequence[Any], command: Any, name: str) -> None:
    """Give a command, or each one of a group, the global flags, and check them before it runs."""
    convert_plain_values(command)
    if isinstance(command, TyperGroup):
        alone = command.callback if command.invoke_without_command else None
        command.params += _add_missing(flags, command, frozenset() if alone is None else shown_flags(name))
        if alone is not None:
            command.callback = _check_before(alone, name)
        for below, child in command.commands.items():
            add_global_flags(flags, child, f"{name} {below}")
        return
    command.params += _add_missing(flags, command, shown_flags(name))
    command.callback = _check_before(command.callback, name)
    if "--store" in shown_flags(name):
        accept_leading_graph(command)


def _add_missing(flags: Sequence[Any], command: Any, shown: frozenset[str]) -> list[Any]:
    """The flags that a command does not have itself; its help shows those that make a difference to it."""
    own = {spelling for param in command.params for spelling in param.opts}
    added = []
    for flag in flags:
        spellings = [spelling for spelling in flag.opts if spelling not in own]
        if spellings:
            one = copy(flag)
            one.opts, one.hidden = spellings, spellings[0] not in shown
            # A command may call something else by that name: `--version` of a query is one of the graph.
            one.name = f"global_{flag.name}"
            added.append(one)
    return added


def _check_before(run: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(run)
    def checked(**arguments: Any) -> Any:
        invocation = current_invocation()
        invocation.command = name
        reject_unused_flags(invocation)
        with show_progress(as_json=bool(arguments.get("as_json"))):
            return run(**arguments)

    return checked
