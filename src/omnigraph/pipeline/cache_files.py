"""The cache folder of the pipeline: launchers, start-up caches and the state of the warm server."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_SETTING = "OMNIGRAPH_CACHE_DIR"


def cache_folder() -> Path:
    """Return the cache folder of this user; created if missing, readable only by its owner."""
    chosen = os.environ.get(CACHE_SETTING, "").strip()
    shared = os.environ.get("XDG_CACHE_HOME", "").strip()
    folder = Path(chosen) if chosen else (Path(shared) if shared else Path.home() / ".cache") / "omnigraph"
    folder = folder.expanduser().absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def write_atomically(file: Path, text: str, *, mode: int = 0o600) -> None:
    """Write a small file atomically, so that no process ever reads half of one."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        os.fchmod(descriptor, mode)
        stream.write(text)
    beside.replace(file)
