"""Files that others made, in folders and buckets: found and read, never written."""

from __future__ import annotations

import io
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import InvalidName
from omnigraph.storage.failures import is_absent, wrap_os_errors
from omnigraph.storage.location import Location, require_s3

if TYPE_CHECKING:
    from obstore.store import S3Store

_SCHEME = "s3://"
_REQUEST = 16 * 2**20
"""No more is asked for at once, so that an answer arrives within the time a request has."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file and how long it is."""

    uri: str
    size: int


def is_in_bucket(name: str) -> bool:
    """Whether a name is one of a bucket."""
    return name[: len(_SCHEME)].lower() == _SCHEME


def find_bucket_file(uri: str) -> StoredFile | None:
    """The object of that very name, or None when it is proven absent."""
    require_s3()
    import obstore

    from omnigraph.storage.bucket import wrap_s3_errors

    at = _parse_location(uri)
    with wrap_s3_errors("read", at):
        try:
            return StoredFile(uri, obstore.head(_connect(at), at.key)["size"])
        except FileNotFoundError as failure:
            if is_absent(failure):
                return None
            raise


def list_bucket_files(uri: str) -> list[StoredFile]:
    """Everything below a folder of a bucket, at any depth, in no order."""
    require_s3()
    import obstore

    from omnigraph.storage.bucket import wrap_s3_errors

    at = _parse_location(uri.rstrip("/"), whole_bucket=True)
    with wrap_s3_errors("list", at):
        found = [entry for batch in obstore.list(_connect(at), at.key or None) for entry in batch]
    return [StoredFile(f"{_SCHEME}{at.bucket}/{entry['path']}", entry["size"]) for entry in found]


def open_input(uri: str) -> BinaryIO:
    """A file to read from any place of it; only what is asked for is fetched."""
    if is_in_bucket(uri):
        return _BucketFile(uri)  # type: ignore[return-value]  # a raw file gives bytes just as well
    with wrap_os_errors("read", uri):
        return Path(uri).open("rb", buffering=0)


class _BucketFile(io.RawIOBase):
    def __init__(self, uri: str) -> None:
        super().__init__()
        self._at = _parse_location(uri)
        self._size = _file_size(uri)
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: object, /) -> int:
        import obstore

        from omnigraph.storage.bucket import wrap_s3_errors

        room = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # whatever takes bytes, says the base class
        wanted = min(len(room), _REQUEST, self._size - self._position)
        if wanted <= 0:
            return 0
        with wrap_s3_errors("read", self._at):
            found = obstore.get_range(_connect(self._at), self._at.key, start=self._position, length=wanted)
        room[:wanted] = memoryview(found)
        self._position += wanted
        return wanted

    def read(self, size: int | None = -1, /) -> bytes:
        """As much as asked for, unless the file ends: who reads columns knows no short answers."""
        rest = max(self._size - self._position, 0)
        body = bytearray(rest if size is None or size < 0 else min(size, rest))
        filled = 0
        while filled < len(body):
            filled += self.readinto(memoryview(body)[filled:])
        return bytes(body)


def _file_size(uri: str) -> int:
    found = find_bucket_file(uri)
    if found is None:
        from omnigraph.storage.failures import not_found

        raise not_found(uri)
    return found.size


def _parse_location(uri: str, *, whole_bucket: bool = False) -> Location:
    # Not `parse`: files of others may have names that no graph may have.
    bucket, _, key = uri[len(_SCHEME) :].partition("/")
    Location.parse(f"{_SCHEME}{bucket}")
    if not key and not whole_bucket:
        raise InvalidName(uri, f"'{uri}' is a bucket and no file in it")
    return Location(f"{_SCHEME}{bucket}/{key}".rstrip("/"))


def _connect(at: Location) -> S3Store:
    from omnigraph.storage.bucket import require_own_client

    require_own_client(at)
    return _client_for(at.bucket, tuple(sorted(at.storage_options().items())))


@cache
def _client_for(bucket: str, _settings: tuple[tuple[str, str], ...]) -> S3Store:
    from omnigraph.storage.bucket import s3_client

    return s3_client(Location(f"{_SCHEME}{bucket}"))
