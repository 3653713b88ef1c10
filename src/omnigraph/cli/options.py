"""Options that several commands share: which branch, query, parameters and moment, and the output."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import typer

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import BadRequest

_NAME = re.compile("(?![0-9]{4}-)[A-Za-z0-9][A-Za-z0-9._/-]*")
"""Looks like a tag or a commit, and not like a time."""

OnBranch = Annotated[str, typer.Option("--branch", help="The branch.", metavar="BRANCH")]
EngineBySize = Annotated[
    Literal["auto", "local", "spark"],
    typer.Option("--engine", help="Where the work is done; by size, if not said."),
]
Message = Annotated[
    str | None, typer.Option("--message", "-m", help="What the commit says about itself.", metavar="TEXT")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


QueryName = Annotated[str | None, typer.Argument(help="The query, where there are several.", metavar="NAME")]
Named = Annotated[str | None, typer.Option("--name", help="The same as NAME.", metavar="NAME")]
QueryFile = Annotated[Path | None, typer.Option("--query", "-q", help="The query file.", metavar="FILE.gq")]
QueryText = Annotated[
    str | None, typer.Option("--query-string", "-e", help="The query itself.", metavar="TEXT")
]
Params = Annotated[
    str | None, typer.Option("--params", help="The parameters, a JSON object.", metavar="JSON")
]
ParamsFile = Annotated[
    Path | None, typer.Option("--params-file", help="A file with the parameters.", metavar="FILE")
]
Param = Annotated[
    list[str] | None,
    typer.Option(
        "--param", "-p", help="One parameter, as JSON or plain text; may be repeated.", metavar="NAME=VALUE"
    ),
]
Branch = Annotated[
    str | None, typer.Option("--branch", help="The branch, main if not given.", metavar="BRANCH")
]
Commit = Annotated[
    str | None, typer.Option("--commit", "--snapshot", help="As a commit or tag has it.", metavar="ID")
]
Version = Annotated[int | None, typer.Option("--version", help="The branch at this version.", metavar="N")]
Time = Annotated[
    str | None,
    typer.Option(
        "--at", "--time", help="The branch at a time, such as 2030-01-31T12:00:00Z, or a tag.", metavar="TIME"
    ),
]


class CommitOrTime(TypedDict):
    """The commit and the time of a read."""

    commit: str | None
    time: str | None


def resolve_time(commit: str | None, time: str | None) -> CommitOrTime:
    """Return the commit and time of a command; `--at` names a tag or commit where it is no time."""
    if time is not None and commit is None and _NAME.fullmatch(time):
        return {"commit": time, "time": None}
    return {"commit": commit, "time": time}


@dataclass(frozen=True, slots=True)
class QueryArguments:
    """One query of a file or text, and the values for its parameters."""

    source: Path | str
    name: str | None
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredQueryArguments:
    """A query that a server stores, and the values for its parameters."""

    name: str
    params: dict[str, Any]


def parse_stored_query(
    name: str | None,
    named: str | None,
    query: Path | None,
    text: str | None,
    params: str | None,
    params_file: Path | None,
    param: list[str] | None,
) -> StoredQueryArguments | None:
    """The stored query that is meant by a name alone; None when there is a text or a file."""
    meant = name if named is None else named
    if query is not None or text is not None or meant is None:
        return None
    if name is not None and named is not None:
        raise BadRequest("NAME and --name are mutually exclusive")
    return StoredQueryArguments(
        meant, {**params_of(params, params_file), **dict(map(parse_param, param or ()))}
    )


def parse_query_arguments(
    name: str | None,
    named: str | None,
    query: Path | None,
    text: str | None,
    params: str | None,
    params_file: Path | None,
    param: list[str] | None,
) -> QueryArguments:
    """The query that is meant by the options, and its parameters."""
    if name is not None and named is not None:
        raise BadRequest("NAME and --name are mutually exclusive")
    values = {**params_of(params, params_file), **dict(map(parse_param, param or ()))}
    return QueryArguments(_choose_source(query, text), name if named is None else named, values)


def _choose_source(query: Path | None, text: str | None) -> Path | str:
    if query is not None and text is not None:
        raise BadRequest("--query and --query-string are mutually exclusive")
    if query is None and text is None:
        raise BadRequest("no query given", remedy="name a file with --query, or write one after -e")
    return query if query is not None else str(text)


def params_of(text: str | None, file: Path | None) -> dict[str, Any]:
    """The parameters of a JSON object, given as text or in a file."""
    if text is not None and file is not None:
        raise BadRequest("--params and --params-file are mutually exclusive")
    if file is not None:
        text = text_of(file)
    if text is None:
        return {}
    try:
        found = _parse_json(text)
    except (ValueError, RecursionError) as wrong:
        raise BadRequest(f"params are not JSON: {wrong}") from wrong
    if not isinstance(found, dict):
        raise BadRequest("params must be a JSON object", remedy='write it like --params \'{"name": "Ada"}\'')
    return found


def text_of(file: Path) -> str:
    """The text of a file that an option names."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        reason = failure.strerror if isinstance(failure, OSError) else "it is not UTF-8"
        raise BadRequest(f"cannot read '{file}': {reason}", remedy="check the path") from failure


def parse_param(given: str) -> tuple[str, Any]:
    """The name and the value of one parameter, from `NAME=VALUE`."""
    name, sign, value = given.partition("=")
    if not sign or not name:
        raise BadRequest(
            f"'{given}' is not of the form NAME=VALUE",
            remedy="write the name of the parameter: -p NAME=VALUE",
        )
    return name, loose_value(value)


def loose_value(text: str) -> Any:
    """A value as JSON; what is not JSON is a text, so that most texts need no quotes."""
    try:
        return _parse_json(text)
    except (ValueError, RecursionError):
        return text


def _parse_json(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(word: str) -> None:
    """Python would read `NaN` and `Infinity`; JSON has no such words."""
    raise ValueError(f"{word} is not a value")
