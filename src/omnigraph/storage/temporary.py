"""Folders of this machine for work under way: they go with it, or after a kill with the next use.

Whoever has a folder holds a lock of the kernel on it, which ends with its process, however that ends. So a
folder whose lock is free belongs to nobody.
"""

from __future__ import annotations

import fcntl
import os
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
from omnigraph.storage.failures import FailureKind, classify

_PREFIX = "omnigraph-held-"


class TemporaryFolder:
    """A folder that is there as long as somebody has it, or to the end of a `with` block."""

    def __init__(self, kind: str) -> None:
        with for_a_while():
            folder = tempfile.gettempdir()
            _remove_ownerless_once(folder)
            self.path, lock = _locked(folder, kind)
        self._removal = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._removal()


@contextmanager
def for_a_while() -> Iterator[None]:
    """Around writing temporary files: tells in a typed error that there is no place or no room for them."""
    try:
        yield
    except OSError as failure:
        at, (kind, _) = tempfile.tempdir or "", classify(failure)
        place = f" in '{at}'" if at else ""
        raise StorageFailure(
            f"cannot write temporary files{place}: {failure.strerror or failure}",
            # A folder that is missing here is no table or object that is not there.
            kind=FailureKind.CONFIGURATION if kind is FailureKind.NOT_FOUND else kind,
            uri=at,
            remedy="set TMPDIR to a folder that can be written and has room",
        ) from failure


def write_rows(at: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
    """Write a temporary file of rows, and tell how many; what fails in the batches themselves is not ours."""
    rows = 0
    with for_a_while():
        sink = pa.OSFile(str(at), "wb")
    with sink:
        with for_a_while():
            writer = pa.ipc.new_stream(sink, schema)
        for batch in batches:
            with for_a_while():
                writer.write_batch(batch)
            rows += batch.num_rows
        with for_a_while():
            writer.close()
    return rows


def _locked(folder: str, kind: str) -> tuple[Path, int]:
    """A new folder and the descriptor that holds its lock."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-", dir=folder))
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue  # found in the moment before it was locked, and taken for a dead one's
        with suppress(OSError):  # where there are no locks, nobody gets one to remove it either
            fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path, lock
        os.close(lock)


def _remove(path: Path, lock: int, pid: int) -> None:
    if os.getpid() == pid:  # a child that was forked has it no more than its parent gave it
        shutil.rmtree(path, ignore_errors=True)
    os.close(lock)


@cache
def _remove_ownerless_once(folder: str) -> None:
    remove_ownerless(Path(folder))


def remove_ownerless(folder: Path) -> None:
    """Remove what processes of this user left that were killed."""
    for path in folder.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # gone by now, or somebody else's
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            continue  # it is in use
        finally:
            os.close(lock)
