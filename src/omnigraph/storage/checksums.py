"""Checksums of the files that make up tables in a folder, noted when the files are written.

Lance keeps none for the values it stores, so a flipped bit on a disk can change a value without an error. For
every new version of a table the CRC-32 of each file that came with it is appended to a log, one for each
table, below `__checksums`. Queries and writes never read a log: `omnigraph doctor --deep` does. Losing a log,
or a line of it, loses nothing but that comparison. In a bucket no log is kept: the store checks what it
stores, and a checksum of ours would have to read every object back.
"""

from __future__ import annotations

import logging
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lance import LanceOperation as Op

from omnigraph.deferred_dataclass import dataclass
from omnigraph.storage.durability import new_index_files
from omnigraph.storage.failures import LANCE_RAISES
from omnigraph.storage.version_files import data_file_name, version_file

FOLDER = "__checksums"
BLOCK_BYTES = 1 << 20
_MANY, _AT_ONCE = 8, 8
_TRANSACTION = re.compile(rb"\d+-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.txn\Z")
_ENDING, _LONGEST_NAME = b".txn", 64

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checksum:
    """What a file was when it was written."""

    crc: int
    size: int

    @classmethod
    def of(cls, content: bytes) -> Checksum:
        """The checksum of a file with this content."""
        return cls(zlib.crc32(content), len(content))


@dataclass(frozen=True, slots=True)
class VersionChange:
    """A new version of a table: where it is, and what is known of how it was made."""

    folder: Path
    """That of the table."""
    branch: str | None
    after: Any
    """Lance's handle of the version."""
    before: Any | None
    """Lance's handle of the version it was made on; None when all of it is new."""
    transaction: Any | None = None
    """Lance's transaction, where this process made it: then nothing has to be looked for."""
    is_first: bool = False
    """Whether this process made all of it, as the first version of a table or fork."""

    @property
    def has_only_new_files(self) -> bool:
        """Whether all its files were written just now; otherwise some may be old, and damaged by now."""
        return self.is_first or self.before is not None

    @property
    def own(self) -> Path:
        """The folder of the fork."""
        return self.folder if self.branch is None else self.folder / "tree" / self.branch

    def files(self) -> Iterator[Path]:
        """The files that came with the version."""
        last = int(self.after.version)
        first = last if self.before is None else int(self.before.version) + 1
        for version in range(first, last + 1):
            described = self.own / version_file(version)
            yield described
            yield from (self.own / "_transactions" / name for name in _find_transactions(described))
        if self.transaction is None:
            yield from _new_fragment_files(self.own, self.after, self.before)
            yield from new_index_files(self.own, self.after, self.before)
        else:
            yield from _operation_files(self.own, self.transaction.operation, self.before)
        if self.branch is not None and self.before is None:
            yield self.folder / "_refs" / "branches" / f"{quote(self.branch, safe='')}.json"


def _find_transactions(described: Path) -> list[str]:
    """The name of the transaction that made a version, as the file that describes the version has it.

    Lance's Python package reads the transaction for that, which costs a hundred times as much.
    """
    try:
        text = described.read_bytes()
    except FileNotFoundError:
        return []
    names, at = [], text.find(_ENDING)
    while at >= 0:
        end = at + len(_ENDING)
        found = _TRANSACTION.search(text, max(0, end - _LONGEST_NAME), end)
        names += [found[0].decode()] if found else []
        at = text.find(_ENDING, end)
    return names


def _operation_files(own: Path, operation: Any, before: Any | None) -> Iterator[Path]:
    if isinstance(operation, Op.CreateIndex):
        for index in operation.new_indices:
            yield from _files_in(own / "_indices" / str(index.uuid))
        return
    new = getattr(operation, "new_fragments", None) or getattr(operation, "fragments", None) or ()
    for fragment in new:
        yield from _data_files(own, fragment)
        yield from _deletion_file(own, fragment)
    for fragment in getattr(operation, "updated_fragments", None) or ():
        # A change lists a fragment that it leaves as it is, too, so that others conflict with it.
        known = None if before is None else before.get_fragment(fragment.id)
        if known is None or _deletion_mark(known.metadata) != _deletion_mark(fragment):
            yield from _deletion_file(own, fragment)


def _new_fragment_files(own: Path, after: Any, before: Any | None) -> Iterator[Path]:
    """The files of fragments that the version before had not, or had with other rows deleted.

    Fragments are known by their numbers, which Lance never gives twice; to ask for their files costs more.
    """
    known = {} if before is None else _deletion_ids(before)
    for fragment in after.get_fragments():
        facts = fragment.metadata
        number = int(fragment.fragment_id)
        if number not in known:
            yield from _data_files(own, facts)
        if known.get(number, _UNKNOWN) != _deletion_mark(facts):
            yield from _deletion_file(own, facts)


_UNKNOWN = (-1, -1)


