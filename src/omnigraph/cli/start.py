"""The entry point of the `omnigraph` command: does what it can before it imports anything large.

It sets the handler of Ctrl-C, and prints the top-level help, which `make docs` keeps in a file: composing the
help again would import Typer, which takes several times as long as everything else.
"""

from __future__ import annotations

import sys

from omnigraph.cli.sigint import exit_on_interrupt

HELP_FILE = "help.txt"
_HELP_WIDTH = 80
"""Typer wraps the help more narrowly in a terminal that has fewer columns."""


def command() -> int:
    """Run the `omnigraph` command in this process, and return its exit code."""
    exit_on_interrupt()
    if sys.argv[1:] in (["--help"], ["-h"]) and _print_help():
        return 0
    from omnigraph.cli.main import command as run

    return run()


def _print_help() -> bool:
    """Print the help from its file; return False if that is not possible, and Typer must compose it."""
    from pathlib import Path
    from shutil import get_terminal_size

    if sys.stdout is None or get_terminal_size().columns < _HELP_WIDTH:
        return False
    try:
        sys.stdout.write(Path(__file__).with_name(HELP_FILE).read_text(encoding="utf-8"))
        sys.stdout.flush()
    except OSError:  # the command meets a broken pipe or a full disk again, and reports it
        return False
    return True
