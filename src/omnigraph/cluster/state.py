"""The ledger as a value: what was applied, how each resource stands, and what was observed."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from omnigraph.cluster.addresses import graph_address
from omnigraph.cluster.digests import hash_bytes
from omnigraph.cluster.entries import Entry, compose_graphs, subtree
from omnigraph.cluster.root import decode, encode

VERSION = 1
_OBSERVED = "graph_manifest_version"
_OBSERVED_BEFORE = "manifest_version"

Value = TypeVar("Value")


class Status(StrEnum):
    """How a resource stands."""

    PENDING = "pending"
    PLANNED = "planned"
    APPLYING = "applying"
    APPLIED = "applied"
    DRIFTED = "drifted"
    BLOCKED = "blocked"
    ERROR = "error"


class ResourceStatus(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a resource stands, and why."""

    status: Status
    conditions: tuple[str, ...] = ()
    message: str | None = None


APPLIED = ResourceStatus(Status.APPLIED)


class _Revision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    config_digest: str | None = None
    resources: Mapping[str, Entry] = {}


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The members in the order in which they are written."""

    version: int
    state_revision: int = 0
    applied_revision: _Revision
    resource_statuses: Mapping[str, ResourceStatus] = {}
    approval_records: Mapping[str, Mapping[str, Any]] = {}
    recovery_records: Mapping[str, Mapping[str, Any]] = {}
    observations: Mapping[str, Mapping[str, Any]] = {}


class StateRejected(Exception):
    """A ledger that cannot be used, with the code of the finding."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class State(msgspec.Struct, frozen=True):
    """One revision of the ledger; a change is another value."""

    revision: int = 0
    config_digest: str | None = None
    resources: Mapping[str, Entry] = {}
    statuses: Mapping[str, ResourceStatus] = {}
    approval_records: Mapping[str, Mapping[str, Any]] = {}
    recovery_records: Mapping[str, Mapping[str, Any]] = {}
    observations: Mapping[str, Mapping[str, Any]] = {}

    def put(self, address: str, entry: Entry, status: ResourceStatus = APPLIED) -> State:
        """Record a resource and how it stands."""
        return replace(
            self,
            resources={**self.resources, address: entry},
            statuses={**self.statuses, address: status},
        )

    def set_status(self, address: str, status: ResourceStatus) -> State:
        """Record how a resource stands."""
        return replace(self, statuses={**self.statuses, address: status})

    def observe(self, address: str, observation: Mapping[str, Any]) -> State:
        """Record what was observed of a resource."""
        return replace(self, observations={**self.observations, address: observation})

    def forget(self, address: str, *, status: ResourceStatus | None = None) -> State:
        """Remove a resource with its status, or with another status in its place."""
        statuses = _without(self.statuses, address)
        kept = statuses if status is None else {**statuses, address: status}
        return replace(self, resources=_without(self.resources, address), statuses=kept)

    def compose(self, graph_id: str) -> State:
        """Compute the digest of a graph from the ledger's own parts; one that is not recorded stays so."""
        known = self.resources.get(graph_address(graph_id))
        return self if known is None else self.compose_all({graph_id: known})

    def compose_all(self, likes: Mapping[str, Entry]) -> State:
        """Compute the digests of graphs, each with a provider and a blob policy like another entry."""
        composed = compose_graphs(likes, self.resources)
        return replace(self, resources={**self.resources, **composed})

    def consume(self, approval_id: str | None, record: Mapping[str, Any]) -> State:
        """Record that an approval was used; there may be none."""
        if approval_id is None:
            return self
        return replace(self, approval_records={**self.approval_records, approval_id: record})

    def bury(self, graph_id: str, tombstone: Mapping[str, Any]) -> State:
        """Remove a graph with its schema and queries, and leave a tombstone."""
        state = self
        for address in subtree(graph_id, {*self.resources, *self.statuses}):
            state = state.forget(address)
        return state.observe(graph_address(graph_id), tombstone)

    def digests(self) -> dict[str, str]:
        """The recorded digest of each resource."""
        return {address: entry.digest for address, entry in sorted(self.resources.items())}

    def statuses_json(self) -> dict[str, Any]:
        """How each resource stands, as a script reads it."""
        found: dict[str, Any] = msgspec.to_builtins(dict(sorted(self.statuses.items())))
        return found


def encode_state(state: State) -> str:
    """Return the text of the ledger."""
    file = _File(
        version=VERSION,
        state_revision=state.revision,
        applied_revision=_Revision(state.config_digest, _sort(state.resources)),
        resource_statuses=_sort(state.statuses),
        approval_records=_sort(state.approval_records),
        recovery_records=_sort(state.recovery_records),
        observations=_sort(state.observations),
    )
    return encode(file)


def decode_state(text: str) -> State:
    """Return the ledger that a text stands for; raises `StateRejected`."""
    try:
        plain = decode(text)
        version = plain.get("version") if isinstance(plain, dict) else None
        if isinstance(version, int) and version != VERSION:
            raise StateRejected(
                "unsupported_state_version", f"the ledger has version {version}, not {VERSION}"
            )
        found = msgspec.convert(plain, _File)
    except msgspec.MsgspecError as error:
        raise StateRejected("invalid_state", f"the ledger is not valid: {error}") from error
    return State(
        found.state_revision,
        found.applied_revision.config_digest,
        found.applied_revision.resources,
        found.resource_statuses,
        found.approval_records,
        found.recovery_records,
        {address: _rename_version(address, one) for address, one in found.observations.items()},
    )


def cas_of(text: str) -> str:
    """Return the identity of a ledger's text."""
    return f"sha256:{hash_bytes(text.encode())}"


def _rename_version(address: str, observation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read the former name of the manifest version; both are written."""
    if _OBSERVED_BEFORE not in observation:
        return observation
    before = observation[_OBSERVED_BEFORE]
    if observation.get(_OBSERVED, before) != before:
        raise StateRejected(
            "conflicting_graph_manifest_observation",
            f"the observation of '{address}' has versions {observation[_OBSERVED]} and {before}",
        )
    return {**observation, _OBSERVED: before}


def _sort(found: Mapping[str, Value]) -> dict[str, Value]:
    return dict(sorted(found.items()))


def _without(found: Mapping[str, Value], address: str) -> dict[str, Value]:
    return {name: value for name, value in found.items() if name != address}
