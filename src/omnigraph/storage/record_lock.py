"""The branch lock of a folder: a record lock of the kernel.

A stopped process keeps it, a killed one loses it at once; there is no time limit and no clock. The kernel
drops it when the process closes *any* descriptor of the file, so each lock file is open at most once per
process and only through the lock table. What the file contains serves messages and diagnosis only.

The first waiting process holds the last byte of the file and so is next: a process with many threads cannot
take the lock again and again while another one waits.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from pathlib import Path

import msgspec

from omnigraph import errors
from omnigraph.storage.failures import wrap_os_errors
from omnigraph.storage.folder import create_file
from omnigraph.storage.lock_table import EARLIER_OPERATIONS, Gate, Holder, LockStatus, LockTable

_MAX_CONTENT = 4096

_NEXT = 1 << 62
"""The byte of the process that is next; the lock itself is all bytes before it."""
_FLOCK, _TYPE = ("@hhqqi0q", 0) if sys.platform == "linux" else ("@qqihh", 3)
"""How the kernel is asked for a lock, its `struct flock`, and which of its members is the kind of lock."""
_ATTEMPTS = 50
"""So often, which is about a second, others have precedence; then they may be stopped, and count no more."""


class RecordSlot:
    """One lock file of this process."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.users = 0
        self.descriptor: int | None = None
        self.holder: Holder | None = None

    def forget_in_child(self) -> None:
        """Close the inherited descriptor; in a child that does not touch the parent's lock."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class RecordLock:
    """The use of one lock file by one thread, from asking for it to giving it back."""

    longest_pause = 0.025
    """Between two attempts: asking the kernel costs next to nothing."""

    def __init__(self, path: Path, table: LockTable) -> None:
        self.path = path
        self._table = table
        self._attempts = 0
        self._is_next = False
        with wrap_os_errors("make the lock file", str(path)):
            self._identity = _identity_of(path)
        with table.mutex:
            self._slot = table.slot(self._identity, RecordSlot)
            self._slot.users += 1

    @property
    def gate(self) -> Gate:
        """The turn among the threads of this process."""
        return self._slot.gate

    def holder(self) -> Holder | None:
        """Who holds the lock, as far as is known."""
        return self._slot.holder or self._written_holder()

    def attempt(self, operation_id: str | None, *, creating: bool, first: bool) -> Holder | None:
        """Take the lock if it is free; otherwise say who has it."""
        with wrap_os_errors("lock", str(self.path)):
            descriptor = self._open_file()
            if not self._has_turn(descriptor) or not _try_lock_range(descriptor, _NEXT, 0):
                return self._written_holder() or Holder(owner=self._table.owner)
            if self._is_next:
                fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, _NEXT)
            self._require_same_file()
            self._write_holder(descriptor, operation_id)
        return None

    def fresh(self) -> bool:
        """True: a record lock has no time limit."""
        return True

    def confirm(self) -> bool:
        """True: the system keeps it for as long as the process lives."""
        return True

    def mark_deleted(self) -> None:
        """Nothing to do: no one can hold an old handle of a branch whose lock excludes them."""

    def release(self) -> None:
        """Release the lock to the next waiter, in this process or another."""
        self._slot.holder = None
        self.abandon()

    def abandon(self) -> None:
        """Leave the gate without the lock."""
        self._close_descriptor()
        self.gate.leave()
        self.close()

    def close(self) -> None:
        """Stop using the file."""
        with self._table.mutex:
            self._slot.users -= 1
            if not self._slot.users:
                self._table.forget(self._identity)

    def _has_turn(self, descriptor: int) -> bool:
        self._attempts += 1
        self._is_next = self._is_next or _try_lock_range(descriptor, 1, _NEXT)
        return self._is_next or self._attempts > _ATTEMPTS

    def _open_file(self) -> int:
        with self._table.mutex:
            if self._slot.descriptor is None:
                self._slot.descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            return self._slot.descriptor

    def _close_descriptor(self) -> None:
        with self._table.mutex:
            if self._slot.descriptor is not None:
                os.close(self._slot.descriptor)
                self._slot.descriptor = None

    def _require_same_file(self) -> None:
        """Refuse a lock on a file that was replaced under its name: it excludes no one."""
        found = self.path.stat()
        if (found.st_dev, found.st_ino) != self._identity:
            raise errors.ReadSetChanged(
                "lock file", expected=f"inode {self._identity[1]}", actual=f"inode {found.st_ino}"
            )

    def _write_holder(self, descriptor: int, operation_id: str | None) -> None:
        before = _parse_holder(os.pread(descriptor, _MAX_CONTENT, 0))
        earlier = before.operations() if before is not None else ()
        holder = Holder(
            owner=self._table.owner, operation_id=operation_id, earlier=earlier[:EARLIER_OPERATIONS]
        )
        self._slot.holder = holder
        content = msgspec.json.encode(holder) + b"\n"
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))

    def _written_holder(self) -> Holder | None:
        with self._table.mutex:
            if self._slot.descriptor is None:
                return None
            return _parse_holder(os.pread(self._slot.descriptor, _MAX_CONTENT, 0))


def _try_lock_range(descriptor: int, length: int, start: int) -> bool:
    """Take a part of a file, if no other process has any of it."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
    except OSError as failure:
        if failure.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def find_gate(path: Path, table: LockTable) -> Gate | None:
    """The gate of a lock file, if this process uses the file at this moment."""
    with wrap_os_errors("look at the lock file", str(path)):
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
    slot = table.known((found.st_dev, found.st_ino))
    return None if slot is None else slot.gate


