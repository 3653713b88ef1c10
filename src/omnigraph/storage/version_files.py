"""The files in which Lance describes the versions of a table, and what their names tell without a listing.

A listing grows with the versions that are kept; whether one file is there is always one question.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

FOLDER = "_versions"
_HINT = "latest_version_hint.json"
_U64 = (1 << 64) - 1
_NOT_THERE = (FileNotFoundError, NotADirectoryError)


def version_file(version: int) -> str:
    """The file of a version, relative to its table or fork; names count down, the newest is listed first."""
    return f"{FOLDER}/{_U64 - version:020d}.manifest"


def hint_file() -> str:
    """Where Lance notes the newest version of a table in a folder; it is never above that, but may lag."""
    return f"{FOLDER}/{_HINT}"


def is_stored(table: Path, version: int) -> bool:
    """Whether a version of a table in a folder is there, under its name or the one that old tables use."""
    return _is_there(table / version_file(version)) or _is_there(table / FOLDER / f"{version}.manifest")


def is_last(table: Path, version: int) -> bool:
    """Whether a version of a table in a folder is surely the newest one; False where a listing has to tell.

    A missing successor alone proves nothing: it may have been collected. But then a version above it was
    made, and Lance notes each one before the call that made it returns. Nobody puts an older note over
    it, because versions are made under the lock of the branch; and whoever collects old versions of a
    manifest has just made a new one. So the successor is looked for first, and the note is read after it.
    """
    if is_stored(table, version + 1) or not is_stored(table, version):
        return False
    noted = _noted(table)
    return noted is not None and noted <= version


def _is_there(file: Path) -> bool:
    # Not `Path.exists`, which takes a failing disk for an absent file.
    try:
        os.stat(file)  # noqa: PTH116 - half the time, and it is asked in every write
    except _NOT_THERE:
        return False
    return True


def _noted(table: Path) -> int | None:
    """The version in Lance's note; None when there is none that can be understood."""
    try:
        found = json.loads((table / hint_file()).read_bytes())
        return int(found["version"])
    except (*_NOT_THERE, ValueError, TypeError, KeyError):
        return None
