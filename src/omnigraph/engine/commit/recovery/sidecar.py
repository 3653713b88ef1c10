"""The record of a write under way: what it intends, and which commits it can end in.

A writer stores its record before its first effect and removes it after its last. A record that exists
while the branch's lock is free belongs to a writer that died.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

import msgspec

from omnigraph import failpoints
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN, TableVersion
from omnigraph.engine.graph.publish import ManifestChanges
from omnigraph.engine.graph.root import Root
from omnigraph.errors import CorruptGraph, StorageFailure
from omnigraph.storage.location import Location
from omnigraph.storage.references import Incarnation

CURRENT = 3
SUFFIX = ".json"

WriterKind = Literal["Mutation", "Load", "SchemaApply", "BranchMerge", "EnsureIndices", "Optimize"]
Phase = Literal["Armed", "EffectsConfirmed"]
CONFIRMED: Final = "EffectsConfirmed"
"""The record names what its tables hold once the write is complete; if they do, recovery publishes it."""


# Members with their default value are omitted from the text.


class FirstTouch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a table comes from that the write forks for its branch."""

    source_branch: str | None = None
    source_version: int


class Pin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table the write moves."""

    table_key: str
    table_path: str
    expected_version: int
    post_commit_pin: int
    confirmed_version: int | None = None
    table_branch: str | None = None
    """The branch whose fork the change lands on; None for main."""
    transaction_uuids: tuple[str, ...] = ()
    first_touch: FirstTouch | None = None


class LineageIntent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The commit the write makes when it succeeds."""

    graph_commit_id: str
    created_at: int = 0
    """When the write began to commit; its commit itself is dated when it becomes visible."""
    merged_parent_commit_id: str | None = None
    merged_commits: tuple[Commit, ...] = ()
    """The commits of other branches that a merge takes in: the source may be gone when it is finished."""
    message: str | None = None
    operation: str | None = None


