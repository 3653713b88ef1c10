"""The ledger after an apply, as a function of what took place."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from omnigraph.cluster.addresses import Kind, graph_address, graph_of, kind_of, schema_address
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.plan import Action, Change, Disposition
from omnigraph.cluster.planner import RECOVERY_PENDING, diff
from omnigraph.cluster.recovery import Sweep, consumption, tombstone
from omnigraph.cluster.sidecars import Operation, Sidecar
from omnigraph.cluster.state import APPLIED, ResourceStatus, State, Status
from omnigraph.deferred_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Converged:
    """The new state, and whether it is what the files say."""

    state: State
    converged: bool


@dataclass(frozen=True, slots=True)
class Done:
    """What an apply did."""

    changes: tuple[Change, ...]
    sidecars: tuple[Sidecar, ...]
    approvals: tuple[str, ...]
    """Approvals of changes that moved no graph; those of others are in the sidecars."""


def advance(swept: Sweep, desired: Desired, done: Done, now: str) -> Converged:
    """Record the changes that took place; the revision stays."""
    changes = done.changes
    state = swept.state
    for change in changes:
        # What waits for recovery has the status that the sweep gave it.
        if graph_of(change.resource) not in swept.pending:
            state = _record(state, desired, change)
    for approval_id in done.approvals:
        state = state.consume(approval_id, consumption(now))
    for sidecar in done.sidecars:
        if sidecar.kind is Operation.DELETE:
            state = state.bury(sidecar.graph_id, tombstone(sidecar, now))
        if sidecar.approval_id is not None:
            state = state.consume(sidecar.approval_id, consumption(now))
    by_address = {change.resource: change for change in changes}
    for address in sorted(state.resources):
        if kind_of(address) is Kind.GRAPH:
            state = _compose(state, desired, by_address, str(graph_of(address)), swept)
    converged = not diff(desired, state)
    return Converged(replace(state, config_digest=desired.config_digest) if converged else state, converged)


def _record(state: State, desired: Desired, change: Change) -> State:
    if change.disposition is Disposition.DERIVED:
        return state.set_status(change.resource, APPLIED)
    if change.disposition is Disposition.APPLIED:
        if change.operation is Action.DELETE:
            return state.forget(change.resource)
        return state.put(change.resource, desired.resources[change.resource].entry)
    if change.disposition is Disposition.BLOCKED and change.reason != RECOVERY_PENDING:
        return state.set_status(change.resource, ResourceStatus(Status.BLOCKED, (str(change.reason),)))
    return state


def _compose(
    state: State, desired: Desired, changes: Mapping[str, Change], graph_id: str, swept: Sweep
) -> State:
    """Compute the digest of a graph; while it waits for a change it keeps its provider and blob policy."""
    around = (graph_address(graph_id), schema_address(graph_id))
    waits = graph_id in swept.pending or any(
        change is not None and change.disposition not in (Disposition.APPLIED, Disposition.DERIVED)
        for change in map(changes.get, around)
    )
    wanted = desired.resources.get(graph_address(graph_id))
    return state.compose(graph_id, None if waits or wanted is None else wanted.entry)
