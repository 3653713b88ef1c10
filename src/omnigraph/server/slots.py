"""How many exports may run: one for each graph, and as many in all as the transport has room for.

A slot is a kernel lock on a file. It is free again when its process ends, however that ends, and the workers
of a server share the slots because they share the folder.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

from omnigraph.errors import ResourceLimitExceeded

TRANSPORT_BYTES = 2 << 20
"""What all streams of a server may hold of their answers at one time."""
STREAM_BYTES = 256 << 10
"""What one stream is counted with."""
WAIT_SECONDS = 0.25
"""How long a stream waits for room."""
POLL_SECONDS = 0.01

EXPORT_SLOTS = "stream_export_slots"
TRANSPORT = "stream_export_transport_bytes"
_LATER = "try again when it has ended"


class Slot:
    """A lock that is held until it is released."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Free the slot; a second call does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class StreamSlots:
    """The export slots of all graphs of a server, and the room of its transport."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def claim_export(self, graph_id: str) -> Slot:
        """Return the one slot of a graph; raises `ResourceLimitExceeded` at once when it is taken."""
        slot = self._try_lock(f"export-{graph_id}", fcntl.LOCK_EX)
        if slot is None:
            raise ResourceLimitExceeded(EXPORT_SLOTS, limit=1, actual=2, remedy=_LATER)
        return slot

    def require_no_export(self, graph_id: str) -> None:
        """Raise `ResourceLimitExceeded` while an export of a graph runs."""
        slot = self._try_lock(f"export-{graph_id}", fcntl.LOCK_SH)
        if slot is None:
            raise ResourceLimitExceeded(EXPORT_SLOTS, limit=0, actual=1, remedy=_LATER)
        slot.release()

    async def claim_transport(self) -> Slot:
        """Return room for a stream; waits a moment, then raises `ResourceLimitExceeded`."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while (slot := self._free_room()) is None:
                    # The streams of other processes end without a word to this one.
                    await asyncio.sleep(POLL_SECONDS)
                return slot
        except TimeoutError:
            raise ResourceLimitExceeded(
                TRANSPORT, limit=TRANSPORT_BYTES, actual=TRANSPORT_BYTES + STREAM_BYTES, remedy=_LATER
            ) from None

    def _free_room(self) -> Slot | None:
        rooms = range(TRANSPORT_BYTES // STREAM_BYTES)
        found = (self._try_lock(f"transport-{number}", fcntl.LOCK_EX) for number in rooms)
        return next((slot for slot in found if slot is not None), None)

    def _try_lock(self, name: str, kind: int) -> Slot | None:
        descriptor = os.open(self._folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return Slot(descriptor)


def release_all(slots: Sequence[Slot]) -> None:
    """Free several slots."""
    for slot in slots:
        slot.release()
