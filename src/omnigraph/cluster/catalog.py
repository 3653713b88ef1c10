"""Published queries, policies and pipelines: content-addressed copies of files, for servers and runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from omnigraph.cluster.addresses import Kind, graph_of, kind_of, name_of
from omnigraph.cluster.digests import hash_bytes
from omnigraph.cluster.entries import Entry
from omnigraph.cluster.root import CONTROL, ClusterRoot
from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import StorageFailure
from omnigraph.storage.location import Location

PUBLISHED = (Kind.QUERY, Kind.POLICY, Kind.PIPELINE)
"""The kinds of resources of which a copy is stored."""


class PayloadState(StrEnum):
    """What is wrong with a published copy; the values are conditions of its status."""

    MISSING = "payload_missing"
    MISMATCH = "payload_mismatch"
    UNREADABLE = "payload_read_error"

    @property
    def code(self) -> str:
        """The code of the finding."""
        return f"catalog_{self.value}"


@dataclass(frozen=True, slots=True)
class BadPayload:
    """A published copy that is not what the ledger says."""

    address: str
    state: PayloadState
    message: str


def payload_place(root: ClusterRoot, address: str, digest: str) -> Location | None:
    """Return where the copy of a query, policy or pipeline is; other resources have none."""
    match kind_of(address):
        case Kind.QUERY:
            return root.location / (
                f"{CONTROL}/resources/query/{graph_of(address)}/{name_of(address)}/{digest}.gq"
            )
        case Kind.POLICY:
            return root.location / f"{CONTROL}/resources/policy/{name_of(address)}/{digest}.yaml"
        case Kind.PIPELINE:
            return root.location / f"{CONTROL}/resources/pipeline/{name_of(address)}/{digest}.pipeline.yaml"
    return None


def store_payload(root: ClusterRoot, place: Location, data: bytes) -> None:
    """Write a copy, unless it is there; one that was changed is replaced."""
    if root.objects.read_bytes_if_exists(place) != data:
        root.objects.write_bytes(place, data)


def read_payload(root: ClusterRoot, address: str, digest: str) -> bytes | BadPayload:
    """Return the copy of a resource, verified."""
    place = payload_place(root, address, digest)
    if place is None:
        return BadPayload(address, PayloadState.MISSING, f"'{address}' has no published copy")
    try:
        data = root.objects.read_bytes_if_exists(place)
    except StorageFailure as failure:
        return BadPayload(address, PayloadState.UNREADABLE, failure.message)
    if data is None:
        return BadPayload(address, PayloadState.MISSING, f"the published copy of '{address}' is gone")
    if hash_bytes(data) != digest:
        message = f"the published copy of '{address}' was changed: it does not have the digest of its name"
        return BadPayload(address, PayloadState.MISMATCH, message)
    return data


def find_bad_payloads(root: ClusterRoot, entries: Mapping[str, Entry]) -> Iterator[BadPayload]:
    """Verify the copy of every recorded query, policy and pipeline."""
    for address, entry in sorted(entries.items()):
        if kind_of(address) in PUBLISHED:
            found = read_payload(root, address, entry.digest)
            if isinstance(found, BadPayload):
                yield found
