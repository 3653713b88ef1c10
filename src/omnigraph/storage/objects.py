"""Small control objects of a graph: schema files, claims, recovery records, leases.

One contract for a folder and for a bucket. Only a proven not-found means that an object is absent; every
other failure is raised as `StorageFailure`. Table data is not read or written here.
"""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Protocol

from omnigraph import errors
from omnigraph.deferred_dataclass import dataclass
from omnigraph.storage.failures import FailureKind, not_found
from omnigraph.storage.location import Location

CHUNK = 8 << 20
"""How much of a large object is in memory at a time, and fetched in one request."""

_RESIDUE = re.compile(r"#\d+$")


class Observer(Protocol):
    """Called with each storage call just before it is made; raising prevents the call."""

    def __call__(self, op: str, uri: str, /) -> None: ...


class Fence(Protocol):
    """What allows a process to delete objects whose names another one may use again, once it has the lock.

    A bucket deletes whatever has a name by the time the request arrives. So a fence is confirmed when it is
    known what to delete, directly before each request, and a request is never repeated without it.
    """

    def confirm(self) -> None:
        """Raise `LockLost` unless the store still shows the locks of the caller as held."""


@dataclass(frozen=True, slots=True)
class Call:
    """One storage call."""

    op: str
    uri: str


class Recorder:
    """An observer that remembers every call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Call] = []

    def __call__(self, op: str, uri: str, /) -> None:
        with self._lock:
            self._calls.append(Call(op, uri))

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls so far, in order."""
        with self._lock:
            return tuple(self._calls)

    def counts(self) -> Counter[str]:
        """How often each operation was called."""
        return Counter(call.op for call in self.calls)

    def clear(self) -> None:
        """Forget the calls so far."""
        with self._lock:
            self._calls.clear()


@dataclass(frozen=True, slots=True)
class VersionedText:
    """The text of an object with the token that names exactly this state of it."""

    text: str
    token: str
    modified: float
    """When the store says it was written, in seconds; comparable only with other times of this store."""


@dataclass(frozen=True, slots=True)
class VersionedBytes:
    """The content of an object with the token that names exactly this state of it."""

    body: bytes
    token: str
    modified: float


def is_residue(name: str) -> bool:
    """True for the temporary name of a write that may have been cut short."""
    return _RESIDUE.search(name) is not None


