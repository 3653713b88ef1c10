"""Violations of single rows, stored in files when the load keeps all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from omnigraph.engine.load.load_job import LoadJob
from omnigraph.engine.rows.violations import Violation
from omnigraph.storage.scratch_files import write_scratch

AT_ONCE = 10_000
"""So many are in one file, and in memory."""

_READER = msgspec.msgpack.Decoder(list[Violation])


@dataclass(slots=True)
class ViolationWriter:
    """What is wrong with the rows of one item; a task that runs twice writes the same files twice."""

    job: LoadJob
    item: int
    files: int = 0
    held: list[Violation] = field(default_factory=list)

    def add(self, found: Sequence[Violation]) -> None:
        """Note some more."""
        self.held += found
        while len(self.held) >= AT_ONCE:
            self._write(self.held[:AT_ONCE])
            self.held = self.held[AT_ONCE:]

    def finish(self) -> int:
        """How many files there are in the end."""
        if self.held:
            self._write(self.held)
            self.held = []
        return self.files

    def _write(self, some: list[Violation]) -> None:
        body = msgspec.msgpack.encode(some)
        write_scratch(self.job.root.objects, self.job.violations(self.item, self.files), body)
        self.files += 1


def read_violations(job: LoadJob, item: int, files: int) -> Iterator[Violation]:
    """All that was noted about the rows of an item, in their order."""
    for number in range(files):
        body = job.root.objects.read_bytes_if_exists(job.violations(item, number))
        assert body is not None
        yield from _READER.decode(body)
