"""The lock of a cluster: held by every command that may change the ledger, for the whole command."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import msgspec

from omnigraph.cluster.diagnostics import Findings, Severity
from omnigraph.cluster.root import ClusterRoot, decode, encode
from omnigraph.errors import StorageFailure

VERSION = 1


class Lock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The command that holds the lock."""

    version: int
    lock_id: str
    operation: str
    created_at: str
    pid: int

    def age_seconds(self, now: datetime) -> int | None:
        """How long ago it was taken; None when its time cannot be read."""
        try:
            created = datetime.fromisoformat(self.created_at)
        except ValueError:
            return None
        return max(0, int((now - created).total_seconds())) if created.tzinfo is not None else None


class LockRejected(Exception):
    """A lock file that cannot be read, with the code of the finding."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def read_lock(root: ClusterRoot) -> Lock | None:
    """Return the lock that is held; raises `LockRejected`."""
    text = root.objects.read_text_if_exists(root.lock)
    if text is None:
        return None
    try:
        plain = decode(text)
        version = plain.get("version") if isinstance(plain, dict) else None
        if isinstance(version, int) and version != VERSION:
            raise LockRejected("unsupported_state_lock_version", f"the lock has version {version}")
        return msgspec.convert(plain, Lock)
    except msgspec.MsgspecError as error:
        raise LockRejected("invalid_state_lock", f"the lock is not valid: {error}") from error


@contextmanager
def hold_lock(
    root: ClusterRoot, operation: str, findings: Findings, *, enabled: bool = True
) -> Iterator[Lock | None]:
    """Hold the lock; one that is held ends the command. None where the configuration switches it off."""
    if not enabled:
        findings.add("state_lock_disabled", "state.lock", "commands do not exclude each other: `lock: false`")
        yield None
        return
    lock = Lock(VERSION, root.new_id(), operation, root.now(), os.getpid())
    _take(root, lock, findings)
    try:
        yield lock
    finally:
        _release(root, lock.lock_id, findings)


def _take(root: ClusterRoot, lock: Lock, findings: Findings) -> None:
    try:
        if root.objects.write_text_if_absent(root.lock, encode(lock)):
            return
        held = read_lock(root)
    except LockRejected as rejected:
        findings.stop(rejected.code, root.lock.uri, str(rejected))
    except StorageFailure:
        # It may be there although the answer was lost.
        _release(root, lock.lock_id, findings)
        raise
    if held is None or held.lock_id != lock.lock_id:
        findings.stop("state_lock_held", root.lock.uri, _describe(held, root))


def _describe(held: Lock | None, root: ClusterRoot) -> str:
    if held is None:
        return "the lock was held a moment ago; run the command again"
    age = held.age_seconds(root.clock())
    return (
        f"lock '{held.lock_id}' is held by `cluster {held.operation}` (pid {held.pid}, "
        f"{'age unknown' if age is None else f'{age} s old'}). If that process is gone, run "
        f"`omnigraph cluster force-unlock {held.lock_id}`"
    )


def _release(root: ClusterRoot, lock_id: str, findings: Findings) -> None:
    """Remove the lock while it is still ours; a failure leaves it to `force-unlock`."""
    try:
        held = read_lock(root)
        if held is not None and held.lock_id == lock_id:
            root.objects.delete(root.lock)
    except LockRejected as rejected:
        findings.add(rejected.code, root.lock.uri, str(rejected), severity=Severity.WARNING)
    except StorageFailure as failure:
        message = f"the lock could not be removed: {failure.message}"
        findings.add("storage_failure", root.lock.uri, message, severity=Severity.WARNING)
