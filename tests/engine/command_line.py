"""The command line in this process, as a run of its own: flags of an earlier one do not reach it."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import NamedTuple

from omnigraph.cli.main import main


class Ran(NamedTuple):
    """A run that ended."""

    exit_code: int
    stdout: str


def run_command(*arguments: str) -> Ran:
    """Run a command; what it printed to standard output."""
    out = io.StringIO()
    with redirect_stdout(out):
        status = main(list(arguments))
    return Ran(status, out.getvalue())
