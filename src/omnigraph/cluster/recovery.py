"""The recovery sweep: bring the ledger to what interrupted operations did to their graphs.

Each operation is atomic inside its graph, so nothing is undone: a row of the table below records the result,
forgets an operation that never happened, or keeps its file and blocks the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from dataclasses import replace as copy
from enum import StrEnum

from msgspec.structs import replace

from omnigraph.cluster.addresses import graph_address, schema_address
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import Findings
from omnigraph.cluster.entries import Entry
from omnigraph.cluster.live import Expected, Sight, look_at
from omnigraph.cluster.root import ClusterRoot
from omnigraph.cluster.sidecars import Operation, Sidecar
from omnigraph.cluster.state import ResourceStatus, State, Status
from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import StorageFailure
from omnigraph.storage.failures import SAYS_NOTHING


class Seen(StrEnum):
    """What is at the place of a graph, as far as an operation is concerned."""

    ABSENT = "absent"
    ABSENT_RECORDED = "absent, still in the ledger"
    PRESENT = "present"
    UNFINISHED = "an initialisation that died"
    BROKEN = "does not open"
    UNREACHABLE = "the storage failed"
    RECORDED = "has the recorded schema"
    DESIRED = "has the desired schema"
    OTHER = "has another schema"


@dataclass(frozen=True, slots=True)
class Sweep:
    """The state after a sweep, and what became of the recovery files."""

    state: State
    retired: tuple[Sidecar, ...] = ()
    """Their files go after the state was written."""
    pending: frozenset[str] = frozenset()
    """Graphs with a file that stays."""
    unfinished: Mapping[str, Sidecar] = field(default_factory=dict)
    """Creations to repeat over what they left, by graph; their files stay until one of them succeeds."""
    consumed: frozenset[str] = frozenset()
    """Approvals that were used by operations now recorded."""


@dataclass(frozen=True, slots=True)
class Case:
    """One recovery file, with what is needed to decide about it."""

    sidecar: Sidecar
    sight: Sight
    findings: Findings
    now: str
    is_declared: bool = True
    """Whether the files still have the graph."""

    @property
    def graph(self) -> str:
        """The address of the graph."""
        return graph_address(self.sidecar.graph_id)

    @property
    def schema(self) -> str:
        """The address of its schema."""
        return schema_address(self.sidecar.graph_id)


Decision = Callable[[Case, Sweep], Sweep]


def sweep(
    root: ClusterRoot, state: State, sidecars: list[Sidecar], desired: Desired, findings: Findings
) -> Sweep:
    """Decide about every recovery file, the oldest first; nothing is written."""
    done = Sweep(state)
    for sidecar in sidecars:
        sight = look_at(root, sidecar.graph_id, _expected(sidecar, done.state, desired))
        declared = sidecar.graph_id in desired.config.graphs
        case = Case(sidecar, sight, findings, root.now(), declared)
        done = ROWS[sidecar.kind, classify(case, done.state)](case, done)
    return done


def consumption(now: str) -> dict[str, str]:
    """Return the record of an approval that `apply` used."""
    return {"consumed_at": now, "consumed_by_operation": "apply"}


def classify(case: Case, state: State) -> Seen:
    """Return what an operation finds at its graph."""
    sight, sidecar = case.sight, case.sidecar
    if sight.exists is None:
        return Seen.UNREACHABLE
    if sidecar.kind is Operation.DELETE:
        if sight.exists:
            return Seen.PRESENT
        return Seen.ABSENT_RECORDED if case.graph in state.resources else Seen.ABSENT
    if not sight.exists:
        return Seen.ABSENT
    if isinstance(sight.error, StorageFailure) and sight.error.kind in SAYS_NOTHING:
        return Seen.UNREACHABLE
    if sight.live is None:
        return Seen.UNFINISHED if sight.is_unfinished else Seen.BROKEN
    recorded = state.resources.get(case.schema)
    if recorded is not None and sight.live.schema_digest == recorded.digest:
        return Seen.RECORDED
    return Seen.DESIRED if sight.live.schema_digest == sidecar.desired_schema_digest else Seen.OTHER


def _expected(sidecar: Sidecar, state: State, desired: Desired) -> Expected:
    recorded = state.resources.get(schema_address(sidecar.graph_id))
    wanted = desired.resources.get(schema_address(sidecar.graph_id))
    known = wanted is not None and wanted.digest == sidecar.desired_schema_digest
    source = wanted.file.data.decode() if known and wanted is not None and wanted.file is not None else None
    return Expected(None if recorded is None else recorded.digest, sidecar.desired_schema_digest, source)


# --- decisions ------------------------------------------------------------------------------------


def _retire(case: Case, done: Sweep) -> Sweep:
    return copy(done, retired=(*done.retired, case.sidecar))


def _create_again(case: Case, done: Sweep) -> Sweep:
    """An initialisation died before there was a graph: the next one replaces its files."""
    if not case.is_declared:
        _report_pending(
            case,
            f"it left files at '{case.sidecar.graph_uri}'; remove them, or declare the graph and apply again",
        )
    graph_id = case.sidecar.graph_id
    if graph_id in done.unfinished:  # one is enough to know that there is something to replace
        done = copy(done, retired=(*done.retired, done.unfinished[graph_id]))
    return copy(done, unfinished={**done.unfinished, graph_id: case.sidecar})


def _roll_forward(case: Case, done: Sweep) -> Sweep:
    state = done.state.put(case.schema, Entry(case.sidecar.desired_schema_digest))
    known = state.resources.get(case.graph) or Entry("")
    state = state.put(case.graph, known).compose(case.sidecar.graph_id)
    return _recorded(case, copy(done, state=state))


def _bury(case: Case, done: Sweep) -> Sweep:
    sidecar = case.sidecar
    return _recorded(case, copy(done, state=done.state.bury(sidecar.graph_id, tombstone(sidecar, case.now))))


def _recorded(case: Case, done: Sweep) -> Sweep:
    """Note that the ledger has the result of an operation now, with the approval that allowed it."""
    sidecar = case.sidecar
    record = {
        "kind": sidecar.kind.value,
        "graph_id": sidecar.graph_id,
        "outcome": "rolled_forward",
        "recovered_at": case.now,
        "actor": sidecar.actor,
    }
    records = {**done.state.recovery_records, sidecar.operation_id: record}
    state = replace(done.state, recovery_records=records)
    consumed = done.consumed
    if sidecar.approval_id is not None:
        state = state.consume(sidecar.approval_id, consumption(case.now))
        consumed |= {sidecar.approval_id}
    message = f"the interrupted {_words(sidecar)} had taken effect; the ledger has it now"
    case.findings.add("cluster_recovery_rolled_forward", case.graph, message)
    return _retire(case, copy(done, state=state, consumed=consumed))


def _keep_broken(case: Case, done: Sweep) -> Sweep:
    reason = "" if case.sight.error is None else f": {case.sight.error.message}"
    message = (
        f"graph '{case.sidecar.graph_id}' was created in part and does not open{reason}. "
        f"Remove '{case.sidecar.graph_uri}' and apply again"
    )
    case.findings.add("graph_create_incomplete", case.graph, message)
    status = ResourceStatus(Status.ERROR, ("graph_create_incomplete",), message)
    state = done.state.set_status(case.graph, status).set_status(case.schema, status)
    return _keep(case, copy(done, state=state))


def _keep_closed(case: Case, done: Sweep) -> Sweep:
    reason = (
        "it is gone; `cluster refresh` records that" if case.sight.error is None else case.sight.error.message
    )
    _report_pending(case, f"the graph does not open: {reason}")
    return _keep(case, done)


def _forget_or_keep(case: Case, done: Sweep) -> Sweep:
    """A graph that is gone has no schema to recover, once `cluster refresh` has recorded that."""
    return _keep_closed(case, done) if case.graph in done.state.resources else _retire(case, done)


def _keep_other(case: Case, done: Sweep) -> Sweep:
    _report_pending(
        case, "the live schema is neither the recorded nor the desired one; `cluster refresh` records it"
    )
    status = ResourceStatus(Status.DRIFTED, ("actual_applied_state_pending",))
    state = done.state.set_status(case.graph, status).set_status(case.schema, status)
    return _keep(case, copy(done, state=state))


def _propose_delete_again(case: Case, done: Sweep) -> Sweep:
    message = f"graph '{case.sidecar.graph_id}' was deleted in part; its delete is proposed again"
    case.findings.add("graph_delete_incomplete", case.graph, message)
    if case.graph in done.state.resources:
        status = ResourceStatus(Status.DRIFTED, ("graph_delete_incomplete",))
        done = copy(done, state=done.state.set_status(case.graph, status))
    return _retire(case, done)


def _keep(case: Case, done: Sweep) -> Sweep:
    return copy(done, pending=done.pending | {case.sidecar.graph_id})


def _report_pending(case: Case, reason: str) -> None:
    message = f"an interrupted {_words(case.sidecar)} waits for recovery: {reason}"
    case.findings.add("cluster_recovery_pending", case.graph, message)


def _words(sidecar: Sidecar) -> str:
    return f"{sidecar.kind.words} ({sidecar.operation_id})"


def tombstone(sidecar: Sidecar, now: str) -> dict[str, str | None]:
    """Return the observation that a deleted graph leaves."""
    return {
        "kind": "tombstone",
        "deleted_at": now,
        "approval_id": sidecar.approval_id,
        "actor": sidecar.actor,
    }


ROWS: Mapping[tuple[Operation, Seen], Decision] = {
    (Operation.CREATE, Seen.ABSENT): _retire,
    (Operation.SCHEMA, Seen.RECORDED): _retire,
    (Operation.CREATE, Seen.RECORDED): _retire,
    (Operation.SCHEMA, Seen.DESIRED): _roll_forward,
    (Operation.CREATE, Seen.DESIRED): _roll_forward,
    (Operation.CREATE, Seen.UNFINISHED): _create_again,
    (Operation.CREATE, Seen.BROKEN): _keep_broken,
    (Operation.SCHEMA, Seen.BROKEN): _keep_closed,
    (Operation.SCHEMA, Seen.UNFINISHED): _keep_closed,
    (Operation.SCHEMA, Seen.ABSENT): _forget_or_keep,
    (Operation.CREATE, Seen.UNREACHABLE): _keep_closed,
    (Operation.SCHEMA, Seen.UNREACHABLE): _keep_closed,
    (Operation.DELETE, Seen.UNREACHABLE): _keep_closed,
    (Operation.CREATE, Seen.OTHER): _keep_other,
    (Operation.SCHEMA, Seen.OTHER): _keep_other,
    (Operation.DELETE, Seen.ABSENT): _retire,
    (Operation.DELETE, Seen.ABSENT_RECORDED): _bury,
    (Operation.DELETE, Seen.PRESENT): _propose_delete_again,
}
