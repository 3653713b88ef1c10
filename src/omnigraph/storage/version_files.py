"""The files in which Lance describes the versions of a table, and what their names prove without a listing.

A listing grows with the stored versions; checking for one file is always one request.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any

from omnigraph.deferred_dataclass import dataclass

FOLDER = "_versions"
_HINT = "latest_version_hint.json"
_U64 = (1 << 64) - 1
_DIGITS = len(str(_U64))
_FILE = re.compile(r"([0-9]+)\.manifest")
_NOT_THERE = (FileNotFoundError, NotADirectoryError)
_NOTE = re.compile(rb'\{"version":([0-9]+)\}')
_LONGEST_NOTE = 4096
_TICK = 2_500_000_000  # nanoseconds; no disk has a coarser clock

Mark = tuple[int, int, int, int]
"""What changes when a file is rewritten."""


@dataclass(frozen=True, slots=True)
class NewestVersion:
    """A version of a table in a folder that was surely the newest one when it was looked at."""

    version: int
    successor: str
    note: str
    mark: Mark
    """That of the note, in which there was nothing newer."""

    def holds(self) -> bool:
        """Whether it certainly still is the newest, by two file names; False when a listing must decide.

        A process that collects the successor has noted a version above it, so the note is checked last.
        """
        try:
            os.stat(self.successor)  # noqa: PTH116 - it is asked in every read
        except FileNotFoundError:
            pass
        except OSError:
            return False
        else:
            return False
        try:
            return _file_mark(os.stat(self.note)) == self.mark  # noqa: PTH116
        except OSError:
            return False


def data_file_name(file: Any) -> str:
    """Return the name of a data file in the folder of its table.

    Lance's own property defines a class each time it is asked, which takes a hundred times as long and leaves
    garbage in cycles; a test pins the attribute behind it.
    """
    name: str = file._path  # noqa: SLF001
    return name


def version_file(version: int) -> str:
    """The file of a version, relative to its table or fork; names count down, the newest is listed first."""
    return f"{FOLDER}/{_U64 - version:020d}.manifest"


def version_files(version: int) -> tuple[str, str]:
    """The same, and the file it has in tables of an older form."""
    return version_file(version), f"{FOLDER}/{version}.manifest"


def version_of(name: str) -> int | None:
    """The version that a file in the folder of versions describes; None for another file."""
    found = _FILE.fullmatch(name)
    if found is None:
        return None
    # Names of the newer form have all digits that a number can have, and count down.
    return _U64 - int(found[1]) if len(found[1]) == _DIGITS else int(found[1])


def hint_file() -> str:
    """Where Lance notes the newest version of a table in a folder; it is never above that, but may lag."""
    return f"{FOLDER}/{_HINT}"


def is_version_stored(table: str, version: int) -> bool:
    """Whether a version of a table in a folder is there, under its name or the one that old tables use."""
    return any(map(_file_exists, _version_names(table, version)))


def list_versions(table: str) -> list[int]:
    """All versions of a table in a folder, oldest first, by the names of their files; none if it is gone."""
    try:
        with os.scandir(f"{table}/{FOLDER}") as entries:
            found = [version_of(entry.name) for entry in entries]
    except _NOT_THERE:
        return []
    return sorted(version for version in found if version is not None)


def check_newest(table: str, version: int) -> tuple[bool, NewestVersion | None]:
    """Whether a version of a table in a folder is certainly the newest, and the evidence to check it again.

    False where a listing must decide. A note written just now may be rewritten within one tick of the disk's
    clock, and would look unchanged: then there is no evidence.
    """
    found = _observe_newest(table, version)
    if found is None:
        return False, None
    modified = found.mark[-1]
    return True, found if time.time_ns() - modified > _TICK else None


def _observe_newest(table: str, version: int) -> NewestVersion | None:
    """A version that is surely the newest.

    A missing successor alone proves nothing: it may have been collected. But then a version above it was
    made, and Lance notes each one before the call that made it returns. No older note overwrites it, because
    versions are made under the lock of the branch; and a process that collects old versions of a manifest has
    just made a new one. So the successor is looked for first, and the note is read after it.
    """
    # Versions of one table have names of one form.
    pairs = zip(_version_names(table, version), _version_names(table, version + 1), strict=True)
    successor = next((after for name, after in pairs if _file_exists(name)), None)
    if successor is None or _file_exists(successor):
        return None
    note = f"{table}/{hint_file()}"
    found = _read_hint(note)
    if found is None or found[0] > version:
        return None
    return NewestVersion(version, successor, note, found[1])


def _version_names(table: str, version: int) -> tuple[str, str]:
    new, old = version_files(version)
    return f"{table}/{new}", f"{table}/{old}"


def _file_exists(file: str) -> bool:
    # Not `Path.exists`, which takes a failing disk for an absent file.
    try:
        os.stat(file)  # noqa: PTH116 - half the time, and it is asked in every write
    except _NOT_THERE:
        return False
    return True


def _read_hint(note: str) -> tuple[int, Mark] | None:
    """The version in Lance's note and the mark it has; None when there is none that can be understood."""
    try:
        # Not `open`, which asks for much that is not needed here.
        descriptor = os.open(note, os.O_RDONLY | os.O_CLOEXEC)
    except _NOT_THERE:
        return None
    try:
        # Before it is read: a note that is written meanwhile has another mark.
        mark, text = _file_mark(os.fstat(descriptor)), os.read(descriptor, _LONGEST_NOTE)
    finally:
        os.close(descriptor)
    plain = _NOTE.fullmatch(text)
    try:
        return int(plain[1] if plain else json.loads(text)["version"]), mark
    except (ValueError, TypeError, KeyError):
        return None


def _file_mark(found: os.stat_result) -> Mark:
    return found.st_ino, found.st_size, found.st_ctime_ns, found.st_mtime_ns