def last_holder(path: Path, table: LockTable) -> Holder | None:
    """Who took the lock last, whether or not it is held now."""
    with wrap_os_errors("read the lock file", str(path)), table.mutex:
        try:
            found = path.stat()
            slot = table.known((found.st_dev, found.st_ino))
            if isinstance(slot, RecordSlot) and slot.descriptor is not None:
                return _parse_holder(os.pread(slot.descriptor, _MAX_CONTENT, 0))
            # Not open in this process, and it cannot be opened while we have the mutex: closing it is safe.
            return _parse_holder(path.read_bytes())
        except FileNotFoundError:
            return None


def read_lock_status(path: Path, table: LockTable) -> LockStatus | None:
    """Return who holds the lock now, or is next; None when it is free. Nothing is locked for it."""
    with wrap_os_errors("look at the lock file", str(path)), table.mutex:
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        slot = table.known((found.st_dev, found.st_ino))
        if isinstance(slot, RecordSlot) and (slot.descriptor is not None or not slot.gate.idle()):
            # The kernel does not report a process its own locks.
            return LockStatus(slot.holder or Holder(owner=table.owner))
        # As above: not open in this process, so closing it drops no lock.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not _is_locked(descriptor):
                return None
            return LockStatus(_parse_holder(os.pread(descriptor, _MAX_CONTENT, 0)))
        finally:
            os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    """Whether another process has any part of a file."""
    members: dict[int, int] = {_TYPE: fcntl.F_WRLCK}
    asked = struct.pack(_FLOCK, *(members.get(at, 0) for at in range(5)))  # from the first byte to the last
    answer = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    return bool(answer[_TYPE] != fcntl.F_UNLCK)


def supports_record_locks(path: Path) -> bool:
    """True when the file system of `path`, an unlocked file, grants record locks."""
    with wrap_os_errors("open", str(path)), path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as failure:
            if failure.errno in (errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP):
                return False
            raise
        return True


def _identity_of(path: Path) -> tuple[int, int]:
    """Device and inode, so that two paths to one file are one lock; makes the file when it is missing.

    The file is linked into place, never opened under its name: closing such a descriptor would drop a
    lock that another thread has just taken on it.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        create_file(path, b"")
        found = path.stat()
    return found.st_dev, found.st_ino


def _parse_holder(content: bytes) -> Holder | None:
    line, _, _ = content.partition(b"\n")
    try:
        return msgspec.json.decode(line, type=Holder)
    except msgspec.DecodeError:
        # Empty, or cut short by a crash: it only ever served messages.
        return None
