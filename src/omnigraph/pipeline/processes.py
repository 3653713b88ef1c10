"""Processes that outlive the one that starts them, and how to know them again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

_PROC = Path("/proc")


def start_detached(command: Sequence[str], *, log: Path | None) -> None:
    """Start a process that belongs to nobody: no terminal, no parent that would have to wait for it."""
    with (log or Path(os.devnull)).open("ab") as output:
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            check=True,
        )


def is_ours(pid: int, identity: str) -> bool:
    """Whether the process is alive and carries our identity in its command line.

    Numbers of processes are given out again, so a number alone says nothing. The identity is long and random.
    """
    return pid > 0 and len(identity) >= 16 and identity in _command_line(pid)


def _command_line(pid: int) -> str:
    if _PROC.is_dir():
        try:
            return (_PROC / str(pid) / "cmdline").read_bytes().decode("utf-8", errors="replace")
        except OSError:
            return ""
    told = subprocess.run(
        ["ps", "-ww", "-p", str(pid), "-o", "command="], capture_output=True, text=True, check=False
    )
    return told.stdout
