"""`cluster status` and `cluster force-unlock`: look at a ledger and its lock without holding it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omnigraph.cluster.addresses import graph_address
from omnigraph.cluster.catalog import find_bad_payloads
from omnigraph.cluster.diagnostics import Findings, Severity
from omnigraph.cluster.ledger import LedgerVersion, read_ledger
from omnigraph.cluster.lock import LockRejected, read_lock
from omnigraph.cluster.observations import StateObservations, find_lock
from omnigraph.cluster.root import ClusterRoot, OpenRoot
from omnigraph.cluster.session import Session
from omnigraph.cluster.sidecars import read_sidecars
from omnigraph.cluster.state import State
from omnigraph.deferred_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Standing:
    """How a cluster stands by its ledger."""

    session: Session

    @property
    def findings(self) -> Findings:
        """The findings of the command."""
        return self.session.findings

    def to_json(self) -> dict[str, Any]:
        """The result as a script reads it."""
        state = self.session.state or State()
        return {
            "ok": self.findings.ok,
            "config_dir": str(self.session.directory),
            "state_observations": self.session.observed_json(),
            "resource_digests": state.digests(),
            "resource_statuses": state.statuses_json(),
            "observations": dict(sorted(state.observations.items())),
            "diagnostics": self.findings.to_json(),
        }


@dataclass(frozen=True, slots=True)
class Unlocked:
    """Whether a lock was removed."""

    session: Session
    lock_removed: bool = False

    @property
    def findings(self) -> Findings:
        """The findings of the command."""
        return self.session.findings

    def to_json(self) -> dict[str, Any]:
        """The result as a script reads it."""
        return {
            "ok": self.findings.ok,
            "config_dir": str(self.session.directory),
            "state_observations": self.session.observed_json(),
            "lock_removed": self.lock_removed,
            "diagnostics": self.findings.to_json(),
        }


def status(directory: Path, open_root: OpenRoot = ClusterRoot.at) -> Standing:
    """Read the ledger, verify published copies, and report what waits; nothing is written."""
    session = Session(directory, open_root)
    findings = session.findings
    with session.reporting():
        root = open_root(session.load_config().root)
        session.observed = StateObservations(root, LedgerVersion(None))
        lock = find_lock(root, findings, Severity.WARNING)
        ledger = read_ledger(root, findings)
        session.observed = StateObservations(root, ledger, lock)
        for one in read_sidecars(root, findings):
            message = f"an interrupted {one.kind.words} waits for recovery"
            findings.add("cluster_recovery_pending", graph_address(one.graph_id), message)
        if ledger.state is None:
            message = "there is no ledger yet; run `omnigraph cluster import`"
            findings.add("state_missing", root.state.uri, message, severity=Severity.WARNING)
            return Standing(session)
        for bad in find_bad_payloads(root, ledger.state.resources):
            findings.add(bad.state.code, bad.address, bad.message)
    return Standing(session)


def force_unlock(directory: Path, lock_id: str, open_root: OpenRoot = ClusterRoot.at) -> Unlocked:
    """Remove the lock if it has exactly this id; its command must be gone for certain."""
    session = Session(directory, open_root)
    removed = False
    with session.reporting():
        root = open_root(session.load_config().root)
        session.observed = StateObservations(root, LedgerVersion(None))
        try:
            lock = read_lock(root)
        except LockRejected as rejected:
            session.findings.stop(rejected.code, root.lock.uri, str(rejected))
        session.observed = StateObservations(root, read_ledger(root, session.findings), lock)
        if lock is None:
            session.findings.stop("state_lock_missing", root.lock.uri, "the cluster is not locked")
        if lock.lock_id != lock_id:
            message = f"the lock has the id '{lock.lock_id}', not '{lock_id}'"
            session.findings.stop("state_lock_id_mismatch", root.lock.uri, message)
        root.objects.delete(root.lock)
        removed = True
    return Unlocked(session, removed)
