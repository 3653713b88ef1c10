"""Kills a run in each folder of a folder, and returns the processes that died."""

from __future__ import annotations

import signal
from pathlib import Path

from tests import python_process


def kill_runs(folder: Path) -> dict[str, int]:
    """The process that was killed in each folder, by the name of the folder."""
    done = python_process.run(
        "-m", "tests.pipeline.declared.dying", str(folder), cwd=Path(__file__).resolve().parents[3]
    )
    assert done.returncode == 0, done.stderr
    found = {}
    for line in done.stdout.splitlines():
        name, pid, status = line.split()
        assert int(status) == -signal.SIGKILL, (name, done.stderr)
        found[name] = int(pid)
    return found
