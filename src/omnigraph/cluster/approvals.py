"""Approvals: durable files outside the ledger, each bound to the exact digests of one change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from omnigraph.cluster.diagnostics import Findings
from omnigraph.cluster.root import ClusterRoot, decode, encode
from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import StorageFailure
from omnigraph.storage.failures import SAYS_NOTHING
from omnigraph.storage.location import Location

VERSION = 1


class Approval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One approval; a consumed one stays as a record."""

    schema_version: int
    approval_id: str
    resource: str
    operation: str
    reason: str
    bound_config_digest: str
    bound_before_digest: str | None
    bound_after_digest: str | None
    approved_by: str
    created_at: str
    consumed_at: str | None = None
    consumed_by_operation: str | None = None

    @property
    def is_pending(self) -> bool:
        """Whether it can still be used."""
        return self.consumed_at is None

    def record(self) -> dict[str, Any]:
        """What the ledger has of a consumed approval."""
        return {"consumed_at": self.consumed_at, "consumed_by_operation": self.consumed_by_operation}


@dataclass(frozen=True, slots=True)
class Question:
    """A change that needs an approval."""

    resource: str
    operation: str
    config_digest: str
    before_digest: str | None
    after_digest: str | None


@dataclass(frozen=True, slots=True)
class Approvals:
    """All approvals of a cluster."""

    found: tuple[Approval, ...] = ()
    consumed: frozenset[str] = frozenset()
    """Those that the ledger knows to be consumed, whatever their file says."""

    def find(self, question: Question) -> Approval | None:
        """Return the oldest pending approval for exactly this change."""
        return next((one for one in self._pending() if _matches(one, question)), None)

    def find_id(self, question: Question) -> str | None:
        """Return the id of that approval."""
        found = self.find(question)
        return None if found is None else found.approval_id

    def report_stale(self, questions: Iterable[Question], findings: Findings) -> None:
        """Note each pending approval that fits none of the changes."""
        wanted = list(questions)
        for one in self._pending():
            if not any(_matches(one, question) for question in wanted):
                message = (
                    f"approval '{one.approval_id}' by '{one.approved_by}' to {one.operation} "
                    f"'{one.resource}' is bound to another plan and authorizes nothing; approve it again"
                )
                findings.add("approval_stale", one.resource, message)

    def _pending(self) -> list[Approval]:
        return [one for one in self.found if one.is_pending and one.approval_id not in self.consumed]


def read_approvals(
    root: ClusterRoot, findings: Findings, consumed: Mapping[str, Mapping[str, Any]]
) -> Approvals:
    """Read all approvals, the oldest first; a file that cannot be read authorizes nothing."""
    found = []
    for at in sorted(root.objects.list_dir(root.approvals), key=lambda at: at.name):
        approval = _read(root, at, findings) if at.name.endswith(".json") else None
        if approval is not None:
            found.append(approval)
    return Approvals(tuple(found), frozenset(consumed))


def write_approval(root: ClusterRoot, approval: Approval) -> None:
    """Write or rewrite an approval."""
    root.objects.write_text(_place(root, approval.approval_id), encode(approval))


def record_consumption(
    root: ClusterRoot, approval: Approval, record: Mapping[str, Any], findings: Findings
) -> None:
    """Rewrite the file of an approval that the ledger has as consumed."""
    try:
        write_approval(root, replace(approval, **record))
    except StorageFailure as failure:
        message = f"the ledger has '{approval.approval_id}' as consumed, its file does not: {failure.message}"
        findings.add("approval_write_failed", _place(root, approval.approval_id).uri, message)


def _place(root: ClusterRoot, approval_id: str) -> Location:
    return root.approvals / f"{approval_id}.json"


def _read(root: ClusterRoot, at: Location, findings: Findings) -> Approval | None:
    try:
        text = root.objects.read_text_if_exists(at)
        if text is None:
            return None
        approval = msgspec.convert(decode(text), Approval)
    except (StorageFailure, msgspec.MsgspecError) as error:
        if isinstance(error, StorageFailure) and error.kind in SAYS_NOTHING:
            raise  # without it, a change that was approved as a hard one would run as a soft one
        findings.add("invalid_approval", at.uri, f"the approval cannot be read: {error}")
        return None
    if approval.schema_version != VERSION or at.name != f"{approval.approval_id}.json":
        findings.add("invalid_approval", at.uri, "it has another version, or another id than its name")
        return None
    return approval


def _matches(approval: Approval, question: Question) -> bool:
    bound = (approval.bound_config_digest, approval.bound_before_digest, approval.bound_after_digest)
    wanted = (question.config_digest, question.before_digest, question.after_digest)
    same = (approval.resource, approval.operation) == (question.resource, question.operation)
    return same and bound == wanted
