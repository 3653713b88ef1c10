"""Ids of a load by their hashes, on file: two with one hash may be equal, all others are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.load.load_job import LoadJob
from omnigraph.engine.tasks.buckets import Hashes
from omnigraph.storage.scratch_files import read_scratch, write_scratch

RANGES = 256
"""Hashes lie on file by their first byte, so that a file can be read in so many parts."""
_REST = np.uint64(64 - 8)
_SIZE = 8


@dataclass(frozen=True, slots=True)
class IdHashes:
    """A file of hashes; it travels between processes."""

    name: str
    cuts: NDArray[np.int64]
    """Where the hashes with each first byte begin in the file, and where the last ones end."""

    @property
    def count(self) -> int:
        """How many hashes there are."""
        return int(self.cuts[-1])


def write_id_hashes(job: LoadJob, name: str, hashes: Sequence[Hashes]) -> IdHashes:
    """Put hashes on file."""
    together = np.concatenate(hashes)
    first = (together >> _REST).astype(np.uint8)
    order = np.argsort(first, kind="stable")
    cuts = np.concatenate([[0], np.cumsum(np.bincount(first, minlength=RANGES))])
    write_scratch(job.root.objects, job.id_hashes(name), together[order].astype("<u8", copy=False).data)
    return IdHashes(name, cuts)


def are_distinct(job: LoadJob, files: Sequence[IdHashes], first: int, last: int) -> bool:
    """Whether no hash is there twice of those whose first byte is at least `first` and below `last`."""
    parts = [_part(job, file, first, last) for file in files]
    for byte in range(first, last):
        # Few at a time, which are in order much sooner than all together.
        found = np.concatenate(
            [
                part[file.cuts[byte] - file.cuts[first] : file.cuts[byte + 1] - file.cuts[first]]
                for part, file in zip(parts, files, strict=True)
            ]
        )
        found.sort()
        if (found[1:] == found[:-1]).any():
            return False
    return True


def _part(job: LoadJob, file: IdHashes, first: int, last: int) -> Hashes:
    begin, end = int(file.cuts[first]), int(file.cuts[last])
    body = read_scratch(job.id_hashes(file.name), begin * _SIZE, (end - begin) * _SIZE)
    return np.frombuffer(body, "<u8").astype(np.uint64, copy=False)
