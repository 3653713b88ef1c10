"""Build a plan: compare the files with the ledger, find the gates, and decide about each change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace

from omnigraph.cluster.addresses import Kind, graph_address, graph_of, kind_of, schema_address
from omnigraph.cluster.approvals import Approvals
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import Findings
from omnigraph.cluster.entries import Entries, Entry, find_users
from omnigraph.cluster.plan import (
    DELETE_REASON,
    OVERWRITE_REASON,
    Action,
    Change,
    Disposition,
    Gate,
    Metadata,
    Plan,
)
from omnigraph.cluster.state import State
from omnigraph.deferred_dataclass import dataclass

RECOVERY_PENDING = "cluster_recovery_pending"
APPROVAL_REQUIRED = "approval_required"
NOT_APPLIED = "dependency_not_applied"
UNSUPPORTED = "apply_unsupported_kind"

Verdict = tuple[Disposition, str | None]
_APPLIED: Verdict = (Disposition.APPLIED, None)


def _blocked(reason: str) -> Verdict:
    return Disposition.BLOCKED, reason


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a plan depends on besides the files and the ledger."""

    state_cas: str | None = None
    pending: frozenset[str] = frozenset()
    """Graphs with an interrupted operation."""
    approvals: Approvals = field(default_factory=Approvals)


def diff(desired: Desired, state: State) -> list[Change]:
    """Return what differs between the files and the ledger, by address."""
    found = []
    for address in sorted({*desired.resources, *state.resources}):
        wanted, recorded = desired.resources.get(address), state.resources.get(address)
        change = _compare(address, None if wanted is None else wanted.entry, recorded)
        if change is not None:
            found.append(change)
    return found


def build_plan(desired: Desired, state: State, circumstances: Circumstances, findings: Findings) -> Plan:
    """Return the plan; deferred and blocked changes and stale approvals are findings."""
    changes = diff(desired, state)
    verdicts = _Classifier(desired, changes, circumstances, state.resources)
    decided = tuple(_decide(one, verdicts) for one in changes)
    gates = tuple(
        Gate(one.resource, reason, verdicts.is_approved(one)) for one, reason in find_gated(changes, desired)
    )
    report_idle(decided, findings)
    questions = [one.question(desired.config_digest) for one in decided]
    circumstances.approvals.report_stale(questions, findings)
    radius = {one.resource: tuple(desired.dependents(one.resource)) for one in decided}
    return Plan(desired.config_digest, circumstances.state_cas, decided, gates, radius)


def find_gated(changes: Iterable[Change], desired: Desired) -> list[tuple[Change, str]]:
    """Return the changes that need an approval, with the reason.

    These are a deleted graph, a schema deleted without its graph, and a pipeline that overwrites rows.
    """
    listed = list(changes)
    deleted = {one.resource for one in listed if one.operation is Action.DELETE}
    found = []
    for one in listed:
        if needs_overwrite_approval(one, desired):
            found.append((one, OVERWRITE_REASON))
        elif one.operation is Action.DELETE and (
            kind_of(one.resource) is Kind.GRAPH
            or (
                kind_of(one.resource) is Kind.SCHEMA
                and graph_address(str(graph_of(one.resource))) not in deleted
            )
        ):
            found.append((one, DELETE_REASON))
    return found


def needs_overwrite_approval(change: Change, desired: Desired) -> bool:
    """Whether a change brings a pipeline that replaces stored rows."""
    return change.operation is not Action.DELETE and desired.overwrites(change.resource)


def report_idle(changes: tuple[Change, ...], findings: Findings) -> None:
    """Note each change that apply leaves alone."""
    for one in changes:
        if one.disposition is Disposition.DEFERRED:
            message = f"{one.operation} of '{one.resource}' is deferred: {one.reason}"
            findings.add("apply_unsupported_change", one.resource, message)
        if one.disposition is Disposition.BLOCKED:
            message = f"{one.operation} of '{one.resource}' is blocked: {one.reason}"
            findings.add("apply_dependency_blocked", one.resource, message)


def _compare(address: str, wanted: Entry | None, recorded: Entry | None) -> Change | None:
    if wanted is None:
        return None if recorded is None else Change(address, Action.DELETE, recorded.digest)
    if recorded is None:
        return Change(address, Action.CREATE, None, wanted.digest)
    rebound = wanted.applies_to != recorded.applies_to
    metadata = (
        Metadata.BINDINGS
        if rebound
        else Metadata.PROFILE
        if wanted.embedding_profile != recorded.embedding_profile
        else None
    )
    if wanted.digest == recorded.digest and metadata is None:
        return None
    return Change(
        address,
        Action.UPDATE,
        recorded.digest,
        wanted.digest,
        binding_change=rebound,
        metadata_change=metadata if wanted.digest == recorded.digest or rebound else None,
    )


