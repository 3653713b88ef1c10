"""Starts detached processes, and recognises them later."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

_PROC = Path("/proc")


def start_detached(command: Sequence[str], *, log: Path | None) -> None:
    """Start a process without a terminal and without a parent that would have to wait for it."""
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

    Process ids are reused, so an id alone proves nothing. The identity is long and random.
    """
    return pid > 0 and len(identity) >= 16 and identity in _command_line(pid)


def _command_line(pid: int) -> str:
    if _PROC.is_dir():
        try:
            return (_PROC / str(pid) / "cmdline").read_bytes().decode("utf-8", errors="replace")
        except OSError:
            return ""
    listed = subprocess.run(
        ["ps", "-ww", "-p", str(pid), "-o", "command="], capture_output=True, text=True, check=False
    )
    return listed.stdout
