"""What every command reports about the ledger and its lock."""

from __future__ import annotations

from typing import Any

from omnigraph.cluster.diagnostics import Findings, Severity
from omnigraph.cluster.ledger import LedgerVersion
from omnigraph.cluster.lock import Lock, LockRejected, read_lock
from omnigraph.cluster.root import ClusterRoot
from omnigraph.deferred_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class StateObservations:
    """The ledger and its lock as a command saw them."""

    root: ClusterRoot
    ledger: LedgerVersion
    found: Lock | None = None
    """A lock of another command."""
    own: Lock | None = None
    """The lock of the command itself."""

    def to_json(self) -> dict[str, Any]:
        """The observations as a script reads them; unknown members are left out."""
        state, found = self.ledger.state, self.found
        facts: dict[str, Any] = {
            "state_path": self.root.state.uri,
            "lock_path": self.root.lock.uri,
            "state_found": state is not None,
            "applied_config_digest": None if state is None else state.config_digest,
            "state_revision": 0 if state is None else state.revision,
            "state_cas": self.ledger.cas,
            "resource_count": 0 if state is None else len(state.resources),
            "locked": found is not None,
            "lock_id": None if found is None else found.lock_id,
            "lock_acquired": self.own is not None,
            "acquired_lock_id": None if self.own is None else self.own.lock_id,
            "lock_operation": None if found is None else found.operation,
            "lock_created_at": None if found is None else found.created_at,
            "lock_pid": None if found is None else found.pid,
            "lock_age_seconds": None if found is None else found.age_seconds(self.root.clock()),
        }
        return {name: value for name, value in facts.items() if value is not None}


def find_lock(root: ClusterRoot, findings: Findings, severity: Severity = Severity.ERROR) -> Lock | None:
    """Return the lock that is held now; one that cannot be read is a finding."""
    try:
        return read_lock(root)
    except LockRejected as rejected:
        findings.add(rejected.code, root.lock.uri, str(rejected), severity=severity)
        return None
