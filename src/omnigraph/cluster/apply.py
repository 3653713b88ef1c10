"""Converge a cluster to its files: the only module whose effects reach graphs.

lock      read the ledger, check it, let the sweep record interrupted operations
plan      compare, find approvals, decide about each change; a stored plan must still hold
graphs    create, then change schemas; the first failure ends this part and blocks what depends on it
payloads  store queries, policies and pipelines
deletes   remove graphs whose delete was approved
record    one compare-and-swap of the ledger; then recovery files go and approvals are marked
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace as with_members

from omnigraph import failpoints
from omnigraph.cluster.addresses import Kind, graph_of, kind_of
from omnigraph.cluster.approvals import Approvals, record_consumption
from omnigraph.cluster.catalog import payload_place, store_payload
from omnigraph.cluster.demotion import demote
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import Findings, stopped, words
from omnigraph.cluster.entries import Entries
from omnigraph.cluster.graph_work import GraphWork, Refused, reach
from omnigraph.cluster.ledger import LedgerVersion, require_integrity, write_ledger
from omnigraph.cluster.next_state import Done, advance
from omnigraph.cluster.plan import Action, Change, Disposition, Plan, select
from omnigraph.cluster.plan_file import require_current
from omnigraph.cluster.planner import Circumstances, build_plan, needs_overwrite_approval
from omnigraph.cluster.preview import is_schema_update, preview
from omnigraph.cluster.recovery import Sweep, sweep
from omnigraph.cluster.root import ClusterRoot, OpenRoot
from omnigraph.cluster.session import Session
from omnigraph.cluster.sidecars import read_sidecars, remove_sidecar
from omnigraph.cluster.state import State
from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import OmnigraphError
from omnigraph.progress import stage


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """Who applies, and the stored plan that must still hold."""

    actor: str | None = None
    plan_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """What an apply did."""

    session: Session
    actor: str | None
    changes: tuple[Change, ...] = ()
    converged: bool = False
    state_written: bool = False

    @property
    def findings(self) -> Findings:
        """The findings of the command."""
        return self.session.findings

    @property
    def applied_count(self) -> int:
        """How many changes took place."""
        return self._count(Disposition.APPLIED, Disposition.DERIVED)

    @property
    def deferred_count(self) -> int:
        """How many changes were left."""
        return self._count(Disposition.DEFERRED, Disposition.BLOCKED)

    def to_json(self) -> dict[str, Any]:
        """The result as a script reads it."""
        desired, state = self.session.desired, self.session.state
        found: dict[str, Any] = {
            "ok": self.findings.ok,
            "config_dir": str(self.session.directory),
            "actor": self.actor,
            "desired_revision": {} if desired is None else {"config_digest": desired.config_digest},
            "state_observations": self.session.observed_json(),
            "changes": [change.to_json() for change in self.changes],
            "applied_count": self.applied_count,
            "deferred_count": self.deferred_count,
            "converged": self.converged,
            "state_written": self.state_written,
            "resource_statuses": {} if state is None else state.statuses_json(),
            "diagnostics": self.findings.to_json(),
        }
        return {name: value for name, value in found.items() if value is not None}

    def _count(self, *dispositions: Disposition) -> int:
        return sum(change.disposition in dispositions for change in self.changes)


def apply(directory: Path, options: ApplyOptions, open_root: OpenRoot = ClusterRoot.at) -> Applied:
    """Converge a cluster as far as it can be, and record what was done."""
    session = Session(directory, open_root)
    result = Applied(session, options.actor)
    run = _Apply(session, options)
    with session.reporting():
        session.require_actor(options.actor, "apply")
        desired = session.load()
        with session.locked("apply", desired.config) as (root, ledger):
            if ledger.state is None:
                message = "there is no ledger yet; run `omnigraph cluster import` first"
                session.findings.stop("state_missing", root.state.uri, message)
            run.run(root, ledger, ledger.state, desired)
    return replace(result, changes=run.changes, converged=run.converged, state_written=run.written)


def require_approvals(plan: Plan) -> None:
    """End the command if a gated change would run without its approval: the planner has a mistake."""
    for gate in plan.gates:
        change = plan.find(gate.resource)
        if not gate.satisfied and change is not None and change.disposition is Disposition.APPLIED:
            message = f"'{gate.resource}' was about to be changed without its approval"
            raise stopped("apply_approval_invariant_violation", gate.resource, message)


@dataclass(slots=True)
class _Apply:
    """One apply; what it did so far is reported even when it ends early."""

    session: Session
    options: ApplyOptions
    changes: tuple[Change, ...] = ()
    converged: bool = False
    written: bool = False
    failed: dict[str, str] = field(default_factory=dict)
    """The changes that failed, with their reasons."""

    @property
    def findings(self) -> Findings:
        return self.session.findings

    def run(self, root: ClusterRoot, ledger: LedgerVersion, before: State, desired: Desired) -> None:
        require_integrity(before, self.findings)
        swept = sweep(root, before, read_sidecars(root, self.findings), desired, self.findings)
        approvals = self.session.approvals(root, swept.state)
        plan = self._plan(root, ledger, desired, swept, approvals)
        self.changes = plan.changes
        require_approvals(plan)
        work = GraphWork(root, desired, swept.state, self.options.actor, ledger.cas, self.findings)
        with stage("apply", tasks=None) as progress:
            done = partial(progress.advance, tasks=1)
            self._create_graphs(work, swept, done)
            self._apply_schemas(work, plan, approvals, done)
            self._demote(desired, swept.state.resources)
            self._store_payloads(root, desired, done)
            reach(failpoints.CLUSTER_APPLY_AFTER_PAYLOAD_PHASE)
            self._delete_graphs(work, plan, approvals, done)
            self._demote(desired, swept.state.resources)
        self._record(root, ledger, desired, swept, work, approvals)

    def _plan(
        self,
        root: ClusterRoot,
        ledger: LedgerVersion,
        desired: Desired,
        swept: Sweep,
        approvals: Approvals,
    ) -> Plan:
        circumstances = Circumstances(ledger.cas, swept.pending, approvals)
        plan = build_plan(desired, swept.state, circumstances, self.findings)
        plan = preview(root, desired, plan, approvals, self.findings)
        if self.options.plan_file is not None:
            require_current(self.options.plan_file, plan)
        return plan

    # --- graphs ----------------------------------------------------------------------------------

    def _create_graphs(self, work: GraphWork, swept: Sweep, done: Callable[[], None]) -> None:
        for change in select(self.changes, Action.CREATE, Disposition.APPLIED):
            if kind_of(change.resource) is Kind.GRAPH:
                graph_id = str(graph_of(change.resource))
                earlier = swept.unfinished.get(graph_id)
                self._try(change, "graph_create", partial(work.create, graph_id, earlier))
                done()

    def _apply_schemas(
        self, work: GraphWork, plan: Plan, approvals: Approvals, done: Callable[[], None]
    ) -> None:
        for change in filter(is_schema_update, self.changes):
            fence = plan.fences.get(str(graph_of(change.resource)))
            approval_id = approvals.find_id(change.question(plan.config_digest))
            self._try(change, "schema_apply", partial(work.apply_schema, change, fence, approval_id))
            done()

    def _delete_graphs(
        self, work: GraphWork, plan: Plan, approvals: Approvals, done: Callable[[], None]
    ) -> None:
        for change in select(self.changes, Action.DELETE, Disposition.APPLIED):
            if kind_of(change.resource) is Kind.GRAPH:
                graph_id = str(graph_of(change.resource))
                approval_id = approvals.find_id(change.question(plan.config_digest))
                self._try(change, "graph_delete", partial(work.delete, graph_id, approval_id))
                done()

    def _try(self, change: Change, operation: str, run: Callable[[], None]) -> None:
        """Run one operation, unless an earlier one failed."""
        if self.failed:
            message = f"'{change.resource}' was left alone because of the failure before"
            self.findings.add(f"{operation}_skipped", change.resource, message)
            self.failed[change.resource] = "dependency_not_applied"
            return
        try:
            run()
        except Refused as refused:
            self._fail(change, refused.code, f"{operation}_failed", str(refused))
        except OmnigraphError as error:
            self._fail(change, f"{operation}_failed", f"{operation}_failed", words(error))

    def _fail(self, change: Change, code: str, reason: str, message: str) -> None:
        self.findings.add(code, change.resource, message)
        self.failed[change.resource] = reason

    def _demote(self, desired: Desired, recorded: Entries) -> None:
        self.changes = demote(self.changes, self.failed, desired, recorded)

    # --- catalog ---------------------------------------------------------------------------------

    def _store_payloads(self, root: ClusterRoot, desired: Desired, done: Callable[[], None]) -> None:
        for change in self.changes:
            place = payload_place(root, change.resource, change.after_digest or "")
            if place is None or change.disposition is not Disposition.APPLIED or change.after_digest is None:
                continue
            file = desired.resources[change.resource].file
            data = None if file is None else file.read_again()
            if file is None or data is None:
                message = f"the file of '{change.resource}' changed while the command ran; run it again"
                raise stopped("resource_content_changed", change.resource, message)
            try:
                store_payload(root, place, data)
            except OmnigraphError as error:
                raise stopped("payload_write_error", change.resource, words(error)) from error
            done()

    def _used_approvals(self, desired: Desired, approvals: Approvals) -> tuple[str, ...]:
        """Return the approvals of pipelines that overwrite rows and were published."""
        found = (
            approvals.find_id(change.question(desired.config_digest))
            for change in self.changes
            if change.disposition is Disposition.APPLIED and needs_overwrite_approval(change, desired)
        )
        return tuple(one for one in found if one is not None)

    # --- the ledger ------------------------------------------------------------------------------

    def _record(
        self,
        root: ClusterRoot,
        ledger: LedgerVersion,
        desired: Desired,
        swept: Sweep,
        work: GraphWork,
        approvals: Approvals,
    ) -> None:
        done = Done(self.changes, tuple(work.done), self._used_approvals(desired, approvals))
        after = advance(swept, desired, done, root.now())
        if after.state != ledger.state:
            state = with_members(after.state, revision=after.state.revision + 1)
            reach(failpoints.CLUSTER_APPLY_BEFORE_STATE_WRITE)
            self.session.wrote(write_ledger(root, state, ledger, self.findings))
            self.written = True
        self.converged = after.converged
        for sidecar in (*swept.retired, *work.done):
            remove_sidecar(root, sidecar.operation_id, self.findings)
        for approval in approvals.found:
            record = after.state.approval_records.get(approval.approval_id)
            if approval.is_pending and record is not None:
                record_consumption(root, approval, record, self.findings)
