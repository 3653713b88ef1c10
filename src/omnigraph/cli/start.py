"""The entry point of the `omnigraph` command: sets the handler of Ctrl-C before it imports anything large."""

from __future__ import annotations

from omnigraph.cli.sigint import exit_on_interrupt


def command() -> int:
    """Run the `omnigraph` command in this process, and return its exit code."""
    exit_on_interrupt()
    from omnigraph.cli.main import command as run

    return run()
