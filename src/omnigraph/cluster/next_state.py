"""The ledger after an apply, as a function of what took place."""

from __future__ import annotations

from msgspec.structs import replace

from omnigraph.cluster.addresses import Kind, graph_of, kind_of, name_of
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.entries import Entry
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
        if not _is_waiting(change, swept):
            state = _record(state, desired, change)
    for approval_id in done.approvals:
        state = state.consume(approval_id, consumption(now))
    for sidecar in done.sidecars:
        if sidecar.kind is Operation.DELETE:
            state = state.bury(sidecar.graph_id, tombstone(sidecar, now))
        if sidecar.approval_id is not None:
            state = state.consume(sidecar.approval_id, consumption(now))
    state = state.compose_all(_find_parts(state, desired, changes, swept))
    converged = not diff(desired, state)
    return Converged(replace(state, config_digest=desired.config_digest) if converged else state, converged)


def _is_waiting(change: Change, swept: Sweep) -> bool:
    """Whether a change is of a graph, or its schema, that has the status which the sweep gave it."""
    is_swept = kind_of(change.resource) in (Kind.GRAPH, Kind.SCHEMA)
    return is_swept and graph_of(change.resource) in swept.pending


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


def _find_parts(
    state: State, desired: Desired, changes: tuple[Change, ...], swept: Sweep
) -> dict[str, Entry]:
    """Return provider and blob policy of each graph; one that waits for a change keeps what it has."""
    waiting = {
        graph_of(change.resource)
        for change in changes
        if kind_of(change.resource) in (Kind.GRAPH, Kind.SCHEMA)
        and change.disposition not in (Disposition.APPLIED, Disposition.DERIVED)
    }
    found = {}
    for address, recorded in state.resources.items():
        if kind_of(address) is Kind.GRAPH:
            graph_id, wanted = name_of(address), desired.resources.get(address)
            waits = wanted is None or graph_id in swept.pending or graph_id in waiting
            found[graph_id] = recorded if waits or wanted is None else wanted.entry
    return found
