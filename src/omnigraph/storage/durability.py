"""Sync table versions to disk, so that they survive a loss of power, for graphs in folders.

Lance leaves it to the operating system when the files it writes reach the disk. With
`OMNIGRAPH_DURABILITY=fsync` every new version of a table is synced, with all files that came with it and
the folders they are named in, before anything relies on it. The version itself lists those files; their
times are never used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from omnigraph import errors
from omnigraph.storage.failures import wrap_os_errors
from omnigraph.storage.location import Location
from omnigraph.storage.version_files import hint_file, version_file

SETTING = "OMNIGRAPH_DURABILITY"
_CHOICES = ("none", "fsync")

Sync = Callable[[Path], None]
"""Returns when a file, or the names in a folder, are on disk."""


def sync_path(path: Path) -> None:
    """Have the operating system write a file or a folder to the disk, and wait for it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def configured_sync(location: Location, environment: Mapping[str, str] | None = None) -> Sync | None:
    """Return how a graph at this location is synced; None when that is left to the system or the bucket."""
    chosen = (os.environ if environment is None else environment).get(SETTING, "").strip().lower() or "none"
    if chosen not in _CHOICES:
        raise errors.BadRequest(
            f"{SETTING} must be one of {', '.join(_CHOICES)}, not '{chosen}'",
            remedy=f"correct or unset {SETTING}",
        )
    return sync_path if chosen == "fsync" and location.is_local else None


def sync_version(sync: Sync, folder: Path, branch: str | None, after: Any, before: Any | None) -> None:
    """Sync the files that are new in a version of a table; all of its files when there is no `before`.

    `folder` is that of the table, `branch` the fork the versions are on, `after` and `before` are Lance's
    handles. What a fork reads from the table it was made from is not its own.
    """
    own = folder if branch is None else folder / "tree" / branch
    with wrap_os_errors("sync", str(own)):
        files = [
            *_new_data_files(own, after, before),
            *_version_descriptions(own, after, before),
            *new_index_files(own, after, before),
        ]
        if branch is not None:
            files.append(folder / "_refs" / "branches" / f"{quote(branch, safe='')}.json")
        # Files before folders: a synced name is useless without its file.
        for path in (*files, *_folders(files, folder)):
            sync(path)


def _new_data_files(own: Path, after: Any, before: Any | None) -> Iterator[Path]:
    new = _referenced_files(own, after) - (set() if before is None else _referenced_files(own, before))
    for path in sorted(new):
        yield path
        yield from _files_in(path.with_suffix(""))  # where Lance keeps the large values of a data file


def _referenced_files(own: Path, native: Any) -> set[Path]:
    """The data and deletion files that a version names, as far as they are its own."""
    found = set()
    for fragment in native.get_fragments():
        facts = fragment.metadata
        found |= {own / "data" / file.path for file in facts.files if file.base_id is None}
        deleted = facts.deletion_file
        if deleted is not None and deleted.base_id is None:
            found.add(own / deleted.path(facts.id))
    return found


def _version_descriptions(own: Path, after: Any, before: Any | None) -> Iterator[Path]:
    """The files in which Lance describes the versions, and the transactions that made them."""
    last = int(after.version)
    first = last if before is None else int(before.version) + 1
    named = [own / version_file(version) for version in range(first, last + 1)]
    yield from (path for path in (*named, own / hint_file()) if path.exists())
    for path in _files_in(own / "_transactions"):
        based_on = path.name.partition("-")[0]
        if based_on.isdecimal() and first - 1 <= int(based_on) <= last:
            yield path


def new_index_files(own: Path, after: Any, before: Any | None) -> Iterator[Path]:
    """Return the files of index segments of a version that the one before had not."""
    if not (own / "_indices").exists():
        return
    known = set() if before is None else _segments(before)
    for segment in sorted(_segments(after) - known):
        yield from _files_in(own / "_indices" / segment)


def _segments(native: Any) -> set[str]:
    return {str(segment.uuid) for index in native.describe_indices() for segment in index.segments}


def _files_in(folder: Path) -> Iterator[Path]:
    """The files in a folder; none when it is not there."""
    try:
        with os.scandir(folder) as entries:
            yield from sorted(Path(entry.path) for entry in entries if entry.is_file())
    except FileNotFoundError:
        return


def _folders(files: Iterable[Path], table: Path) -> list[Path]:
    """Every folder on the way to the files, the innermost first, up to the one the table is named in."""
    found = {parent for path in files for parent in path.parents if parent.is_relative_to(table.parent)}
    return sorted(found, key=lambda path: (-len(path.parts), path))
