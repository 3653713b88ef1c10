"""One command on a cluster: its configuration, its root, and the ledger under the lock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from omnigraph.cluster.approvals import Approvals, read_approvals
from omnigraph.cluster.config import ClusterConfig
from omnigraph.cluster.desired import Desired, load_desired
from omnigraph.cluster.diagnostics import Findings, Severity, words
from omnigraph.cluster.ledger import LedgerVersion, read_ledger
from omnigraph.cluster.lock import hold_lock
from omnigraph.cluster.observations import StateObservations, find_lock
from omnigraph.cluster.read_config import read_config
from omnigraph.cluster.root import ClusterRoot, OpenRoot
from omnigraph.cluster.state import State
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.lineage import require_actor
from omnigraph.errors import InvalidName


@dataclass(slots=True)
class Session:
    """What a command knows so far; commands that fail report it as well."""

    directory: Path
    open_root: OpenRoot = ClusterRoot.at
    findings: Findings = field(default_factory=Findings)
    desired: Desired | None = None
    observed: StateObservations | None = None

    def load(self) -> Desired:
        """Load the configuration with all its files; one with a mistake ends the command."""
        self.desired = load_desired(self.directory, self.findings)
        if self.desired is None or not self.findings.ok:
            raise Unloadable
        return self.desired

    def require_actor(self, actor: str | None, path: str) -> None:
        """End the command when a name cannot be that of an actor."""
        try:
            if actor is not None:
                require_actor(actor)
        except InvalidName as wrong:
            self.findings.stop("actor_required", path, words(wrong))

    def load_config(self) -> ClusterConfig:
        """Load `cluster.yaml` alone; one with a mistake ends the command."""
        config = read_config(self.directory, self.findings)
        if config is None:
            raise Unloadable
        return config

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Turn what ends the command into findings."""
        with self.findings.stoppable():
            try:
                yield
            except Unloadable:
                return

    @contextmanager
    def locked(self, operation: str, config: ClusterConfig) -> Iterator[tuple[ClusterRoot, LedgerVersion]]:
        """Hold the lock of the cluster, and read its ledger."""
        root = self.open_root(config.root)
        self.observed = StateObservations(root, LedgerVersion(None))
        try:
            with hold_lock(root, operation, self.findings, enabled=config.locks) as lock:
                self.observed = replace(self.observed, own=lock)
                ledger = read_ledger(root, self.findings)
                self.observed = replace(self.observed, ledger=ledger)
                yield root, ledger
        finally:
            if self.findings_hold_lock():
                self.observed = replace(self.observed, found=find_lock(root, self.findings, Severity.WARNING))

    def findings_hold_lock(self) -> bool:
        """Whether the command did not get the lock although it wanted it."""
        return self.observed is not None and self.observed.own is None and not self._has_no_lock()

    def _has_no_lock(self) -> bool:
        return self.findings.has("state_lock_disabled")

    def approvals(self, root: ClusterRoot, state: State) -> Approvals:
        """Read the approvals; those that the ledger has as consumed authorize nothing."""
        return read_approvals(root, self.findings, state.approval_records)

    def wrote(self, ledger: LedgerVersion) -> None:
        """Note the ledger that the command wrote."""
        if self.observed is not None:
            self.observed = replace(self.observed, ledger=ledger)

    @property
    def state(self) -> State | None:
        """The ledger that is on disk, as far as the command knows."""
        return None if self.observed is None else self.observed.ledger.state

    def observed_json(self) -> dict[str, Any]:
        """What the command reports about ledger and lock."""
        return {} if self.observed is None else self.observed.to_json()


class Unloadable(Exception):
    """The configuration has mistakes, which are findings already."""
