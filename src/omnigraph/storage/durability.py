"""New files reach the disk completely: refuse files that Lance wrote only in part, and sync versions.

On a disk that is getting full Lance can lose the end of a file and report success. So in a folder every new
file is measured before a commit names it; a bucket stores an object completely or not at all.

Lance leaves it to the operating system when the files it writes reach the disk. With
`OMNIGRAPH_DURABILITY=fsync` every new version of a table is synced, with all files that came with it and
the folders they are named in, before anything relies on it. The version itself lists those files; their
times are never used.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from omnigraph import errors
from omnigraph.storage.failures import TableFailureKind, table_failure, wrap_os_errors
from omnigraph.storage.location import Location
from omnigraph.storage.version_files import data_file_name, hint_file, version_file

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
        for path in (*files, *_parent_folders(files, folder)):
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
        found |= {own / "data" / data_file_name(file) for file in facts.files if file.base_id is None}
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
    known = set() if before is None else _index_segments(before)
    for segment in sorted(_index_segments(after) - known):
        yield from _files_in(own / "_indices" / segment)


def _index_segments(native: Any) -> set[str]:
    return {str(segment.uuid) for index in native.describe_indices() for segment in index.segments}


def _files_in(folder: Path) -> Iterator[Path]:
    """The files in a folder; none when it is not there."""
    try:
        with os.scandir(folder) as entries:
            yield from sorted(Path(entry.path) for entry in entries if entry.is_file())
    except FileNotFoundError:
        return


def _parent_folders(files: Iterable[Path], table: Path) -> list[Path]:
    """Every folder on the way to the files, the innermost first, up to the one the table is named in."""
    found = {parent for path in files for parent in path.parents if parent.is_relative_to(table.parent)}
    return sorted(found, key=lambda path: (-len(path.parts), path))


_ARROW_END = b"ARROW1"
_NO_RUNS, _WITH_RUNS = 12_346, 12_347
"""How a Roaring bitmap begins; the second kind may hold runs."""
_OFFSETS_FROM = 4
"""A bitmap with runs lists the places of its containers from so many on."""
_LARGEST_ARRAY, _BITSET_BYTES = 4_096, 8_192


def require_complete_files(doing: str, location: Location, uri: str, change: Any) -> None:
    """Refuse a staged operation, or a rewrite, whose new files are shorter than Lance meant them to be."""
    if not location.is_local:
        return
    fragments = change.new_fragments if hasattr(change, "new_fragments") else change.fragments
    for file in (file for fragment in fragments for file in fragment.files):
        meant, stored = file.file_size_bytes, os.stat(f"{uri}/data/{data_file_name(file)}").st_size  # noqa: PTH116
        if meant is not None and stored != meant:
            reason = f"only {stored} of {meant} bytes of a data file were stored"
            raise table_failure(TableFailureKind.TRANSIENT, doing, uri, reason)


def require_complete_deletion_files(
    doing: str, location: Location, uri: str, change: Any, known: Mapping[int, Any]
) -> None:
    """Refuse a staged operation whose new files of deleted rows were cut off.

    `known` are the fragments before the change: what one of them names already is not read.
    """
    if not location.is_local:
        return
    for fragment in change.updated_fragments:
        file, before = fragment.deletion_file, known[fragment.id].deletion_file
        if file is None or file.base_id is not None or (before is not None and before.id == file.id):
            continue
        body = Path(uri, file.path(fragment.id)).read_bytes()
        if not (body.endswith(_ARROW_END) if file.file_type == "array" else is_complete_bitmap(body)):
            reason = f"only {len(body)} bytes of a file of deleted rows were stored"
            raise table_failure(TableFailureKind.TRANSIENT, doing, uri, reason)


def is_complete_bitmap(body: bytes) -> bool:
    """Whether a Roaring bitmap has all the bytes that its header and its containers ask for."""
    try:
        return _bitmap_size(body) == len(body)
    except struct.error:
        return False  # the header itself is cut off


def _bitmap_size(body: bytes) -> int:
    at: int
    (cookie,) = struct.unpack_from("<I", body)
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = body[4 : 4 + (count + 7) // 8]
        at = 4 + (count + 7) // 8
        has_offsets = count >= _OFFSETS_FROM
    elif cookie == _NO_RUNS:
        (count,) = struct.unpack_from("<I", body, 4)
        flags, at, has_offsets = bytes((count + 7) // 8), 8, True
    else:
        return -1
    cardinalities: list[int] = [one + 1 for one in struct.unpack_from(f"<{2 * count}H", body, at)[1::2]]
    at += 4 * count + (4 * count if has_offsets else 0)
    for number, cardinality in enumerate(cardinalities):
        if flags[number // 8] >> number % 8 & 1:
            (runs,) = struct.unpack_from("<H", body, at)
            at += 2 + 4 * runs
        else:
            at += 2 * cardinality if cardinality <= _LARGEST_ARRAY else _BITSET_BYTES
    return at
