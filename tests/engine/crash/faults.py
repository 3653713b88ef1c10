"""Storage that fails once: a call that is not made, or one that is made and whose answer is lost."""

# `_Answering` stands before a store, and it is that store's methods which it calls, not the abstract ones.
# mypy: disable-error-code="safe-super"

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from omnigraph.engine.graph.root import Root
from omnigraph.errors import StorageFailure
from omnigraph.storage.base_paths import rewrite_fork
from omnigraph.storage.bucket import BucketStore
from omnigraph.storage.failures import FailureKind
from omnigraph.storage.folder import FolderStore
from omnigraph.storage.forks import Forks
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Fence, ObjectStore, VersionedBytes
from omnigraph.storage.session import Access
from omnigraph.storage.tables import Tables
from tests.engine.crash.places import locks_of


class Fault:
    """An observer that makes one call fail, once it is armed.

    Or it is interrupted there, or Ctrl-C pressed in it, which is heard as soon as it may be.
    """

    def __init__(
        self, number: int, *, lost: bool = False, interrupts: bool = False, presses: bool = False
    ) -> None:
        self._number = number
        self._lost = lost
        self._interrupts = interrupts
        self._presses = presses
        self._count = 0
        self._lock = threading.Lock()
        self._current = threading.local()
        self.armed = False
        self.fired = False

    def __call__(self, op: str, uri: str, /) -> None:
        if self._lost:
            # The call before went past the storage below: its answer is lost now.
            self._fail_if_meant(op, uri)
        with self._lock:
            self._current.number = self._count if self.armed else None
            self._count += self.armed
        if not self._lost:
            self._fail_if_meant(op, uri)

    def answered(self, op: str, uri: str) -> None:
        """The call that this thread announced last was made."""
        if self._lost:
            self._fail_if_meant(op, uri)

    def _fail_if_meant(self, op: str, uri: str) -> None:
        if getattr(self._current, "number", None) == self._number:
            self._current.number = None
            self.fired = True
            # Only the main thread is ever interrupted.
            if self._interrupts and threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt
            if self._interrupts or self._presses:
                signal.raise_signal(signal.SIGINT)
                return
            raise StorageFailure(f"injected: {op} of '{uri}'", kind=FailureKind.TRANSIENT, uri=uri)


def faulty_root(root: Root, fault: Fault) -> Root:
    """The same root behind such storage."""
    at = root.layout.root
    objects: ObjectStore = _FaultyFolder(fault) if at.is_local else _FaultyBucket.connect(at, fault)
    tables = Tables(fault, objects=objects)
    tables.access = _FaultyAccess(fault)
    tables.access.objects = objects
    tables.access.rewrite_fork = partial(rewrite_fork, objects, None)
    return replace(
        root,
        objects=objects,
        tables=tables,
        forks=Forks(tables, objects, root.layout.derived),
        locks=locks_of(objects, at, disturbed=True),
    )


class _FaultyAccess(Access):
    """Calls of Lance whose answers may be lost."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self._fault = fault

    @contextmanager
    def call(self, operation: str, uri: str) -> Iterator[None]:
        try:
            with super().call(operation, uri):
                yield
        finally:
            # That there is nothing is an answer, too.
            self._fault.answered(operation, uri)


class _Answering(ObjectStore):
    """Control objects whose answers may be lost."""

    def _answered(self, op: str, at: Location) -> None:
        assert isinstance(self.observe, Fault)
        self.observe.answered(op, at.uri)

    def _get_object(self, at: Location) -> VersionedBytes | None:
        found = super()._get_object(at)
        self._answered("get", at)
        return found

    def _read_body(self, at: Location) -> bytes | None:
        found = super()._read_body(at)
        self._answered("get", at)
        return found

    def _object_is_stored(self, at: Location) -> bool:
        found = super()._object_is_stored(at)
        self._answered("is_stored", at)
        return found

    def _object_exists(self, at: Location) -> bool:
        found = super()._object_exists(at)
        self._answered("exists", at)
        return found

    def _list_names(self, at: Location) -> list[str]:
        found = super()._list_names(at)
        self._answered("list", at)
        return found

    def _list_sizes(self, at: Location) -> dict[str, int]:
        found = super()._list_sizes(at)
        self._answered("list", at)
        return found

    def _list_tags(self, at: Location) -> dict[str, str | None]:
        found = super()._list_tags(at)
        self._answered("list", at)
        return found

    def _list_folders(self, at: Location) -> list[str]:
        found = super()._list_folders(at)
        self._answered("list", at)
        return found

    def _list_all(self, at: Location) -> list[str]:
        found = super()._list_all(at)
        self._answered("list", at)
        return found

    def _last_change(self, at: Location) -> float | None:
        found = super()._last_change(at)
        self._answered("list", at)
        return found

    def _discard_partial(self, at: Location, seconds: float) -> int:
        removed = super()._discard_partial(at, seconds)
        self._answered("discard_partial", at)
        return removed

    def _rename_object(self, source: Location, target: Location) -> bool:
        found = super()._rename_object(source, target)
        self._answered("rename", source)
        return found

    def _share_object(self, source: Location, target: Location) -> bool:
        found = super()._share_object(source, target)
        self._answered("share", source)
        return found

    def _put_object(self, at: Location, body: bytes) -> None:
        super()._put_object(at, body)
        self._answered("put", at)

    def _create_object(self, at: Location, body: bytes) -> str | None:
        created = super()._create_object(at, body)
        self._answered("create", at)
        return created

    def _swap_object(self, at: Location, body: bytes, token: str) -> str | None:
        swapped = super()._swap_object(at, body, token)
        self._answered("swap", at)
        return swapped

    def _delete_object(self, at: Location, fence: Fence | None) -> None:
        super()._delete_object(at, fence)
        self._answered("delete", at)

    def _delete_prefix(self, at: Location, fence: Fence | None) -> None:
        super()._delete_prefix(at, fence)
        self._answered("delete_prefix", at)


class _FaultyFolder(_Answering, FolderStore):
    """In a folder."""


class _FaultyBucket(_Answering, BucketStore):
    """In a bucket."""
