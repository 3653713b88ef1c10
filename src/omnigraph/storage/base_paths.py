"""The base paths of a fork: where it finds the files it shares with its table.

Lance records the place of those files in every version of a fork, as an absolute path. After a move, a copy
or a mount elsewhere that path names another place. In a graph all bases of a fork belong to one table: the
table itself, or another fork of it. So where they are follows from where the table is, and the recorded path
only has to agree with it. Every handle of a fork passes `relocate`: no file is read from the recorded place.

A version is a protobuf message: bases are its field 18, each with a name (2, the fork's; none for the table
itself) and a path (4). In a version file the message comes last, its length before it and a footer after it.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Final

from lance import LanceDataset

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import StorageFailure
from omnigraph.storage.checksums import Checksum, Checksums
from omnigraph.storage.failures import TableFailureKind, table_failure
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.version_files import FOLDER, version_of

_BASES: Final = 18
_NAME: Final = 2
_PATH: Final = 4
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LENGTH = struct.Struct("<I")
_FOOTER = struct.Struct("<QHH4s")  # where the length of the message is, two numbers of the format, the mark
_MARK = b"LANC"


def fork_uri(location: Location, branch: str | None) -> str:
    """Where the versions of one branch of a table are stored."""
    return location.uri if branch is None else f"{location.uri}/tree/{branch}"


def find_moved_base(native: LanceDataset, location: Location) -> str | None:
    """The first base of a version that is recorded at another place than its table; None when all agree."""
    for base in native.base_paths().values():
        if base.path != fork_uri(location, base.name):
            return str(base.path)
    return None


def relocate(native: LanceDataset, location: Location, branch: str) -> LanceDataset:
    """The same version of a fork, with every base at the table's present place; nothing is read for it."""
    uri = fork_uri(location, branch)
    _, place, version, message, *_ = native.__getstate__()  # type: ignore[no-untyped-call]
    return LanceDataset(
        uri,
        version,
        storage_options=place,
        serialized_manifest=relocate_message(message, location, uri),
        session=native.session(),
    )


# --- in bytes --------------------------------------------------------------------------------------


class MalformedVersion(ValueError):
    """Bytes that do not have the form of a version."""


def relocate_file(body: bytes, location: Location, uri: str) -> bytes | None:
    """The content of a version file with every base at the table's place; None when nothing has to change.

    Only the message at the end changes: what the file holds before it stays where it is.
    """
    if len(body) < _FOOTER.size:
        raise MalformedVersion("it is too short")
    start, major, minor, mark = _FOOTER.unpack(body[-_FOOTER.size :])
    begin, end = start + _LENGTH.size, len(body) - _FOOTER.size
    if mark != _MARK or begin > end or _LENGTH.unpack_from(body, start)[0] != end - begin:
        raise MalformedVersion("its footer does not lead to its description")
    before = body[begin:end]
    after = relocate_message(before, location, uri)
    if after == before:
        return None
    return b"".join((body[:start], _LENGTH.pack(len(after)), after, _FOOTER.pack(start, major, minor, mark)))


def relocate_message(message: bytes, location: Location, uri: str) -> bytes:
    """The description of a version with every base at the table's place; `uri` is the fork's, for errors."""
    return b"".join(
        _encode_field(_BASES, _relocate_base(message[begin:end], location, uri)) if number == _BASES else raw
        for number, raw, begin, end in _iterate_fields(message)
    )


def _relocate_base(base: bytes, location: Location, uri: str) -> bytes:
    parts = [(number, raw, base[begin:end]) for number, raw, begin, end in _iterate_fields(base)]
    texts = {number: value.decode() for number, _, value in parts if number in (_NAME, _PATH)}
    name, path = texts.get(_NAME), texts.get(_PATH, "")
    here = fork_uri(location, name)
    if not path.endswith(here[len(location.uri) - len(location.name) - 1 :]):
        raise _foreign_base_error(uri, path)
    return b"".join(
        _encode_field(_PATH, here.encode()) if number == _PATH else raw for number, raw, _ in parts
    )


def _foreign_base_error(uri: str, path: str) -> StorageFailure:
    return table_failure(
        TableFailureKind.FOREIGN, "open", uri, f"it shares files with '{path}', which is not its table"
    )


def _iterate_fields(message: bytes) -> Iterator[tuple[int, bytes, int, int]]:
    """The fields of a message in their order: number, all its bytes, and where its value begins and ends."""
    at = 0
    while at < len(message):
        start = at
        key, at = _decode_varint(message, at)
        kind = key & 7
        if kind == _BYTES:
            size, at = _decode_varint(message, at)
        elif kind == _VARINT:
            size = _decode_varint(message, at)[1] - at
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise MalformedVersion(f"a field of it is of kind {kind}")
        begin, at = at, at + size
        if at > len(message):
            raise MalformedVersion("a field of it is cut off")
        yield key >> 3, message[start:at], begin, at


def _encode_field(number: int, value: bytes) -> bytes:
    return _encode_varint(number << 3 | _BYTES) + _encode_varint(len(value)) + value


def _decode_varint(message: bytes, at: int) -> tuple[int, int]:
    """A number, and where what follows it begins."""
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
    raise MalformedVersion("a number in it is cut off")


def _encode_varint(value: int) -> bytes:
    digits = []
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


_log = logging.getLogger(__name__)


def rewrite_fork(objects: ObjectStore, checksums: Checksums | None, table: Location, branch: str) -> int:
    """Have every version of a fork record the present place; how many files that changed.

    Callers hold the lock of the branch: what another process removes meanwhile must not come back. The newest
    version is the last one, so that a fork whose newest version is right is right as a whole.
    """
    known = {} if checksums is None else checksums.read(table.path)
    fork = _Fork(objects, checksums, table, branch, known)
    listed = objects.list_dir(Location(fork_uri(table, branch)) / FOLDER)
    versions = {version: at for at in listed if (version := version_of(at.name)) is not None}
    return sum(fork.rewrite(versions[version]) for version in sorted(versions))


@dataclass(frozen=True, slots=True)
class _Fork:
    objects: ObjectStore
    checksums: Checksums | None
    table: Location
    branch: str
    known: Mapping[str, Checksum] = field(repr=False)
    """The checksums of its files that are noted."""

    def rewrite(self, file: Location) -> bool:
        """Whether a version file was rewritten; a damaged one stays as it is."""
        found = self.objects.read_bytes_versioned(file)
        if found is None:
            return False
        try:
            body = relocate_file(found.body, self.table, fork_uri(self.table, self.branch))
        except (MalformedVersion, UnicodeDecodeError, StorageFailure) as error:
            _log.warning("'%s' is damaged, and stays as it is: %s", file.uri, error)
            return False
        if body is None:
            return False
        name = file.uri.removeprefix(f"{self.table.uri}/")
        if self.known.get(name, Checksum.of(body)) not in (Checksum.of(found.body), Checksum.of(body)):
            _log.warning("'%s' is damaged, and stays as it is: its checksum is another one", file.uri)
            return False
        if self.checksums is not None:
            # Noted first: a run that dies in between is continued, and knows the file by what it will be.
            self.checksums.note_sums(self.table.path, {name: Checksum.of(body)})
        # Nothing changes a version file but another run of this, which writes the same.
        return self.objects.write_bytes_if_match(file, body, found.token) is not None
