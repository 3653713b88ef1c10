"""Typer apps of one look, and a command group that imports a command only when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer import core
from typer.main import get_command

from omnigraph.cli.commands import COMMANDS, Command, Plane
from omnigraph.cli.conversion import convert_plain_values
from omnigraph.cli.global_flags import add_global_flags
from omnigraph.cli.sigint import raise_on_interrupt

_WHOLE = 1000
"""Longer than any sentence."""


def new_app(**settings: Any) -> typer.Typer:
    """A Typer app with plain help, so that asking for help does not import rich."""
    return typer.Typer(
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **{"cls": Group, **settings},
    )


class Group(core.TyperGroup):
    """A group whose help says of each command the whole first sentence, over several lines if need be."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, one.get_short_help_str(_WHOLE)) for name, one in found if one and not one.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class LazyGroup(core.TyperGroup):
    """The top group: names and help come from a table, the commands themselves on demand.

    Its own options are global: every command gets them as well.
    """

    table: Mapping[str, Command] = COMMANDS

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        convert_plain_values(self)
        # Typer reads only the keys of this (to suggest a name after a typo); get_command loads the values.
        names: Any = dict.fromkeys(self.table)
        self.commands = names

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command = get_command(getattr(import_module(module), attribute))
        raise_on_interrupt()
        command.name = cmd_name
        add_global_flags(self.params, command, cmd_name)
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for plane in Plane:
            rows = [(name, entry.help) for name, entry in self.table.items() if entry.plane is plane]
            if rows:
                with formatter.section(f"{plane} commands"):
                    formatter.write_dl(rows)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        item: Any = vars(core)["CompletionItem"]
        named = [item(name, help=it.help) for name, it in self.table.items() if name.startswith(incomplete)]
        # Past Typer's own way for groups, which imports every command to ask for its help.
        return [*named, *super(core.TyperGroup, self).shell_complete(ctx, incomplete)]
