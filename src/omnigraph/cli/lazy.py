"""Typer apps of one look, and a command group that imports a command only when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from omnigraph.cli.commands import COMMANDS, Command


def new_app(**settings: Any) -> typer.Typer:
    """A Typer app with plain help, so that asking for help does not import rich."""
    return typer.Typer(
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **settings,
    )


class LazyGroup(TyperGroup):
    """The top group: names and help come from a table, the commands themselves on demand."""

    table: Mapping[str, Command] = COMMANDS

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        # Typer reads only the keys of this (to suggest a name after a typo); get_command loads the values.
        names: Any = dict.fromkeys(self.table)
        self.commands = names

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command = get_command(getattr(import_module(module), attribute))
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.table.items()])
