"""What a tool is: a name, a schema of its arguments, and the request that it stands for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from enum import Enum
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.server.mcp.exchange import Send, WireRequest

Arguments = Mapping[str, Any]
Schema = Mapping[str, Any]


class Effect(Enum):
    """What a call can do; clients ask their user accordingly."""

    READ = "read"
    ADD = "add"
    """It writes, and removes nothing that was there."""
    CHANGE = "change"
    REPEATABLE_CHANGE = "repeatable change"
    """A second call with the same arguments changes nothing more."""


@dataclass(frozen=True, slots=True)
class Context:
    """What tools of one connection share."""

    send: Send
    branch: str = MAIN
    """The branch that tools use when a call names none."""


@dataclass(frozen=True, slots=True)
class Text:
    """A result that is text for reading, and no JSON."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Something a model can call."""

    name: str
    description: str
    run: Callable[[Context, Arguments], Awaitable[bytes | Text]]
    """Returns JSON, or text."""
    action: str | None = None
    """The policy action that decides whether the tool is listed; None lists it always."""
    properties: Mapping[str, Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    effect: Effect = Effect.READ

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        return {
            "type": "object",
            "properties": dict(self.properties),
            "required": list(self.required),
            "additionalProperties": False,
        }


class WrongArguments(Exception):
    """A call whose arguments do not fit the schema of the tool."""


def check_arguments(tool: Tool, arguments: Arguments) -> None:
    """Raise `WrongArguments` unless the arguments fit."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    found = best_match(Draft202012Validator(tool.schema).iter_errors(dict(arguments)))
    if found is None:
        return
    where = ".".join(str(part) for part in found.absolute_path)
    message = found.message if len(found.message) <= _MOST_CHARACTERS else "the value does not fit"
    raise WrongArguments(f"argument '{where}': {message}" if where else message)


_MOST_CHARACTERS = 300
"""A message that quotes more than this of an argument is of no use."""


def send_one(
    build: Callable[[Context, Arguments], WireRequest],
) -> Callable[[Context, Arguments], Awaitable[bytes | Text]]:
    """Return how a tool runs that is one request."""

    async def run(context: Context, arguments: Arguments) -> bytes | Text:
        return await context.send(build(context, arguments))

    return run
