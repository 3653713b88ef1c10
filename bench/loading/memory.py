"""The most memory that a process and all it started held at one moment."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

_EVERY = 0.1
"""The seconds between two looks."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Peak:
    """Bytes in memory; what processes share counts for each of them."""

    total: int = 0
    java: int = 0
    """The part of Java, which takes what it is allowed to, whether it needs it or not."""
    python: int = 0
    """The part of the asking process and of its tasks."""
    _done: threading.Event = field(default_factory=threading.Event, repr=False)

    def look(self) -> Self:
        """Take the state of this moment into account."""
        java = python = 0
        for process in _family(os.getpid()):
            held = _resident_bytes(process)
            if _name(process) == "java":
                java += held
            else:
                python += held
        self.java, self.python = max(self.java, java), max(self.python, python)
        self.total = max(self.total, java + python)
        return self

    def watch(self) -> None:
        """Look until `stop` is called."""
        while not self._done.wait(_EVERY):
            self.look()

    def stop(self) -> None:
        self._done.set()

    def to_json(self) -> dict[str, int]:
        """As plain numbers."""
        return {"total": self.total, "java": self.java, "python": self.python}


@contextmanager
def watch_memory() -> Iterator[Peak]:
    """The memory of this process and its descendants during a block."""
    peak = Peak().look()
    thread = threading.Thread(target=peak.watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        peak.stop()
        thread.join()
        peak.look()


def _family(first: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            status = _read(entry / "stat")
            # The name, in brackets, may have spaces in it.
            fields = status.rpartition(")")[2].split()
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    family = [first]
    for process in family:
        family += children.get(process, [])
    return family


def _resident_bytes(process: int) -> int:
    fields = _read(Path(f"/proc/{process}/statm")).split()
    return int(fields[1]) * _PAGE if fields else 0


def _name(process: int) -> str:
    return _read(Path(f"/proc/{process}/comm")).strip()


def _read(path: Path) -> str:
    """What a file of a process says; nothing once it is gone."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
