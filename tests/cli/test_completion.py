"""Shells complete commands and flags."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from omnigraph.cli.commands import COMMANDS

Run = Callable[..., str]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_a_script_is_printed_for_each_shell(shell: str, run: Run) -> None:
    script = run("completion", shell)
    assert "_OMNIGRAPH_COMPLETE" in script
    assert f"complete_{shell}" in script


LISTS_IMPORTS = """
import sys
from omnigraph.cli.main import main
main()
print(*sys.modules, file=sys.stderr)
"""


def answers(line: str) -> list[str]:
    """What bash is offered for the last word of a line."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "_OMNIGRAPH_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", LISTS_IMPORTS], capture_output=True, text=True, check=True, env=environment
    )
    if len(words) == 2:
        assert "omnigraph.cli.version" not in done.stderr.split()
    return done.stdout.split()


def test_commands_and_flags_are_offered() -> None:
    assert answers("omnigraph ") == list(COMMANDS)
    assert answers("omnigraph branch cr") == ["create"]
    assert {"--json", "--help"} <= set(answers("omnigraph version --"))
