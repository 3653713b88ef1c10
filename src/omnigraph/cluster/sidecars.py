"""Recovery files: what a command is about to do to a graph, on file before it begins."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from omnigraph.cluster.diagnostics import Findings
from omnigraph.cluster.root import ClusterRoot, decode, encode
from omnigraph.errors import StorageFailure
from omnigraph.storage.location import Location

VERSION = 1


class Operation(StrEnum):
    """What is done to a graph."""

    CREATE = "graph_create"
    SCHEMA = "schema_apply"
    DELETE = "graph_delete"

    @property
    def words(self) -> str:
        """The operation as messages name it."""
        return self.value.replace("_", " ")


class Sidecar(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One operation on a graph. Versions and `state_cas_base` are for people; no decision looks at them."""

    schema_version: int
    operation_id: str
    started_at: str
    actor: str | None
    kind: Operation
    graph_id: str
    graph_uri: str
    observed_manifest_version: int | None
    expected_manifest_version: int | None
    desired_schema_digest: str
    state_cas_base: str | None
    approval_id: str | None


def place_of_sidecar(root: ClusterRoot, operation_id: str) -> Location:
    """Return where the file of an operation is."""
    return root.recoveries / f"{operation_id}.json"


def write_sidecar(root: ClusterRoot, sidecar: Sidecar) -> None:
    """Write or rewrite the file of an operation."""
    root.objects.write_text(place_of_sidecar(root, sidecar.operation_id), encode(sidecar))


def read_sidecars(root: ClusterRoot, findings: Findings) -> list[Sidecar]:
    """Return the operations that have not ended, the oldest first; unreadable files stay and are reported."""
    found = []
    for at in sorted(root.objects.list_dir(root.recoveries), key=lambda at: at.name):
        sidecar = _read(root, at, findings) if at.name.endswith(".json") else None
        if sidecar is not None:
            found.append(sidecar)
    return found


def remove_sidecar(root: ClusterRoot, operation_id: str, findings: Findings) -> None:
    """Remove the file of an operation that ended; one that stays is swept by the next command."""
    at = place_of_sidecar(root, operation_id)
    try:
        root.objects.delete(at)
    except StorageFailure as failure:
        message = f"operation '{operation_id}' ended; its file could not be removed: {failure.message}"
        findings.add("recovery_sidecar_cleanup_failed", at.uri, message)


def _read(root: ClusterRoot, at: Location, findings: Findings) -> Sidecar | None:
    try:
        text = root.objects.read_text_if_exists(at)
        if text is None:
            return None
        plain = decode(text)
        version = plain.get("schema_version") if isinstance(plain, dict) else None
        if isinstance(version, int) and version != VERSION:
            message = f"the file has version {version}; finish the operation with the release that wrote it"
            findings.add("unsupported_recovery_sidecar_version", at.uri, message)
            return None
        return msgspec.convert(plain, Sidecar)
    except StorageFailure as failure:
        findings.add("recovery_sidecar_read_error", at.uri, failure.message)
    except msgspec.MsgspecError as error:
        findings.add("invalid_recovery_sidecar", at.uri, f"the file is not valid: {error}")
    return None
