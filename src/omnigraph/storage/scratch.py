"""Scratch space of one operation: temporary folders on this machine, and scratch files in the graph.

The process that uses a temporary folder holds a kernel lock on it, which ends with the process however that
ends. So a folder whose lock is free is abandoned, and the next process removes it. Scratch files are not
synced: losing them with the machine costs nothing.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from omnigraph.errors import StorageFailure
from omnigraph.storage.failures import FailureKind, classify_store_error, wrap_os_errors
from omnigraph.storage.input_files import open_input
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore

_PREFIX = "omnigraph-held-"


class TemporaryFolder:
    """A folder that exists as long as this object, or to the end of a `with` block."""

    def __init__(self, kind: str) -> None:
        with wrap_temporary_errors():
            folder = tempfile.gettempdir()
            _remove_abandoned_once(folder)
            self.path, lock = _create_locked(folder, kind)
        self._removal = weakref.finalize(self, _remove_folder, self.path, lock, os.getpid())

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._removal()


@contextmanager
def wrap_temporary_errors() -> Iterator[None]:
    """Raise OS errors of the block as a `StorageFailure` that says temporary files cannot be written."""
    try:
        yield
    except OSError as failure:
        at, (kind, _) = tempfile.tempdir or "", classify_store_error(failure)
        place = f" in '{at}'" if at else ""
        raise StorageFailure(
            f"cannot write temporary files{place}: {failure.strerror or failure}",
            # A folder that is missing here is no table or object that is not there.
            kind=FailureKind.CONFIGURATION if kind is FailureKind.NOT_FOUND else kind,
            uri=at,
            remedy="set TMPDIR to a folder that can be written and has room",
        ) from failure


def write_rows(at: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write a temporary file of rows and return their number; errors of the batches pass unchanged."""
    rows = 0
    with wrap_temporary_errors():
        sink = pa.OSFile(str(at), "wb")
    with sink:
        with wrap_temporary_errors():
            writer = pa.ipc.new_stream(sink, schema)
        for batch in batches:
            with wrap_temporary_errors():
                writer.write_batch(batch)
            rows += batch.num_rows
        with wrap_temporary_errors():
            writer.close()
    return rows


def _create_locked(folder: str, kind: str) -> tuple[Path, int]:
    """A new folder and the descriptor that holds its lock."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-", dir=folder))
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # another process took it for abandoned before it was locked
        with suppress(OSError):  # where there are no locks, no other process can lock it to remove it either
            fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path, lock
        os.close(lock)


def _remove_folder(path: Path, lock: int, pid: int) -> None:
    if os.getpid() == pid:  # a forked child must not remove the folder of its parent
        shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


@cache
def _remove_abandoned_once(folder: str) -> None:
    remove_abandoned_folders(Path(folder))


def remove_abandoned_folders(folder: Path) -> None:
    """Remove the folders that killed processes of this user left behind."""
    for path in folder.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # gone by now, or of another user
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue  # it is in use
        finally:
            os.close(lock)


def write_scratch(objects: ObjectStore, at: Location, body: bytes | memoryview) -> None:
    """Write or replace a scratch file without syncing it; a reader sees all of it or nothing."""
    if not at.is_local:
        objects.write_bytes(at, bytes(body))
        return
    with wrap_os_errors("write", at.uri):
        at.path.parent.mkdir(parents=True, exist_ok=True)
        # A task may run twice at a time, so each has a file of its own until it is whole.
        begun = at.path.with_name(f"{at.path.name}#{secrets.randbelow(10**18)}")
        try:
            begun.write_bytes(body)
            begun.replace(at.path)
        finally:
            begun.unlink(missing_ok=True)


def read_scratch(at: Location, begin: int, size: int) -> bytearray:
    """Return `size` bytes of a scratch file from `begin`; fails when the file is shorter."""
    body = bytearray(size)
    filled = 0
    with open_input(at.uri) as stream:
        stream.seek(begin)
        while filled < size and (part := stream.read(size - filled)):
            body[filled : filled + len(part)] = part
            filled += len(part)
    if filled < size:
        # Temporary folders are used by forked processes, too, where importing Lance warns.
        from omnigraph.storage.failures import TableFailureKind, table_failure

        raise table_failure(
            TableFailureKind.TRANSIENT, "read", at.uri, f"only {filled} of {size} bytes are there"
        )
    return body
