"""Which files a load reads: in the order given, folders and patterns by path."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path

from omnigraph.errors import BadRequest

ENDINGS = (".jsonl", ".ndjson")
"""What the files of a folder must end with to be read."""

Named = str | os.PathLike[str]


def files_of(named: Named | Iterable[Named]) -> tuple[Path, ...]:
    """The files behind one or several paths, folders and patterns such as `data/*.jsonl`."""
    names = [named] if isinstance(named, str | os.PathLike) else list(named)
    if not names:
        raise BadRequest("a load needs at least one file")
    return tuple(path for name in names for path in _expanded(os.fspath(name)))


def _expanded(name: str) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        found = [at for at in path.rglob("*") if at.suffix in ENDINGS and at.is_file()]
        return _some(sorted(found), f"folder '{name}' has no files that end with {' or '.join(ENDINGS)}")
    if path.exists() or not glob.has_magic(name):
        return [path]
    matched = [Path(at) for at in glob.glob(name, recursive=True)]  # noqa: PTH207 - a pattern may be absolute
    return _some(sorted(at for at in matched if at.is_file()), f"no file matches '{name}'")


def _some(found: list[Path], otherwise: str) -> list[Path]:
    if not found:
        raise BadRequest(otherwise, remedy="check the path")
    return found