class Authority(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the write was prepared on."""

    branch_identifier: Incarnation = ()
    graph_head: str | None = None
    schema_ir_hash: str | None = None


class OwnerMark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The process that wrote the record."""

    host: str
    pid: int
    token: str


class Update(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table version the write publishes."""

    table_key: str
    table_version: int
    table_branch: str | None = None
    row_count: int | None = None

    def published(self) -> TableVersion:
        """The version as the manifest records it."""
        return TableVersion(self.table_key, self.table_version, self.table_branch, self.row_count)


class Registration(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table the write makes."""

    table_key: str
    table_path: str
    """Relative to the root."""
    table_branch: str | None = None


class Tombstone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A table that is gone after the write."""

    table_key: str
    tombstone_version: int


class SchemaTarget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The schema that is accepted with the write; its files wait beside those of the present one."""

    schema_ir_hash: str


class Sidecar(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The whole record, of this form or an older one."""

    schema_version: int
    operation_id: str
    started_at: str
    writer_kind: WriterKind
    branch: str | None = None
    actor_id: str | None = None
    tables: tuple[Pin, ...] = ()
    additional_registrations: tuple[Registration, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    merge_source_commit_id: str | None = None
    phase: Phase | None = None
    lineage: LineageIntent | None = None
    rollback_commit_id: str | None = None
    restore_commit_id: str | None = None
    owner: OwnerMark | None = None
    lance_version: str | None = None
    authority: Authority | None = None
    schema_target: SchemaTarget | None = None
    updates: tuple[Update, ...] = ()
    checksum: str | None = None

    @property
    def graph_branch(self) -> str:
        """The branch the write is on."""
        return self.branch or MAIN

    @property
    def published(self) -> ManifestChanges:
        """What the write makes visible, once it is confirmed."""
        return ManifestChanges(
            registered={one.table_key: one.table_path for one in self.additional_registrations},
            versions=tuple(update.published() for update in self.updates),
            dropped={one.table_key: one.tombstone_version for one in self.tombstones},
        )


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A record that cannot be used, and as much of it as could be read."""

    operation_id: str
    branch: str | None
    reason: str


# --- text ----------------------------------------------------------------------------------------


def encode(sidecar: Sidecar) -> str:
    """The record as JSON, with a checksum over everything else in it."""
    value = msgspec.to_builtins(msgspec.structs.replace(sidecar, checksum=None))
    # Always written, so that even a damaged record names its branch.
    value["branch"] = sidecar.branch
    value["checksum"] = _checksum(value)
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _checksum(value: dict[str, Any]) -> str:
    text = json.dumps(
        {k: v for k, v in value.items() if k != "checksum"}, separators=(",", ":"), sort_keys=True
    )
    return hashlib.sha256(text.encode()).hexdigest()


def decode(text: str, operation_id: str) -> Sidecar | Unreadable:
    """Decode a record; returns `Unreadable` for a text that cannot be trusted."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Unreadable(operation_id=operation_id, branch=None, reason=f"it is not JSON: {error}")
    if not isinstance(value, dict):
        return Unreadable(operation_id=operation_id, branch=None, reason="it is not an object")
    reason = _distrust(value, operation_id)
    if reason is None:
        try:
            return msgspec.convert(value, Sidecar)
        except msgspec.ValidationError as error:
            reason = f"it is malformed: {error}"
    return Unreadable(operation_id=operation_id, branch=_readable_branch(value), reason=reason)


def _distrust(value: dict[str, Any], operation_id: str) -> str | None:
    version = value.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        return "it has no version"
    if version > CURRENT:
        return (
            f"it was written by a newer release (form {version}, this one knows {CURRENT}); upgrade omnigraph"
        )
    if version >= CURRENT and value.get("checksum") != _checksum(value):
        return "its checksum does not match"
    if value.get("operation_id") != operation_id:
        return f"it is the record of operation '{value.get('operation_id')}'"
    return None


def _readable_branch(value: dict[str, Any]) -> str | None:
    if "branch" not in value:
        return None
    branch = value["branch"]
    if branch is None:
        return MAIN
    return branch if isinstance(branch, str) else None


# --- operations of this process ------------------------------------------------------------------

_running: set[str] = set()
os.register_at_fork(after_in_child=_running.clear)


@contextmanager
def run_operation(operation_id: str) -> Iterator[None]:
    """Note that an operation runs in this process: its record is not that of an interrupted write."""
    _running.add(operation_id)
    try:
        yield
    finally:
        _running.discard(operation_id)


def without_running(names: Iterable[str]) -> list[str]:
    """Return the names of files beside the records, without those of operations that run in this process."""
    return [name for name in names if name.partition(".")[0] not in _running]


# --- files ---------------------------------------------------------------------------------------


def place(root: Root, operation_id: str) -> Location:
    """Where the record of an operation is."""
    return root.layout.recovery / f"{operation_id}{SUFFIX}"


def store_new(root: Root, sidecar: Sidecar) -> None:
    """Write the record of an operation that begins."""
    at = place(root, sidecar.operation_id)
    text = encode(sidecar)
    if root.objects.write_text_if_absent(at, text):
        return
    # In a bucket the answer to one's own put may be lost; only our own text counts as ours.
    if root.objects.read_text_if_exists(at) != text:
        raise CorruptGraph(f"operation '{sidecar.operation_id}' is on record already", object_id=at.name)


def rewrite(root: Root, sidecar: Sidecar) -> None:
    """Replace the record of an operation that goes on."""
    root.objects.write_text(place(root, sidecar.operation_id), encode(sidecar))


def remove(root: Root, operation_id: str) -> None:
    """Remove the record of an operation that is over."""
    root.objects.delete(place(root, operation_id))


def read(root: Root, operation_id: str) -> Sidecar | Unreadable | None:
    """The record of an operation; None when it is proven gone, which means that its writer finished."""
    try:
        text = root.objects.read_text_if_exists(place(root, operation_id))
    except StorageFailure as failure:
        if not isinstance(failure.__cause__, UnicodeDecodeError):
            raise
        return Unreadable(operation_id=operation_id, branch=None, reason="it is not text")
    return None if text is None else decode(text, operation_id)


def list_names(root: Root) -> list[str]:
    """The names of all files beside the records: one list call."""
    failpoints.reach(failpoints.RECOVERY_SIDECAR_LIST)
    return [at.name for at in root.objects.list_dir(root.layout.recovery)]


CREATION = ".branch"
"""The ending of records about branches that are being created at old commits; see `creations.py`."""


def creations_among(names: Iterable[str]) -> list[str]:
    """The names of records about branches that are being created, among those of files beside the records."""
    return sorted(name for name in names if name.endswith(CREATION))


def operations(root: Root) -> list[str]:
    """The operations on record, oldest first: one list call."""
    return operations_among(list_names(root))


def operations_among(names: Iterable[str]) -> list[str]:
    """The operations on record, oldest first, among names that were listed."""
    return sorted(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
