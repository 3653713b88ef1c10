"""Commands whose messages go to a terminal."""

from __future__ import annotations

import os
import pty
from subprocess import CompletedProcess
from typing import Any

from tests import python_process


def seen_on_a_terminal(*arguments: str) -> tuple[CompletedProcess[Any], str]:
    """How a command ends, and what a person sees of it besides its output."""
    watched, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    try:
        done = python_process.run("-m", "omnigraph.cli.main", *arguments, stderr=terminal, env=environment)
    finally:
        os.close(terminal)
    shown = os.read(watched, 100_000).decode()
    os.close(watched)
    return done, shown