def _decide(change: Change, verdicts: _Classifier) -> Change:
    disposition, reason = verdicts.classify(change)
    return replace(change, disposition=disposition, reason=reason)


class _Classifier:
    """Decides what apply does with each change of one plan."""

    def __init__(
        self, desired: Desired, changes: list[Change], circumstances: Circumstances, recorded: Entries
    ) -> None:
        self._desired = desired
        self._recorded = recorded
        self._by_address = {one.resource: one for one in changes}
        self._pending = circumstances.pending
        self._approvals = circumstances.approvals
        self._kinds: Mapping[Kind | None, Callable[[Change], Verdict]] = {
            Kind.GRAPH: self._graph,
            Kind.SCHEMA: self._schema,
            Kind.QUERY: self._query,
            Kind.POLICY: self._policy,
            Kind.PROVIDER: self._provider,
            Kind.SOURCE: lambda _: _APPLIED,
            Kind.PIPELINE: self._pipeline,
        }

    def classify(self, change: Change) -> Verdict:
        """Return the disposition of a change, with the reason why it is not applied."""
        decide = self._kinds.get(kind_of(change.resource))
        return (Disposition.DEFERRED, UNSUPPORTED) if decide is None else decide(change)

    def is_approved(self, change: Change) -> bool:
        """Whether a matching approval is pending."""
        return self._approvals.find(change.question(self._desired.config_digest)) is not None

    def _graph(self, change: Change) -> Verdict:
        graph_id = str(graph_of(change.resource))
        if change.operation is Action.UPDATE:
            alone = self._schema_changes_alone(graph_id)
            return (Disposition.DEFERRED, UNSUPPORTED) if alone else (Disposition.DERIVED, None)
        if graph_id in self._pending:
            return _blocked(RECOVERY_PENDING)
        if change.operation is Action.CREATE or self.is_approved(change):
            return _APPLIED
        return _blocked(APPROVAL_REQUIRED)

    def _schema(self, change: Change) -> Verdict:
        graph_id = str(graph_of(change.resource))
        graph = self._by_address.get(graph_address(graph_id))
        together = graph is not None and graph.operation is change.operation
        if change.operation is Action.DELETE:
            return self._graph(graph) if together and graph else (Disposition.DEFERRED, UNSUPPORTED)
        if graph_id in self._pending:
            return _blocked(RECOVERY_PENDING)
        return _APPLIED if change.operation is Action.UPDATE or together else _blocked(RECOVERY_PENDING)

    def _query(self, change: Change) -> Verdict:
        graph_id = str(graph_of(change.resource))
        if change.operation is Action.DELETE:
            graph = self._by_address.get(graph_address(graph_id))
            leaves = graph is not None and graph.operation is Action.DELETE
            return self._graph(graph) if leaves and graph else _APPLIED
        if graph_id in self._pending:
            return _blocked(RECOVERY_PENDING)
        return _blocked(NOT_APPLIED) if self._schema_changes_alone(graph_id) else _APPLIED

    def _policy(self, change: Change) -> Verdict:
        wanted = self._desired.resources.get(change.resource)
        if wanted is None:
            return self._leave(change)
        bound = {graph_of(binding) for binding in wanted.entry.applies_to or ()}
        return _blocked(RECOVERY_PENDING) if bound & self._pending else _APPLIED

    def _provider(self, change: Change) -> Verdict:
        return self._leave(change) if change.operation is Action.DELETE else _APPLIED

    def _leave(self, change: Change) -> Verdict:
        """Keep what a graph needs that stays although the files do not have it any more."""
        users = find_users(change.resource, self._recorded)
        if users & self._pending:
            return _blocked(RECOVERY_PENDING)
        changes = (self._by_address.get(graph_address(graph_id)) for graph_id in users)
        stays = (one.operation is Action.DELETE and self._graph(one) != _APPLIED for one in changes if one)
        return _blocked(NOT_APPLIED) if any(stays) else _APPLIED

    def _pipeline(self, change: Change) -> Verdict:
        if change.operation is Action.DELETE:
            return _APPLIED
        graphs = self._desired.graphs_of(change.resource)
        if graphs & self._pending:
            return _blocked(RECOVERY_PENDING)
        if any(map(self._schema_changes_alone, graphs)):
            return _blocked(NOT_APPLIED)
        if needs_overwrite_approval(change, self._desired) and not self.is_approved(change):
            return _blocked(APPROVAL_REQUIRED)
        return _APPLIED

    def _schema_changes_alone(self, graph_id: str) -> bool:
        """Whether the schema is to be created or deleted while its graph stays."""
        schema = self._by_address.get(schema_address(graph_id))
        if schema is None or schema.operation is Action.UPDATE:
            return False
        graph = self._by_address.get(graph_address(graph_id))
        return graph is None or graph.operation is not schema.operation