def _deletion_ids(native: Any) -> dict[int, tuple[int, int] | None]:
    return {int(one.fragment_id): _deletion_mark(one.metadata) for one in native.get_fragments()}


def _deletion_mark(fragment: Any) -> tuple[int, int] | None:
    deleted = fragment.deletion_file
    return None if deleted is None else (deleted.read_version, deleted.id)


def _data_files(own: Path, fragment: Any) -> Iterator[Path]:
    for file in fragment.files:
        if file.base_id is None:
            at = own / "data" / data_file_name(file)
            yield at
            yield from _files_in(at.with_suffix(""))  # where Lance keeps the large values of a data file


def _deletion_file(own: Path, fragment: Any) -> Iterator[Path]:
    deleted = fragment.deletion_file
    if deleted is not None and deleted.base_id is None:
        yield own / deleted.path(fragment.id)


def _files_in(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            yield from sorted(Path(entry.path) for entry in entries if entry.is_file())
    except FileNotFoundError:
        return


class Checksums:
    """The logs of one graph in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def note_version(self, change: VersionChange) -> int:
        """Append the checksums of the files of a new version, and return how many there were.

        A file that may be old keeps the note it has: a new one could hide what became of it.
        """
        if change.has_only_new_files:
            return self.note(change.folder, change.files())
        known = self.read(change.folder)
        below = (path.relative_to(change.folder).as_posix() for path in change.files())
        return self.note(change.folder, [change.folder / name for name in below if name not in known])

    def note(self, table: Path, files: Iterable[Path]) -> int:
        """Append the checksums of files of a table, and return how many there were.

        A failure is logged and no more: what was written stands without its checksum.
        """
        try:
            paths, above = list(dict.fromkeys(map(str, files))), len(str(table)) + 1
            found = list(zip(paths, _compute_checksums(paths), strict=True))
        except LANCE_RAISES as error:
            _log.warning("checksums of '%s' are not noted: %s", table, error)
            return 0
        return self.note_sums(table, {path[above:]: one for path, one in found if one is not None})

    def note_sums(self, table: Path, sums: Mapping[str, Checksum]) -> int:
        """The same for checksums that are known, by the path of a file in the table."""
        lines = [f"{found.crc:08x} {found.size} {name}\n" for name, found in sums.items()]
        if not lines:
            return 0
        try:
            # One write: lines of two processes never mix.
            descriptor = self._open_log(self.log_of(table))
            try:
                os.write(descriptor, "".join(lines).encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            _log.warning("checksums of '%s' are not noted: %s", table, error)
            return 0
        return len(lines)

    @staticmethod
    def _open_log(log: Path) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            return os.open(log, flags, 0o666)
        except FileNotFoundError:
            log.parent.mkdir(parents=True, exist_ok=True)
            return os.open(log, flags, 0o666)

    def prune(self) -> None:
        """Remove the lines of files that are gone, from logs where they are most of it.

        What another process appends to a log at that very moment may get lost with them: its files then
        count as files without a checksum.
        """
        for log in (self.root / FOLDER).glob("*.log"):
            table = self.root.joinpath(*log.name.removesuffix(".log").split("-", 1))
            table = table if table.exists() else self.root / log.name.removesuffix(".log")
            known, lines = self.read(table), log.read_bytes().count(b"\n")
            kept = {name: found for name, found in known.items() if (table / name).exists()}
            if len(kept) * 2 < lines:
                text = "".join(f"{found.crc:08x} {found.size} {name}\n" for name, found in kept.items())
                new = log.with_suffix(".new")
                new.write_text(text, encoding="utf-8")
                new.replace(log)

    def log_of(self, table: Path) -> Path:
        """Return the log of a table."""
        return self.root / FOLDER / f"{'-'.join(table.relative_to(self.root).parts)}.log"

    def read(self, table: Path) -> dict[str, Checksum]:
        """Return the last noted checksum of each file of a table, by its path in the table."""
        try:
            text = self.log_of(table).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return {}
        found = {}
        for line in text.decode(errors="replace").splitlines():
            crc, _, rest = line.partition(" ")
            size, _, name = rest.partition(" ")
            # The last line may be cut off: its writer died. Others are as they were written.
            if len(crc) == 8 and size.isdecimal() and name and "\ufffd" not in name:
                try:
                    found[name] = Checksum(int(crc, 16), int(size))
                except ValueError:
                    continue
        return found


def _compute_checksums(paths: Sequence[str]) -> Iterable[Checksum | None]:
    """Return the checksums of files, of several at a time where there are many."""
    if len(paths) < _MANY:
        return map(compute_checksum, paths)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(compute_checksum, paths))


def compute_checksum(path: str | Path) -> Checksum | None:
    """Return the checksum of a file, read in blocks; None when it is not there."""
    crc = size = 0
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - a path costs more than the rest
            while block := file.read(BLOCK_BYTES):
                crc = zlib.crc32(block, crc)
                size += len(block)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    return Checksum(crc, size)
