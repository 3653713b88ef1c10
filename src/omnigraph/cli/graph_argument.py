"""A graph in front of the arguments of a command: `omnigraph diff social.omni main draft`.

Commands whose arguments are something else, such as the name of a query, take a graph before them, so that it
can be named in the same way everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import typer

from omnigraph.cli.invocation import current_invocation

_USAGE = "[URI]"
_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]
"""What the parser of Typer raises; Typer itself does not export it."""


def accept_leading_graph(command: Any) -> None:
    """Let a command take a graph before its own arguments; those that declare one are left alone."""
    declared = [param for param in command.params if param.param_type_name == "argument"]
    if any(param.name in ("place", "uri") for param in declared) or any(one.nargs == -1 for one in declared):
        return
    parse, pieces = command.parse_args, command.collect_usage_pieces

    def parse_args(ctx: Any, args: list[str]) -> Any:
        found = find_leading_graph(_find_positionals(command, ctx, args), declared)
        if found is not None and not ctx.resilient_parsing:
            current_invocation().place = found
            args = _remove_positional(command, ctx, args, found)
        return parse(ctx, args)

    command.parse_args = parse_args
    command.collect_usage_pieces = lambda ctx: _insert_graph(pieces(ctx))


def find_leading_graph(given: Sequence[str], declared: Sequence[Any]) -> str | None:
    """Return the argument that names the graph: the first of one too many, or one that is an address."""
    if len(given) == len(declared) + 1:
        return given[0]
    if len(given) == 1 and len(declared) == 1 and not declared[0].required:
        return given[0] if is_address(given[0]) else None
    return None


def is_address(text: str) -> bool:
    """Whether a text is the place of a graph, and neither the name of a query nor a statement."""
    return any(sign in text for sign in "/.:\\") and not any(one.isspace() for one in text)


class _OptionsAlone:
    """A command as if it had no arguments, for the parser: what it leaves over are those it was given."""

    def __init__(self, command: Any) -> None:
        self._command = command

    def get_params(self, ctx: Any) -> list[Any]:
        return [one for one in self._command.get_params(ctx) if one.param_type_name != "argument"]


def _find_positionals(command: Any, ctx: Any, args: Sequence[str]) -> list[str]:
    """Return the arguments among words and options; none where the options cannot be parsed."""
    try:
        parser = type(command).make_parser(_OptionsAlone(command), ctx)
        _, left, _ = parser.parse_args(args=list(args))
    except _USAGE_ERROR:
        return []  # the command itself reports it
    return list(left)


def _remove_positional(command: Any, ctx: Any, args: list[str], graph: str) -> list[str]:
    """Return the words without the graph, which may also be the value of an option."""
    positionals = partial(_find_positionals, command, ctx)
    rest = positionals(args)[1:]
    without = (args[:at] + args[at + 1 :] for at, word in enumerate(args) if word == graph)
    return next(found for found in without if positionals(found) == rest)


def _insert_graph(pieces: list[str]) -> list[str]:
    return [*pieces[:1], _USAGE, *pieces[1:]]
