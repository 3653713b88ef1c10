r"""The commands of `omnigraph shell`, which begin with a backslash: \d, \b, \at and others."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from omnigraph.cli.options import loose_value
from omnigraph.cli.output import print_note
from omnigraph.cli.result_output import Format
from omnigraph.cli.shell_session import Session
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.files.source_files import read_source
from omnigraph.errors import BadRequest, BranchNotFound, OmnigraphError
from omnigraph.lang.assist.type_text import describe_type
from omnigraph.lang.assist.variables import find_type

QUIT = r"\q"
MOST_COMMITS = 20
MOST_CHANGES = 50


@dataclass(frozen=True, slots=True)
class Command:
    """A command: how it is written, what it does, and who does it."""

    usage: str
    help: str
    run: Callable[[Session, list[str]], None]
    most: int = 1
    """How many arguments it takes."""


def run_input(session: Session, text: str) -> bool:
    """Run a command or queries; return whether the session goes on."""
    written = text.strip()
    if written.startswith("\\"):
        return _run_command(session, written)
    if written.strip(";"):
        session.run_queries(written)
    return True


def _run_command(session: Session, text: str) -> bool:
    try:
        name, *arguments = shlex.split(text[1:].replace("\\", "\\\\")) or [""]
    except ValueError as error:
        raise BadRequest(f"the command cannot be read: {error}", remedy="close the quotes") from None
    if name in ("q", "quit"):
        return False
    found = COMMANDS.get(name)
    if found is None:
        raise BadRequest(f"there is no command \\{name}", remedy=r"\? lists them")
    if len(arguments) > found.most:
        raise BadRequest(f"\\{name} takes fewer arguments", remedy=f"write {found.usage}")
    found.run(session, arguments)
    return True


def _help(session: Session, _: list[str]) -> None:
    width = max(len(one.usage) for one in COMMANDS.values())
    lines = [f"{one.usage:{width}}  {one.help}" for one in COMMANDS.values()]
    session.page("\n".join([*lines, f"{QUIT:{width}}  end the session", "", *NOTES]))


NOTES = (
    "A query ends with its last brace; `match ... return ...;` and `insert ...;` without a name end with `;`",
    "or an empty line. Tab completes, the arrows go through the history.",
)


def _describe(session: Session, arguments: list[str]) -> None:
    pinned = session.graph.at(**session.where()) if session.moment else session.graph.snapshot(session.branch)
    if arguments:
        owner = find_type(session.graph.schema, arguments[0])
        if owner is None:
            raise BadRequest(f"there is no type {arguments[0]}", remedy=r"\d lists them")
        session.page(describe_type(owner))
        return
    rows = {key: table.rows or 0 for key, table in pinned.tables.items()}
    nodes = [f"node {name}  {rows.get(f'node:{name}', 0):,}" for name in session.graph.schema.nodes]
    edges = [
        f"edge {edge.name}: {edge.source} -> {edge.target}  {rows.get(f'edge:{edge.name}', 0):,}"
        for edge in session.graph.schema.edges.values()
    ]
    session.page("\n".join([*nodes, *edges]))


def _branch(session: Session, arguments: list[str]) -> None:
    names = session.graph.branches.list()
    if not arguments:
        session.page("\n".join(f"{'*' if name == session.branch else ' '} {name}" for name in sorted(names)))
        return
    if arguments[0] not in names:
        raise BranchNotFound(arguments[0])
    session.branch, session.moment = arguments[0], {}


def _log(session: Session, _: list[str]) -> None:
    found = islice(iter(session.graph.commits.list(session.branch)), MOST_COMMITS)
    session.page("\n".join(f"{one.id}  {one.time:%Y-%m-%d %H:%M:%S}  {one.actor or '-'}" for one in found))


def _at(session: Session, arguments: list[str]) -> None:
    if not arguments:
        session.moment = {}
        return
    kind = "time" if arguments[0][:4].isdigit() and "-" in arguments[0] else "commit"
    before, session.moment = session.moment, {kind: arguments[0]}
    try:
        session.graph.at(**session.where())
    except OmnigraphError:
        session.moment = before
        raise


def _diff(session: Session, arguments: list[str]) -> None:
    start, end = [*arguments, *(["main", session.branch][len(arguments) :])]
    changes = iter(session.graph.diff(start, end, engine="local"))
    shown = [f"{one.op.value} {one.type_name} {one.id}" for one in islice(changes, MOST_CHANGES)]
    more = next(changes, None) is not None
    session.page("\n".join([*shown, *(["..."] if more else [])] or ["no differences"]))


def _set(session: Session, arguments: list[str]) -> None:
    if not arguments:
        session.page("\n".join(_parameters(session)) or "no parameters are set")
        return
    name = arguments[0].removeprefix("$")
    if len(arguments) == 1:
        session.params.pop(name, None)
    else:
        session.params[name] = loose_value(arguments[1])


def _parameters(session: Session) -> Iterator[str]:
    yield from (f"${name} = {value!r}" for name, value in session.params.items())


def _format(session: Session, arguments: list[str]) -> None:
    if arguments:
        known = [one.value for one in Format if one is not Format.ARROW]
        if arguments[0] not in known:
            raise BadRequest(
                f"there is no format {arguments[0]}", remedy=f"choose one of: {', '.join(known)}"
            )
        session.format = Format(arguments[0])
    print_note(f"Results are shown as {session.format.value}.")


def _expand(session: Session, _: list[str]) -> None:
    session.format = Format.TABLE if session.format is Format.KV else Format.KV
    print_note(f"Results are shown as {session.format.value}.")


def _timing(session: Session, _: list[str]) -> None:
    session.timing = not session.timing
    print_note(f"Timing is {'on' if session.timing else 'off'}.")


def _explain(session: Session, _: list[str]) -> None:
    session.explains = not session.explains
    print_note(f"Queries are {'explained' if session.explains else 'run and shown'}.")


def _include(session: Session, arguments: list[str]) -> None:
    if not arguments:
        raise BadRequest("no file is named", remedy=r"write \i FILE")
    session.run_queries(read_source(Path(arguments[0])).text)


def _schema(session: Session, _: list[str]) -> None:
    session.page(session.graph.schema_source)


COMMANDS = {
    "?": Command(r"\?", "show this list", _help, 0),
    "d": Command(r"\d [TYPE]", "list the types, or describe one", _describe),
    "schema": Command(r"\schema", "show the schema as it is written", _schema, 0),
    "b": Command(r"\b [BRANCH]", "list the branches, or go to one", _branch),
    "log": Command(r"\log", f"show the last {MOST_COMMITS} commits of the branch", _log, 0),
    "at": Command(r"\at [COMMIT|TIME]", "look at the past, or come back", _at),
    "diff": Command(
        r"\diff [FROM [TO]]", "show what differs, between main and the branch if not said", _diff, 2
    ),
    "set": Command(r"\set [NAME [VALUE]]", "list the parameters, remove one, or set one", _set, 2),
    "format": Command(r"\format [FORMAT]", "choose table, kv, csv, json or ndjson", _format),
    "x": Command(r"\x", "show a line for each value, or tables again", _expand, 0),
    "timing": Command(r"\timing", "show how long queries take, or stop that", _timing, 0),
    "explain": Command(r"\explain", "show the steps of queries instead of rows, or stop that", _explain, 0),
    "i": Command(r"\i FILE", "run the queries of a file", _include),
}
