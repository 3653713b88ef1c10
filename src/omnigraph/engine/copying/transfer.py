"""Files from one store to another, several at a time, each with a checksum of what was read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore

AT_ONCE = 8

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")

Digest = bytes
"""The SHA-256 of a file."""


def copy_file(source: ObjectStore, at: Location, target: ObjectStore, to: Location) -> Digest:
    """Copy a file of any size; gives the checksum of what was read."""
    digest = hashlib.sha256()

    def chunks() -> Iterator[bytes]:
        for chunk in source.read_chunks(at):
            digest.update(chunk)
            yield chunk

    target.write_chunks(to, chunks())
    return digest.digest()


def compute_digest(store: ObjectStore, at: Location) -> Digest:
    """Compute the checksum of a stored file."""
    digest = hashlib.sha256()
    for chunk in store.read_chunks(at):
        digest.update(chunk)
    return digest.digest()


def run_parallel(do: Callable[[_Item], _Answer], items: Iterable[_Item]) -> list[_Answer]:
    """Run a function for each item in parallel; the first failure cancels those not started."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [pool.submit(do, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
