"""One run of a pipeline at a time: whoever holds the lease may write its records."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from omnigraph.engine.root import Root, new_id
from omnigraph.errors import BadRequest, PipelineRunInProgress
from omnigraph.pipeline.declared.records import Ledger, now
from omnigraph.storage.locks import Held

_held_here: set[str] = set()
"""The leases of this process; one that names this process and is not among them is of an earlier one."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who is at work."""

    lease_id: str
    run_id: str
    host: str
    pid: int
    created_at: str
    version: int = 1

    def is_dead(self) -> bool:
        """Whether the process that took it is gone for certain, which only its own machine can tell."""
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
def leased(ledger: Ledger, run_id: str) -> Iterator[Lease]:
    """Hold the lease of a pipeline; that of a process which is gone is taken over."""
    lease = Lease(new_id(), run_id, socket.gethostname(), os.getpid(), now())
    _held_here.add(lease.lease_id)
    try:
        _take(ledger, lease)
        try:
            yield lease
        finally:
            _give_back(ledger, lease.lease_id)
    finally:
        _held_here.discard(lease.lease_id)


def holder(ledger: Ledger) -> Lease | None:
    """Who holds the lease, dead or alive."""
    text = ledger.root.objects.read_text_if_exists(ledger.place / "lease.json")
    return None if text is None else Lease(**json.loads(text))


def force_unlock(ledger: Ledger, lease_id: str) -> Lease:
    """Remove the lease of a process that is gone for certain."""
    found = holder(ledger)
    if found is None or found.lease_id != lease_id:
        held = "nobody holds one" if found is None else f"the one that is held is '{found.lease_id}'"
        raise BadRequest(f"pipeline '{ledger.pipeline}' has no lease '{lease_id}'; {held}")
    _give_back(ledger, lease_id)
    return found


def _take(ledger: Ledger, lease: Lease) -> None:
    with _locked(ledger.root, ledger.pipeline):
        found = holder(ledger)
        if found is not None and not found.is_dead():
            raise PipelineRunInProgress(
                ledger.pipeline, run_id=found.run_id, lease_id=found.lease_id, host=found.host, pid=found.pid
            )
        ledger.root.objects.write_text(ledger.place / "lease.json", json.dumps(asdict(lease), indent=1))


def _give_back(ledger: Ledger, lease_id: str) -> None:
    with _locked(ledger.root, ledger.pipeline):
        found = holder(ledger)
        if found is not None and found.lease_id == lease_id:
            ledger.root.objects.delete(ledger.place / "lease.json")


def _locked(root: Root, pipeline: str) -> Held:
    """No branch has a colon in its name, so this is the lock of no branch; it is held for a moment only."""
    return root.locks.hold([f"pipeline:{pipeline}"])
