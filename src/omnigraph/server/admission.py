"""How much one actor may have under way: a number of requests, and an estimate of their bytes.

The workers of a server share a table: a row for each actor, a column for each worker. A worker changes only
its own column, under a kernel lock on the file, so one that is killed leaves a column that can be cleared.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from omnigraph.errors import TooManyRequests
from omnigraph.server.board import Board
from omnigraph.server.settings import Limits

ANONYMOUS = "anonymous"
"""The bucket of requests without an actor."""
BRANCH_BYTES = 256
"""What an operation on a branch counts as."""

_USAGE = struct.Struct("<qq")
"""Requests and bytes of one actor in one worker."""


class Admission:
    """Counts what each actor has in flight in all workers; a refused request leaves nothing behind."""

    def __init__(self, limits: Limits, board: Board, actors: Sequence[str] = ()) -> None:
        self._limits = limits
        self._table = AdmissionTable(board, 1 + len(actors))
        # Every worker has the same actors in the same order.
        self._rows = {actor: row for row, actor in enumerate((None, *actors))}
        self._lock = threading.Lock()
        self._running = 0

    @contextmanager
    def admit(self, actor: str | None, size: int) -> Iterator[None]:
        """Count a request while it runs; raises `TooManyRequests` when it is one too many."""
        # Only the owner of a personal server has a name without a token, and is alone there.
        row = self._rows.get(actor, 0)
        with self._lock, self._table.locked():
            self._require_room(ANONYMOUS if actor is None else actor, row, size)
            self._table.change(row, 1, size)
            self._running += 1
        try:
            yield
        finally:
            with self._lock, self._table.locked():
                self._table.change(row, -1, -size)
                self._running -= 1

    def in_flight(self) -> int:
        """How many admitted requests run in this worker."""
        return self._running

    def close(self) -> None:
        """Let go of the table."""
        self._table.close()

    def _require_room(self, name: str, row: int, size: int) -> None:
        requests, used = self._table.usage(row)
        if requests >= self._limits.inflight:
            raise TooManyRequests(f"actor in-flight count cap {self._limits.inflight} exceeded", actor=name)
        if used + size > self._limits.bytes:
            raise TooManyRequests(
                f"actor byte budget exceeded: would use {used + size} bytes against cap {self._limits.bytes}",
                actor=name,
            )


class AdmissionTable:
    """The table in its file, from the side of one worker."""

    def __init__(self, board: Board, rows: int) -> None:
        self._column, self._columns, self._rows = board.index, board.count, rows
        size = rows * board.count * _USAGE.size
        self._descriptor = os.open(board.admissions, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._descriptor, size)
        self._map = mmap.mmap(self._descriptor, size)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other workers from changing the table; the kernel ends this with the process."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def usage(self, row: int) -> tuple[int, int]:
        """Return requests and bytes of an actor in all workers."""
        cells = [_USAGE.unpack_from(self._map, self._place(row, column)) for column in range(self._columns)]
        return sum(cell[0] for cell in cells), sum(cell[1] for cell in cells)

    def change(self, row: int, requests: int, size: int) -> None:
        """Count something in or out."""
        place = self._place(row, self._column)
        had = _USAGE.unpack_from(self._map, place)
        _USAGE.pack_into(self._map, place, had[0] + requests, had[1] + size)

    def clear(self) -> None:
        """Forget what this worker had under way, because it ended."""
        with self.locked():
            for row in range(self._rows):
                _USAGE.pack_into(self._map, self._place(row, self._column), 0, 0)

    def close(self) -> None:
        """Let go of the file."""
        self._map.close()
        os.close(self._descriptor)

    def _place(self, row: int, column: int) -> int:
        return (row * self._columns + column) * _USAGE.size
