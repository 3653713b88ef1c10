"""What an interrupted write reached, told from its record and the tables, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from omnigraph.engine.recovery.sidecar import Pin, Sidecar
from omnigraph.storage.transactions import Authorship

OPERATION = "omnigraph.operation"
"""The property by which a restore says which operation it undoes."""
RESTORED = "omnigraph.restored"
"""The property by which a restore says which version it went back to."""


class Proof(StrEnum):
    """How a record proves what it owns."""

    EXACT = "Exact"
    """By the marks of its transactions: all records of the present form, but for those of `optimize`."""
    CONFIRMED = "Confirmed"
    """By the version that was noted once all tables had moved: merges of form 2."""
    STRICT = "Strict"
    """By being exactly one version above the base: mutations and loads of older forms."""
    LOOSE = "Loose"
    """By being above the base at all: where rows only move, each version is as good as the next."""


class Reached(StrEnum):
    """How far a write came with one table."""

    NO_MOVEMENT = "NoMovement"
    """Nothing of the write is in the table, or what was is restored."""
    ROLLED_PAST_EXPECTED = "RolledPastExpected"
    """All of it is there, and nothing else."""
    UNEXPECTED_AT_P1 = "UnexpectedAtP1"
    """The table is one version above the published one, and the write did not make that."""
    UNEXPECTED_MULTISTEP = "UnexpectedMultistep"
    """It is several versions above, and the write did not make them."""
    INCOMPLETE_PHASE_B = "IncompletePhaseB"
    """Only a part of the write is there, or nobody confirmed that it is all."""
    INVARIANT_VIOLATION = "InvariantViolation"
    """What must not be: a table behind its manifest, one that cannot be read, or a write that is published
    without its commit.
    """


class Decision(StrEnum):
    """What happens to the write as a whole."""

    ROLL_FORWARD = "RollForward"
    ROLL_BACK = "RollBack"
    ABORT = "Abort"
    """Nothing is touched: a person has to look."""


@dataclass(frozen=True, slots=True)
class Observed:
    """A table as recovery finds it."""

    head: int
    pinned: int
    """The version the manifest publishes on the record's branch; 0 when it has none."""
    transactions: Sequence[Authorship] = ()
    """Who made the versions after the expected one, in order."""
    damage: str = ""
    """Why its newest version cannot be read; then nothing else is known of it."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A pin, what was observed of it, and its class."""

    pin: Pin
    observed: Observed
    reached: Reached
    compensated: bool = False
    """True when an earlier recovery restored the table already."""


def proof_of(sidecar: Sidecar) -> Proof:
    """How to read a record: each form keeps its own meaning for ever."""
    if sidecar.writer_kind == "Optimize":
        return Proof.LOOSE
    if sidecar.schema_version >= 3:
        return Proof.EXACT
    if sidecar.writer_kind in ("Mutation", "Load"):
        return Proof.STRICT
    if sidecar.writer_kind == "BranchMerge" and sidecar.schema_version == 2:
        return Proof.CONFIRMED
    return Proof.LOOSE


def judge(sidecar: Sidecar, pin: Pin, observed: Observed) -> Judged:
    """How far the write came with one table."""
    head, pinned = observed.head, observed.pinned
    if head < pinned or observed.damage:
        return Judged(pin, observed, Reached.INVARIANT_VIOLATION)
    proof = proof_of(sidecar)
    if proof is Proof.EXACT:
        return _exact(sidecar, pin, observed)
    if head == pinned:
        return Judged(pin, observed, Reached.NO_MOVEMENT)
    return Judged(pin, observed, _by_numbers(proof, pin, head, pinned))


def _by_numbers(proof: Proof, pin: Pin, head: int, pinned: int) -> Reached:
    """Records without transaction marks: only version numbers can tell."""
    on_base = pin.expected_version == pinned
    if proof is Proof.CONFIRMED:
        if pin.confirmed_version is None:
            return Reached.INCOMPLETE_PHASE_B
        return (
            Reached.ROLLED_PAST_EXPECTED
            if on_base and head == pin.confirmed_version
            else Reached.UNEXPECTED_MULTISTEP
        )
    if proof is Proof.LOOSE and on_base:
        return Reached.ROLLED_PAST_EXPECTED
    if head != pinned + 1:
        return Reached.UNEXPECTED_MULTISTEP
    is_ours = proof is Proof.STRICT and on_base and pin.post_commit_pin == head
    return Reached.ROLLED_PAST_EXPECTED if is_ours else Reached.UNEXPECTED_AT_P1


def _exact(sidecar: Sidecar, pin: Pin, observed: Observed) -> Judged:
    owned = [one for one in observed.transactions if one.uuid in pin.transaction_uuids]
    if not owned:
        if observed.head == observed.pinned:
            return Judged(pin, observed, Reached.NO_MOVEMENT)
        if _is_compensated(sidecar, observed):
            return Judged(pin, observed, Reached.NO_MOVEMENT, compensated=True)
        one_step = observed.head == observed.pinned + 1
        return Judged(pin, observed, Reached.UNEXPECTED_AT_P1 if one_step else Reached.UNEXPECTED_MULTISTEP)
    if any(one.version <= observed.pinned for one in owned):
        return Judged(pin, observed, Reached.INVARIANT_VIOLATION)
    if _is_compensated(sidecar, observed):
        return Judged(pin, observed, Reached.INCOMPLETE_PHASE_B, compensated=True)
    if owned[-1].version != observed.head:
        return Judged(pin, observed, Reached.INVARIANT_VIOLATION)
    complete = (
        sidecar.phase == "EffectsConfirmed"
        # All versions since, not only the owned ones: nothing of anybody else's is published with it.
        and tuple(one.uuid for one in observed.transactions) == pin.transaction_uuids
        and observed.head == pin.confirmed_version
        and pin.expected_version == observed.pinned
    )
    return Judged(pin, observed, Reached.ROLLED_PAST_EXPECTED if complete else Reached.INCOMPLETE_PHASE_B)


def _is_compensated(sidecar: Sidecar, observed: Observed) -> bool:
    """Whether the newest version is a restore that an earlier recovery of this write made."""
    newest = observed.transactions[-1] if observed.transactions else None
    return newest is not None and is_restore_of(newest, sidecar.operation_id)


def is_restore_of(made: Authorship, operation_id: str | None = None) -> bool:
    """Whether a version is a restore by recovery, of this operation if one is given."""
    operation = made.properties.get(OPERATION)
    if made.operation != "Restore" or operation is None:
        return False
    return operation_id is None or operation == operation_id


def decide(sidecar: Sidecar, judged: Iterable[Judged]) -> Decision:
    """All or nothing: a write takes effect in every table or in none."""
    classes = {one.reached for one in judged}
    if Reached.INVARIANT_VIOLATION in classes:
        return Decision.ABORT
    if classes - {Reached.ROLLED_PAST_EXPECTED} or sidecar.phase == "Armed":
        return Decision.ROLL_BACK
    return Decision.ROLL_FORWARD
