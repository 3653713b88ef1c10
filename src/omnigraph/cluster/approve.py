"""`cluster approve`: a person allows one change of the current plan, and no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from omnigraph.cluster.approvals import VERSION, Approval, Approvals, write_approval
from omnigraph.cluster.diagnostics import Findings
from omnigraph.cluster.plan import DATA_LOSS_REASON, Action, Change
from omnigraph.cluster.planner import Circumstances, build_plan, find_gated
from omnigraph.cluster.preview import preview
from omnigraph.cluster.root import ClusterRoot, OpenRoot
from omnigraph.cluster.session import Session
from omnigraph.cluster.state import State
from omnigraph.deferred_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """Which change is approved, and by whom."""

    resource: str
    actor: str | None
    allow_data_loss: bool = False


@dataclass(frozen=True, slots=True)
class Approved:
    """The approval that was written."""

    session: Session
    approval: Approval | None = None

    @property
    def findings(self) -> Findings:
        """The findings of the command."""
        return self.session.findings

    def to_json(self) -> dict[str, Any]:
        """The result as a script reads it."""
        found: dict[str, Any] = {"ok": self.findings.ok, "config_dir": str(self.session.directory)}
        if self.approval is not None:
            found |= {
                "approval_id": self.approval.approval_id,
                "resource": self.approval.resource,
                "operation": self.approval.operation,
                "approved_by": self.approval.approved_by,
            }
        return {**found, "diagnostics": self.findings.to_json()}


def approve(directory: Path, request: ApprovalRequest, open_root: OpenRoot = ClusterRoot.at) -> Approved:
    """Write an approval of the gated change of a resource, bound to its digests."""
    session = Session(directory, open_root)
    result = Approved(session)
    with session.reporting():
        actor = request.actor
        if actor is None:
            message = "an approval needs a person: name one with --as"
            session.findings.stop("actor_required", request.resource, message)
        session.require_actor(actor, request.resource)
        desired = session.load()
        with session.locked("approve", desired.config) as (root, ledger):
            change, reason = _find_change(session, root, ledger.state or State(), request)
            question = change.question(desired.config_digest)
            approval = Approval(
                VERSION,
                root.new_id(),
                change.resource,
                change.operation.value,
                reason,
                question.config_digest,
                question.before_digest,
                question.after_digest,
                actor,
                root.now(),
            )
            write_approval(root, approval)
            result = replace(result, approval=approval)
    return result


def _find_change(
    session: Session, root: ClusterRoot, state: State, request: ApprovalRequest
) -> tuple[Change, str]:
    desired = session.desired
    if desired is not None:
        # What else the plan would report is not about this approval.
        made = build_plan(desired, state, Circumstances(), Findings())
        if request.allow_data_loss:
            made = preview(root, desired, made, Approvals(), session.findings)
            change = made.find(request.resource, Action.UPDATE)
            if change is not None and change.migration is not None and change.migration.has_drops:
                return change, DATA_LOSS_REASON
            message = f"the plan drops nothing of '{request.resource}'"
            session.findings.stop("approval_not_required", request.resource, message)
        for change, reason in find_gated(made.changes, desired):
            if change.resource == request.resource:
                return change, reason
    message = f"the plan has no change of '{request.resource}' that needs an approval"
    session.findings.stop("approval_not_required", request.resource, message)
