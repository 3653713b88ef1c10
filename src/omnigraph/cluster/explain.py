"""A plan in words: a diff that a person reads before applying it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

from omnigraph.cluster.plan import Action, Change, Disposition, Metadata, Plan
from omnigraph.deferred_dataclass import dataclass

_METADATA = {Metadata.BINDINGS: "bound to other scopes", Metadata.PROFILE: "another profile"}
_REASONS = {
    "approval_required": "needs an approval",
    "cluster_recovery_pending": "waits for recovery of an interrupted operation",
    "dependency_not_applied": "waits for something that was not applied",
    "apply_unsupported_kind": "cannot be applied alone",
}
_SIGNS = {Action.CREATE: "+", Action.UPDATE: "~", Action.DELETE: "-"}


class Tone(StrEnum):
    """How a line is shown on a terminal."""

    PLAIN = "plain"
    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    FAINT = "faint"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an explanation."""

    text: str
    tone: Tone = Tone.PLAIN


_TONES = {Action.CREATE: Tone.ADDED, Action.UPDATE: Tone.CHANGED, Action.DELETE: Tone.REMOVED}
_STEP_TONES = {"+": Tone.ADDED, "~": Tone.CHANGED, "-": Tone.REMOVED, "!": Tone.REMOVED}


def explain(plan: Plan) -> Iterator[Line]:
    """Return the lines of a plan: each change, what it does, what it affects, and what it needs."""
    yield Line(f"cluster plan: {len(plan.changes)} change(s), {len(plan.gates)} approval gate(s)")
    if not plan.changes:
        yield Line("  no changes")
    for change in plan.changes:
        yield from _explain_change(change, plan)
    for gate in plan.gates:
        state = "approved" if gate.satisfied else f"run `omnigraph cluster approve {gate.resource} --as YOU`"
        yield Line(f"  approval of {gate.resource}: {gate.reason}; {state}")


def describe_outcome(change: Change) -> Line:
    """Return one line about a change that apply decided about."""
    outcome = "" if change.disposition is None else change.disposition.value.capitalize()
    reason = "" if change.reason is None else f": {change.reason}"
    text = f"  {change.operation.value.capitalize()} {change.resource} [{outcome}{reason}]"
    return Line(text, Tone.FAINT if change.reason is not None else _TONES[change.operation])


def join(lines: Iterable[Line]) -> str:
    """Return lines as plain text."""
    return "\n".join(line.text for line in lines)


def _explain_change(change: Change, plan: Plan) -> Iterator[Line]:
    sign, tone = _SIGNS[change.operation], _TONES[change.operation]
    yield Line(
        f"  {sign} {change.operation.value.capitalize()} {change.resource}{_remark(change)}",
        Tone.FAINT if change.reason is not None else tone,
    )
    if change.migration is not None:
        for step in change.migration.words or ("no change of meaning: only the text differs",):
            yield Line(f"      {step}", _STEP_TONES.get(step[0], Tone.PLAIN))
        if change.migration.has_drops:
            hard = change.migration.data_loss_approved
            fate = "is removed for good (approved)" if hard else "stays readable in older commits"
            yield Line(f"      what is dropped {fate}", Tone.FAINT)
        if not change.migration.supported:
            yield Line("      this cannot be applied to the stored data", Tone.REMOVED)
    affected = plan.blast_radius.get(change.resource, ())
    if affected and change.operation is not Action.CREATE:
        yield Line(f"      affects {', '.join(affected)}", Tone.FAINT)


def _remark(change: Change) -> str:
    remarks = []
    if change.metadata_change is not None:
        remarks.append(_METADATA[change.metadata_change])
    if change.disposition is Disposition.DERIVED:
        remarks.append("follows from its parts")
    if change.reason is not None:
        remarks.append(_REASONS.get(change.reason, change.reason))
    return f" ({'; '.join(remarks)})" if remarks else ""
