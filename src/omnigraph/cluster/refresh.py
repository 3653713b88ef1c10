"""`cluster refresh` and `cluster import`: record in the ledger what is really there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from omnigraph.cluster.addresses import Kind, graph_address, graph_of, kind_of, name_of, schema_address
from omnigraph.cluster.approvals import Approvals, record_consumption
from omnigraph.cluster.catalog import PayloadState, find_bad_payloads
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import Findings
from omnigraph.cluster.entries import Entry
from omnigraph.cluster.ledger import LedgerVersion, require_integrity, write_ledger
from omnigraph.cluster.live import Expected, Sight, look_at, observation
from omnigraph.cluster.pipeline_runs import PARTIAL, PARTIAL_RUN, summarize_runs
from omnigraph.cluster.preview import schema_text
from omnigraph.cluster.recovery import Sweep, sweep
from omnigraph.cluster.root import ClusterRoot, OpenRoot
from omnigraph.cluster.session import Session
from omnigraph.cluster.sidecars import read_sidecars, remove_sidecar
from omnigraph.cluster.state import APPLIED, ResourceStatus, State, Status
from omnigraph.deferred_dataclass import dataclass

Name = Literal["refresh", "import"]


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The ledger after it was compared with what is there."""

    session: Session
    operation: Name

    @property
    def findings(self) -> Findings:
        """The findings of the command."""
        return self.session.findings

    def to_json(self) -> dict[str, Any]:
        """The result as a script reads it."""
        state = self.session.state or State()
        return {
            "ok": self.findings.ok,
            "operation": self.operation,
            "config_dir": str(self.session.directory),
            "state_observations": self.session.observed_json(),
            "resource_digests": state.digests(),
            "resource_statuses": state.statuses_json(),
            "observations": dict(sorted(state.observations.items())),
            "diagnostics": self.findings.to_json(),
        }


def refresh(directory: Path, open_root: OpenRoot = ClusterRoot.at) -> Refreshed:
    """Compare the ledger with published copies and live graphs, and record the differences."""
    return _run(Session(directory, open_root), "refresh")


def import_graphs(directory: Path, open_root: OpenRoot = ClusterRoot.at) -> Refreshed:
    """Make the first ledger from the graphs that are there; any error leaves none."""
    return _run(Session(directory, open_root), "import")


def _run(session: Session, operation: Name) -> Refreshed:
    findings = session.findings
    with session.reporting():
        desired = session.load()
        with session.locked(operation, desired.config) as (root, ledger):
            before = _starting_state(root, ledger, desired, operation, findings)
            require_integrity(before, findings)
            swept = sweep(root, before, read_sidecars(root, findings), desired, findings)
            state = _verify_catalog(root, swept.state, findings)
            state = _observe_graphs(root, state, desired, swept, findings)
            state = _observe_pipelines(root, state)
            approvals = session.approvals(root, State())
            if operation == "import":
                state = _recall_approvals(state, approvals)
            if operation == "refresh" or findings.ok:
                state = replace(state, revision=before.revision + 1)
                session.wrote(write_ledger(root, state, ledger, findings))
                _finish(root, swept, approvals, state, findings)
    return Refreshed(session, operation)


def _starting_state(
    root: ClusterRoot, ledger: LedgerVersion, desired: Desired, operation: Name, findings: Findings
) -> State:
    if operation == "import":
        if ledger.state is not None:
            message = "there is a ledger already; `cluster refresh` compares it with what is there"
            findings.stop("state_already_exists", root.state.uri, message)
        return State(config_digest=desired.config_digest)
    if ledger.state is None:
        message = "there is no ledger yet; run `omnigraph cluster import` first"
        findings.stop("state_missing", root.state.uri, message)
    return ledger.state


def _verify_catalog(root: ClusterRoot, state: State, findings: Findings) -> State:
    """Forget the digest of each copy that is gone or changed, so that the next apply publishes it again."""
    for bad in find_bad_payloads(root, state.resources):
        findings.add(bad.state.code, bad.address, bad.message)
        if bad.state is PayloadState.UNREADABLE:
            status = ResourceStatus(Status.ERROR, (bad.state.value,), bad.message)
            state = state.set_status(bad.address, status)
        else:
            state = state.forget(
                bad.address, status=ResourceStatus(Status.DRIFTED, (bad.state.value,), bad.message)
            )
            graph_id = graph_of(bad.address)
            state = state if graph_id is None else state.compose(graph_id)
    return state


def _observe_graphs(
    root: ClusterRoot, state: State, desired: Desired, swept: Sweep, findings: Findings
) -> State:
    failed = []
    for graph_id in sorted(desired.config.graphs):
        address = schema_address(graph_id)
        wanted, recorded = desired.resources[address], state.resources.get(address)
        expected = Expected(
            None if recorded is None else recorded.digest, wanted.digest, schema_text(desired, address)
        )
        is_unfinished = graph_id in swept.unfinished
        sight = Sight(exists=False) if is_unfinished else look_at(root, graph_id, expected)
        state = state.observe(graph_address(graph_id), observation(root, graph_id, sight, wanted.digest))
        if sight.error is None:
            state = _record(state, graph_id, sight, wanted.digest)
        else:
            failed.append(f"'{graph_id}': {sight.error.message}")
            state = state if graph_id in swept.pending else _mark_unreadable(state, graph_id, sight)
    if failed:
        message = f"{len(failed)} graph(s) cannot be opened: {'; '.join(failed)}"
        findings.add("graph_observation_error", "graphs", message)
    return state


def _record(state: State, graph_id: str, sight: Sight, wanted: str) -> State:
    graph, schema = graph_address(graph_id), schema_address(graph_id)
    if sight.live is None:
        gone = ResourceStatus(Status.DRIFTED, ("graph_missing",))
        return state.forget(graph, status=gone).forget(schema, status=gone)
    fits = sight.live.schema_digest == wanted
    status = APPLIED if fits else ResourceStatus(Status.DRIFTED, ("schema_mismatch",))
    known = state.resources.get(graph) or Entry("")
    state = state.put(schema, Entry(sight.live.schema_digest), status).put(graph, known, status)
    return state.compose(graph_id)


def _mark_unreadable(state: State, graph_id: str, sight: Sight) -> State:
    message = None if sight.error is None else sight.error.message
    status = ResourceStatus(Status.ERROR, ("graph_observation_error",), message)
    return state.set_status(graph_address(graph_id), status).set_status(schema_address(graph_id), status)


def _observe_pipelines(root: ClusterRoot, state: State) -> State:
    """Copy a summary of the runs of each pipeline; its status is about its definition."""
    for address in sorted(state.resources):
        if kind_of(address) is Kind.PIPELINE:
            seen = summarize_runs(root, name_of(address))
            state = state.observe(address, seen)
            status = state.statuses.get(address, APPLIED)
            if status.status is Status.APPLIED:
                found = (PARTIAL_RUN,) if seen["last_status"] == PARTIAL else ()
                state = state.set_status(address, replace(status, conditions=found))
    return state


def _recall_approvals(state: State, approvals: Approvals) -> State:
    """Refill the records of consumed approvals from their files, which outlive a ledger."""
    for one in approvals.found:
        if not one.is_pending:
            state = state.consume(one.approval_id, one.record())
    return state


def _finish(root: ClusterRoot, swept: Sweep, approvals: Approvals, state: State, findings: Findings) -> None:
    for sidecar in swept.retired:
        remove_sidecar(root, sidecar.operation_id, findings)
    for approval in approvals.found:
        record = state.approval_records.get(approval.approval_id)
        if approval.is_pending and record is not None:
            record_consumption(root, approval, record, findings)
