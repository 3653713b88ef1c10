"""`omnigraph shell`: queries and commands, one after the other, in a graph that stays open."""

from __future__ import annotations

import sys

from omnigraph.cli.addressing import Place, open_graph, resolve_actor, resolve_graph
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import Branch
from omnigraph.cli.shell_commands import run_input
from omnigraph.cli.shell_session import Session, is_complete
from omnigraph.errors import MissingExtra

app = new_app()


@app.command()
def shell(place: Place = None, branch: Branch = None) -> None:
    r"""Ask a graph question after question: history, completion, \d for types, \? for help.

    A query may span lines; `match ... return ...;` needs no name. Without a terminal the statements of
    standard input are run, and the first failure ends the command.
    """
    uri = resolve_graph(place=place)
    with open_graph(uri) as opened:
        session = Session(opened, uri, branch or "main", resolve_actor(uri))
        if sys.stdin.isatty():
            _talk(session)
        else:
            _run_script(session)


def _talk(session: Session) -> None:
    try:
        from omnigraph.cli.shell_prompt import talk
    except ModuleNotFoundError as missing:
        if missing.name != "prompt_toolkit":
            raise
        raise MissingExtra("omnigraph shell", package="prompt_toolkit", extra="shell") from missing
    talk(session)


def _run_script(session: Session) -> None:
    """Run what standard input has; a failure ends it, as in any other script."""
    lines: list[str] = []
    for line in sys.stdin:
        lines.append(line)
        text = "".join(lines)
        if is_complete(text):
            lines.clear()
            if not run_input(session, text):
                return
    run_input(session, "".join(lines))
