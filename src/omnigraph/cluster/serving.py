"""What a server serves of a cluster: the applied revision, read without a lock and without writing.

A mistake in the ledger or in a published copy ends the boot. A graph that waits for recovery is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from omnigraph.cluster.addresses import Kind, graph_address, group_queries, kind_of, name_of
from omnigraph.cluster.catalog import BadPayload, PayloadState, read_payload
from omnigraph.cluster.diagnostics import Diagnostic, Findings, Severity, Stopped
from omnigraph.cluster.digests import hash_profile
from omnigraph.cluster.entries import Entry
from omnigraph.cluster.ledger import read_ledger, require_integrity
from omnigraph.cluster.lookup import open_cluster
from omnigraph.cluster.root import ClusterRoot
from omnigraph.cluster.sidecars import read_sidecars
from omnigraph.cluster.state import State, cas_of
from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import ClusterUnreadable

_APPLY = "run `omnigraph cluster apply`"
_REFRESH = "run `omnigraph cluster refresh`, then `cluster apply`"
_DIGEST_MISMATCH = "catalog_payload_digest_mismatch"


@dataclass(frozen=True, slots=True)
class AppliedText:
    """A published copy, verified."""

    name: str
    """The address of the resource."""
    text: str
    symbols: tuple[str, ...] = ()
    """The stored queries in it that are applied."""


@dataclass(frozen=True, slots=True)
class AppliedGraph:
    """A graph as it was applied."""

    id: str
    uri: str
    digest: str
    policy: AppliedText | None
    queries: tuple[AppliedText, ...]
    embedding: Mapping[str, str] | None
    """The profile of its provider, with `${NAME}` unresolved."""


@dataclass(frozen=True, slots=True)
class Serving:
    """An applied revision."""

    graphs: tuple[AppliedGraph, ...]
    policies: Mapping[str, AppliedText]
    """The bundle of each scope that has one: `cluster`, or the address of a graph."""
    quarantined: tuple[Diagnostic, ...]
    """Why other graphs of the ledger are left out."""


def read_serving(cluster: str) -> Serving:
    """Return what to serve of a cluster: a storage URI, or the directory of a `cluster.yaml`."""
    with _reporting(cluster):
        root = open_cluster(cluster)
        waiting = _find_waiting(root)
        return _Reader(root, _read_state(root), waiting).read()


def read_mark(cluster: str) -> str | None:
    """Return the identity of the ledger of a cluster; None when there is none."""
    root = open_cluster(cluster)
    text = root.objects.read_text_if_exists(root.state)
    return None if text is None else cas_of(text)


@contextmanager
def _reporting(cluster: str) -> Iterator[None]:
    try:
        yield
    except Stopped as stopped:
        raise ClusterUnreadable(cluster, f"{stopped.found.code}: {stopped.found.message}") from stopped


def _find_waiting(root: ClusterRoot) -> dict[str, Diagnostic]:
    """Return the graphs whose last operation has not ended; one of an unknown graph ends the boot."""
    findings = Findings()
    found = {}
    for one in read_sidecars(root, findings):
        if not one.graph_id:
            message = f"operation '{one.operation_id}' names no graph, so any of them may be affected"
            findings.stop("cluster_recovery_unattributed", one.operation_id, message)
        message = f"an interrupted {one.kind.words} waits for recovery; {_APPLY}"
        address = graph_address(one.graph_id)
        found[one.graph_id] = Diagnostic("cluster_recovery_pending", Severity.WARNING, address, message)
    for unreadable in findings.found:
        raise Stopped(unreadable)
    return found


def _read_state(root: ClusterRoot) -> State:
    findings = Findings()
    state = read_ledger(root, findings).state
    if state is None:
        message = "there is no ledger; run `omnigraph cluster import`, then `cluster apply`"
        findings.stop("cluster_state_missing", root.state.uri, message)
    require_integrity(state, findings)
    return state


class _Reader:
    def __init__(self, root: ClusterRoot, state: State, waiting: Mapping[str, Diagnostic]) -> None:
        self._root = root
        self._state = state
        self._waiting = waiting
        self._findings = Findings()
        self._queries_of = group_queries(state.resources)

    def read(self) -> Serving:
        ids = [name_of(address) for address in self._of_kind(Kind.GRAPH)]
        if not ids:
            self._findings.stop("cluster_empty", self._root.state.uri, f"no graph was applied; {_APPLY}")
        quarantined = tuple(self._waiting[one] for one in ids if one in self._waiting)
        if len(quarantined) == len(ids):
            message = "; ".join(str(one) for one in quarantined)
            self._findings.stop("cluster_no_healthy_graphs", self._root.state.uri, message)
        policies = self._policies()
        served = [one for one in ids if one not in self._waiting]
        graphs = tuple(self._graph(one, policies.get(graph_address(one))) for one in served)
        return Serving(graphs, policies, quarantined)

    def _of_kind(self, kind: Kind) -> list[str]:
        return [address for address in sorted(self._state.resources) if kind_of(address) is kind]

    def _graph(self, graph_id: str, policy: AppliedText | None) -> AppliedGraph:
        entry = self._state.resources[graph_address(graph_id)]
        return AppliedGraph(
            graph_id,
            self._root.graph(graph_id).uri,
            entry.digest,
            policy,
            tuple(self._queries(graph_id)),
            self._profile(graph_id, entry),
        )

    def _queries(self, graph_id: str) -> Iterator[AppliedText]:
        """Yield each text once, with the queries in it: those of one file are published under each name."""
        names: dict[str, list[str]] = {}
        texts: dict[str, AppliedText] = {}
        for address in self._queries_of.get(graph_id, ()):
            found = self._text(address)
            texts.setdefault(found.text, found)
            names.setdefault(found.text, []).append(name_of(address))
        for text, found in texts.items():
            yield AppliedText(found.name, text, tuple(names[text]))

    def _policies(self) -> dict[str, AppliedText]:
        """Return the bundle of each scope."""
        found: dict[str, AppliedText] = {}
        for address in self._of_kind(Kind.POLICY):
            bindings = self._state.resources[address].applies_to
            if not bindings:
                message = f"the ledger does not say what '{address}' is bound to; {_APPLY}"
                self._findings.stop("policy_bindings_missing", address, message)
            text = self._text(address)
            for scope in bindings:
                if scope in found:
                    message = f"'{found[scope].name}' and '{address}' are both bound to '{scope}'"
                    self._findings.stop("duplicate_policy_binding", address, message)
                found[scope] = text
        return found

    def _profile(self, graph_id: str, entry: Entry) -> Mapping[str, str] | None:
        address = entry.embedding_provider
        if address is None:
            return None
        provider = self._state.resources.get(address)
        if provider is None:
            message = f"graph '{graph_id}' needs '{address}', which the ledger does not have; {_APPLY}"
            self._findings.stop("embedding_provider_missing", address, message)
        if provider.embedding_profile is None:
            message = f"the ledger has no profile of '{address}'; {_APPLY}"
            self._findings.stop("embedding_profile_missing", address, message)
        if hash_profile(provider.embedding_profile) != provider.digest:
            message = f"the profile of '{address}' does not have the digest that the ledger records"
            self._findings.stop("embedding_profile_digest_mismatch", address, message)
        return provider.embedding_profile

    def _text(self, address: str) -> AppliedText:
        found = read_payload(self._root, address, self._state.resources[address].digest)
        if isinstance(found, BadPayload):
            is_changed = found.state is PayloadState.MISMATCH
            code = _DIGEST_MISMATCH if is_changed else found.state.code
            self._findings.stop(code, address, f"{found.message}; {_REFRESH}")
        return AppliedText(address, found.decode())
