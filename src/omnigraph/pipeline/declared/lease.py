"""One run of a pipeline at a time: only the holder of the lease writes its records."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.root import new_id
from omnigraph.errors import BadRequest, PipelineRunInProgress
from omnigraph.pipeline.declared.records import Ledger, format_now, report_invalid_record
from omnigraph.storage.locks import HeldLocks

_held_here: set[str] = set()
"""The leases of this process; any other with this process id belongs to an earlier process."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The run that holds a pipeline."""

    lease_id: str
    run_id: str
    host: str
    pid: int
    created_at: str
    version: int = 1

    def is_dead(self) -> bool:
        """Whether the holding process is certainly gone, which only its own machine knows."""
        if self.host != socket.gethostname():
            return False
        if self.pid == os.getpid():
            return self.lease_id not in _held_here
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return False


@contextmanager
def hold_lease(ledger: Ledger, run_id: str) -> Iterator[Lease]:
    """Hold the lease of a pipeline; take over the lease of a dead process."""
    lease = Lease(new_id(), run_id, socket.gethostname(), os.getpid(), format_now())
    _held_here.add(lease.lease_id)
    try:
        _take_lease(ledger, lease)
        try:
            yield lease
        finally:
            _release_lease(ledger, lease.lease_id)
    finally:
        _held_here.discard(lease.lease_id)


def read_lease(ledger: Ledger) -> Lease | None:
    """Return the current lease, even that of a dead process."""
    at = ledger.place / "lease.json"
    text = ledger.objects.read_text_if_exists(at)
    with report_invalid_record(at):
        return None if text is None else Lease(**json.loads(text))


def force_unlock(ledger: Ledger, lease_id: str) -> Lease:
    """Remove a lease by its id; the caller must know that its process is gone."""
    found = read_lease(ledger)
    if found is None or found.lease_id != lease_id:
        held = "it is not held" if found is None else f"the current lease is '{found.lease_id}'"
        raise BadRequest(f"pipeline '{ledger.pipeline}' has no lease '{lease_id}'; {held}")
    _release_lease(ledger, lease_id)
    return found


def _take_lease(ledger: Ledger, lease: Lease) -> None:
    with _hold_lock(ledger):
        found = read_lease(ledger)
        if found is not None and not found.is_dead():
            raise PipelineRunInProgress(
                ledger.pipeline, run_id=found.run_id, lease_id=found.lease_id, host=found.host, pid=found.pid
            )
        ledger.objects.write_text(ledger.place / "lease.json", json.dumps(asdict(lease), indent=1))


def _release_lease(ledger: Ledger, lease_id: str) -> None:
    with _hold_lock(ledger):
        found = read_lease(ledger)
        if found is not None and found.lease_id == lease_id:
            ledger.objects.delete(ledger.place / "lease.json")


def _hold_lock(ledger: Ledger) -> HeldLocks:
    """Hold the lock of the pipeline briefly; branch names have no colon, so it is not the lock of one."""
    return ledger.locks.hold([f"pipeline:{ledger.pipeline}"])