class ObjectStore(ABC):
    """Control objects at one root; `observe` is called before every operation."""

    scope: str = ""
    """Distinguishes stores in which equal locations are different places."""

    def __init__(self, observe: Observer | None = None) -> None:
        self.observe = observe

    def read_text(self, at: Location) -> str:
        """The text of an object; raises a `StorageFailure` of kind NotFound when there is none."""
        self._begin_call("read_text", at)
        body = self._read_body(at)
        if body is None:
            raise not_found(at.uri)
        return _decode_text(body, at)

    def read_text_if_exists(self, at: Location) -> str | None:
        """The text of an object, or None when it is proven absent; one request."""
        self._begin_call("read_text_if_exists", at)
        body = self._read_body(at)
        return None if body is None else _decode_text(body, at)

    def read_bytes_if_exists(self, at: Location) -> bytes | None:
        """The content of an object, or None when it is proven absent; one request."""
        self._begin_call("read_bytes_if_exists", at)
        return self._read_body(at)

    def write_bytes(self, at: Location, body: bytes) -> None:
        """Write or replace an object; a reader sees the old or the new content, never a part."""
        self._begin_call("write_bytes", at)
        self._put_object(at, body)

    def read_text_versioned(self, at: Location) -> VersionedText | None:
        """Text and token of an object, or None when it is proven absent; one request."""
        self._begin_call("read_text_versioned", at)
        found = self._get_object(at)
        return (
            None
            if found is None
            else VersionedText(_decode_text(found.body, at), found.token, found.modified)
        )

    def read_bytes_versioned(self, at: Location) -> VersionedBytes | None:
        """Content and token of an object, or None when it is proven absent; one request."""
        self._begin_call("read_bytes_versioned", at)
        return self._get_object(at)

    def write_bytes_if_match(self, at: Location, body: bytes, token: str) -> str | None:
        """As `write_text_if_match`, for any content."""
        self._begin_call("write_bytes_if_match", at)
        return self._swap_object(at, body, token)

    def write_text(self, at: Location, text: str) -> None:
        """Write or replace an object; a reader sees the old or the new text, never a part."""
        self._begin_call("write_text", at)
        self._put_object(at, _encode_text(text, at))

    def write_text_if_absent(self, at: Location, text: str) -> bool:
        """Create an object; exactly one of any number of rivals gets True.

        When the acknowledgement of a put in a bucket is lost, False may be the answer to one's own
        success: a caller that must know puts something of its own into the text and reads it back.
        """
        return self.create_text(at, text) is not None

    def create_text(self, at: Location, text: str) -> str | None:
        """As `write_text_if_absent`, answering with the token of the new object or None."""
        self._begin_call("write_text_if_absent", at)
        return self._create_object(at, _encode_text(text, at))

    def write_text_if_match(self, at: Location, text: str, token: str) -> str | None:
        """Replace exactly the state that `token` names; None when it no longer holds.

        In a folder this reads and then writes: the caller must hold a lock. In a bucket a token is a hash
        of the content, so no two texts of one object may ever be equal.
        """
        self._begin_call("write_text_if_match", at)
        return self._swap_object(at, _encode_text(text, at), token)

    def exists(self, at: Location) -> bool:
        """True for an object and for a prefix with at least one object below it."""
        self._begin_call("exists", at)
        return self._object_exists(at)

    def is_stored(self, at: Location) -> bool:
        """True for an object, not for a prefix; one request."""
        self._begin_call("is_stored", at)
        return self._object_is_stored(at)

    def list_dir(self, at: Location) -> list[Location]:
        """The objects directly below `at`, in no order; nothing there is an empty list."""
        self._begin_call("list_dir", at)
        return [
            at / name for name in self._list_names(at) if not is_residue(name) and _is_addressable(at, name)
        ]

    def list_sizes(self, at: Location) -> dict[Location, int]:
        """The objects directly below `at`, each with its bytes, in no order."""
        self._begin_call("list_sizes", at)
        sizes = self._list_sizes(at).items()
        return {at / name: size for name, size in sizes if not is_residue(name) and _is_addressable(at, name)}

    def list_tags(self, at: Location) -> dict[Location, str | None]:
        """The objects directly below `at`, each with the ETag of its content; a folder has none."""
        self._begin_call("list_tags", at)
        tags = self._list_tags(at).items()
        return {at / name: tag for name, tag in tags if not is_residue(name) and _is_addressable(at, name)}

    def list_all(self, at: Location) -> dict[str, int]:
        """Every object below `at` at any depth, by its name from there, with its bytes; in no order.

        What writes that were cut short left in a folder is not among them.
        """
        self._begin_call("list_all", at)
        found = self._all_sizes(at).items()
        return {name: size for name, size in found if not is_residue(name) and _is_addressable(at, name)}

    def read_chunks(self, at: Location) -> Iterator[bytes]:
        """The content of an object of any size, some of it at a time; fails with NotFound when it is gone."""
        self._begin_call("read_chunks", at)
        yield from self._read_chunks(at)

    def write_chunks(self, at: Location, chunks: Iterable[bytes]) -> None:
        """Write or replace an object of any size; it is there with all of its content or not at all."""
        self._begin_call("write_chunks", at)
        self._put_chunks(at, chunks)

    def list_folders(self, at: Location) -> list[str]:
        """The names of folders directly below `at` that hold anything, in no order."""
        self._begin_call("list_folders", at)
        return [name for name in self._list_folders(at) if _is_addressable(at, name)]

    def list_entries(self, at: Location) -> list[str]:
        """The names of everything directly below `at`: files and folders, empty ones too, in no order."""
        self._begin_call("list_entries", at)
        return self._list_all(at)

    def last_change(self, at: Location) -> float | None:
        """When anything below `at` was written last, in seconds since 1970; None when nothing is there."""
        self._begin_call("last_change", at)
        return self._last_change(at)

    def discard_partial(self, at: Location, seconds: float) -> int:
        """Remove what writes that were cut short left directly below `at` so long ago; how much that was."""
        self._begin_call("discard_partial", at)
        return self._discard_partial(at, seconds)

    def rename_text(self, source: Location, target: Location) -> None:
        """Move an object over another; in a bucket both exist for a moment."""
        self._check_location(target)
        self._begin_call("rename_text", source)
        if not self._rename_object(source, target):
            raise not_found(source.uri)

    def share(self, source: Location, target: Location) -> None:
        """Give an object of any size a second name; one that has it already is fine.

        Both names stand for the content until they are deleted: in a folder without a second copy where the
        file system knows links, in a bucket by a copy that the store makes itself.
        """
        self._check_location(target)
        self._begin_call("share", source)
        if not self._share_object(source, target):
            raise not_found(source.uri)

    def delete(self, at: Location, fence: Fence | None = None) -> None:
        """Remove an object; one that is not there is fine. See `Fence` for names that are used again."""
        self._begin_call("delete", at)
        self._delete_object(at, fence)

    def delete_prefix(self, at: Location, fence: Fence | None = None) -> None:
        """Remove everything below `at`; nothing there is fine. See `Fence` for names that are used again."""
        self._begin_call("delete_prefix", at)
        self._delete_prefix(at, fence)

    def _begin_call(self, op: str, at: Location) -> None:
        self._check_location(at)
        if self.observe is not None:
            self.observe(op, at.uri)

    def _check_location(self, at: Location) -> None:
        if is_residue(at.name):
            raise errors.InvalidName(at.name, f"'{at.uri}' has the form of a temporary name (`#` and digits)")

    def _read_body(self, at: Location) -> bytes | None:
        """Return the content of an object without its token."""
        found = self._get_object(at)
        return None if found is None else found.body

    @abstractmethod
    def _get_object(self, at: Location) -> VersionedBytes | None: ...

    @abstractmethod
    def _put_object(self, at: Location, body: bytes) -> None: ...

    @abstractmethod
    def _create_object(self, at: Location, body: bytes) -> str | None: ...

    @abstractmethod
    def _swap_object(self, at: Location, body: bytes, token: str) -> str | None: ...

    @abstractmethod
    def _object_exists(self, at: Location) -> bool: ...

    @abstractmethod
    def _object_is_stored(self, at: Location) -> bool: ...

    @abstractmethod
    def _list_names(self, at: Location) -> list[str]: ...

    @abstractmethod
    def _list_sizes(self, at: Location) -> dict[str, int]: ...

    def _list_tags(self, at: Location) -> dict[str, str | None]:
        return dict.fromkeys(self._list_names(at))

    @abstractmethod
    def _all_sizes(self, at: Location) -> dict[str, int]: ...

    @abstractmethod
    def _read_chunks(self, at: Location) -> Iterator[bytes]: ...

    @abstractmethod
    def _put_chunks(self, at: Location, chunks: Iterable[bytes]) -> None: ...

    @abstractmethod
    def _list_folders(self, at: Location) -> list[str]: ...

    @abstractmethod
    def _list_all(self, at: Location) -> list[str]: ...

    def _discard_partial(self, at: Location, seconds: float) -> int:
        return 0  # in a bucket a put that was cut short leaves nothing

    @abstractmethod
    def _last_change(self, at: Location) -> float | None: ...

    @abstractmethod
    def _rename_object(self, source: Location, target: Location) -> bool: ...

    @abstractmethod
    def _share_object(self, source: Location, target: Location) -> bool: ...

    @abstractmethod
    def _delete_object(self, at: Location, fence: Fence | None) -> None: ...

    @abstractmethod
    def _delete_prefix(self, at: Location, fence: Fence | None) -> None: ...


def _encode_text(text: str, at: Location) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as failure:
        raise errors.InvalidValue(
            f"the text for '{at.uri}' is not valid Unicode: {failure.reason}"
        ) from failure


def _decode_text(body: bytes, at: Location) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as failure:
        raise errors.StorageFailure(
            f"'{at.uri}' is not UTF-8 text: {failure.reason} at byte {failure.start}",
            kind=FailureKind.PERMANENT,
            uri=at.uri,
            remedy="restore the object from a backup",
        ) from failure


def _is_addressable(at: Location, name: str) -> bool:
    """False for names that cannot be ours, such as those with control characters."""
    try:
        at / name
    except errors.InvalidName:
        return False
    return True
