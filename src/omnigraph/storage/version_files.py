"""The files in which Lance describes the versions of a table, and what their names tell without a listing.

A listing grows with the versions that are kept; whether one file is there is always one question.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass

FOLDER = "_versions"
_HINT = "latest_version_hint.json"
_U64 = (1 << 64) - 1
_DIGITS = len(str(_U64))
_FILE = re.compile(r"([0-9]+)\.manifest")
_NOT_THERE = (FileNotFoundError, NotADirectoryError)
_NOTE = re.compile(rb'\{"version":([0-9]+)\}')
_LONGEST_NOTE = 4096
_TICK = 2_500_000_000  # nanoseconds; no disk tells times apart more coarsely

Mark = tuple[int, int, int, int]
"""What changes when a file is written anew."""


@dataclass(frozen=True, slots=True)
class Newest:
    """A version of a table in a folder that was surely the newest one when it was looked at."""

    version: int
    successor: str
    note: str
    mark: Mark
    """That of the note, in which there was nothing newer."""

    def holds(self) -> bool:
        """Whether it surely still is, told by the names of two files; False where more has to be looked at.

        Whoever collects the successor has noted a version above it, so the note is looked at last.
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
            return _mark(os.stat(self.note)) == self.mark  # noqa: PTH116
        except OSError:
            return False


def version_file(version: int) -> str:
    """The file of a version, relative to its table or fork; names count down, the newest is listed first."""
    return f"{FOLDER}/{_U64 - version:020d}.manifest"


def version_files(version: int) -> tuple[str, str]:
    """The same, and the file it has in tables of an older form."""
    return version_file(version), f"{FOLDER}/{version}.manifest"


def hint_file() -> str:
    """Where Lance notes the newest version of a table in a folder; it is never above that, but may lag."""
    return f"{FOLDER}/{_HINT}"


def is_stored(table: str, version: int) -> bool:
    """Whether a version of a table in a folder is there, under its name or the one that old tables use."""
    return any(map(_is_there, _names(table, version)))


def stored_versions(table: str) -> list[int]:
    """All versions of a table in a folder, oldest first, by the names of their files; none if it is gone."""
    try:
        with os.scandir(f"{table}/{FOLDER}") as entries:
            names = [found[1] for entry in entries if (found := _FILE.fullmatch(entry.name))]
    except _NOT_THERE:
        return []
    # Names of the newer form have all digits that a number can have, and count down.
    return sorted(_U64 - int(name) if len(name) == _DIGITS else int(name) for name in names)


def newest(table: str, version: int) -> tuple[bool, Newest | None]:
    """Whether a version of a table in a folder is surely the newest, and what tells soon that it still is.

    False where a listing has to tell. A note that was written a moment ago may be written again before the
    clock of the disk moves on, and would look as if it had not changed: then there is nothing to tell by.
    """
    found = _looked_at(table, version)
    if found is None:
        return False, None
    modified = found.mark[-1]
    return True, found if time.time_ns() - modified > _TICK else None


def _looked_at(table: str, version: int) -> Newest | None:
    """A version that is surely the newest.

    A missing successor alone proves nothing: it may have been collected. But then a version above it was
    made, and Lance notes each one before the call that made it returns. Nobody puts an older note over
    it, because versions are made under the lock of the branch; and whoever collects old versions of a
    manifest has just made a new one. So the successor is looked for first, and the note is read after it.
    """
    # Versions of one table have names of one form.
    pairs = zip(_names(table, version), _names(table, version + 1), strict=True)
    successor = next((after for name, after in pairs if _is_there(name)), None)
    if successor is None or _is_there(successor):
        return None
    note = f"{table}/{hint_file()}"
    found = _noted(note)
    if found is None or found[0] > version:
        return None
    return Newest(version, successor, note, found[1])


def _names(table: str, version: int) -> tuple[str, str]:
    new, old = version_files(version)
    return f"{table}/{new}", f"{table}/{old}"


def _is_there(file: str) -> bool:
    # Not `Path.exists`, which takes a failing disk for an absent file.
    try:
        os.stat(file)  # noqa: PTH116 - half the time, and it is asked in every write
    except _NOT_THERE:
        return False
    return True


def _noted(note: str) -> tuple[int, Mark] | None:
    """The version in Lance's note and the mark it has; None when there is none that can be understood."""
    try:
        # Not `open`, which asks for much that is not needed here.
        descriptor = os.open(note, os.O_RDONLY | os.O_CLOEXEC)
    except _NOT_THERE:
        return None
    try:
        # Before it is read: a note that is written meanwhile has another mark.
        mark, text = _mark(os.fstat(descriptor)), os.read(descriptor, _LONGEST_NOTE)
    finally:
        os.close(descriptor)
    plain = _NOTE.fullmatch(text)
    try:
        return int(plain[1] if plain else json.loads(text)["version"]), mark
    except (ValueError, TypeError, KeyError):
        return None


def _mark(found: os.stat_result) -> Mark:
    return found.st_ino, found.st_size, found.st_ctime_ns, found.st_mtime_ns
