"""Kills a run in each folder of a folder, and returns the processes that died."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def kill_runs(folder: Path) -> dict[str, int]:
    """The process that was killed in each folder, by the name of the folder."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.pipeline.declared.dying", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    found = {}
    for line in done.stdout.splitlines():
        name, pid, status = line.split()
        assert int(status) == -signal.SIGKILL, (name, done.stderr)
        found[name] = int(pid)
    return found
