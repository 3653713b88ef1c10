"""How far an interrupted write came with each table, and the decision that follows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.recovery.sidecar import CONFIRMED, Pin, Sidecar
from omnigraph.storage.staging import TransactionInfo

OPERATION = "omnigraph.operation"
"""The property by which a restore says which operation it undoes."""
RESTORED = "omnigraph.restored"
"""The property by which a restore says which version it went back to."""


class Proof(StrEnum):
    """How a record proves what it owns."""

    EXACT = "Exact"
    """By the marks of its transactions: all records of the current format, except those of `optimize`."""
    CONFIRMED = "Confirmed"
    """By the version recorded once all tables were written: merges of format 2."""
    STRICT = "Strict"
    """By being exactly one version above the base: mutations and loads of older formats."""
    LOOSE = "Loose"
    """By being above the base at all: where only storage changes, each version is as good as the next."""


class TableProgress(StrEnum):
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
    """Only a part of the write is there, or its completeness was not confirmed."""
    INVARIANT_VIOLATION = "InvariantViolation"
    """An impossible state: a table behind its manifest, one that cannot be read, or a write that is published
    without its commit.
    """


class Decision(StrEnum):
    """What happens to the write as a whole."""

    ROLL_FORWARD = "RollForward"
    ROLL_BACK = "RollBack"
    ABORT = "Abort"
    """Nothing is touched: a person has to look."""


@dataclass(frozen=True, slots=True)
class TableObservation:
    """A table as recovery finds it."""

    head: int
    pinned: int
    """The version the manifest publishes on the record's branch; 0 when it has none."""
    transactions: Sequence[TransactionInfo] = ()
    """Who made the versions after the expected one, in order."""
    damage: str = ""
    """Why its newest version cannot be read; then nothing else is known of it."""


@dataclass(frozen=True, slots=True)
class TableJudgement:
    """A pin, what was observed of it, and its class."""

    pin: Pin
    observed: TableObservation
    progress: TableProgress
    compensated: bool = False
    """True when an earlier recovery restored the table already."""


def proof_of(sidecar: Sidecar) -> Proof:
    """Return how to read a record: each format keeps its own meaning."""
    if sidecar.writer_kind == "Optimize":
        return Proof.LOOSE
    if sidecar.schema_version >= 3:
        return Proof.EXACT
    if sidecar.writer_kind in ("Mutation", "Load"):
        return Proof.STRICT
    if sidecar.writer_kind == "BranchMerge" and sidecar.schema_version == 2:
        return Proof.CONFIRMED
    return Proof.LOOSE


def judge_table(sidecar: Sidecar, pin: Pin, observed: TableObservation) -> TableJudgement:
    """Return how far the write came with one table."""
    head, pinned = observed.head, observed.pinned
    if head < pinned or observed.damage:
        return TableJudgement(pin, observed, TableProgress.INVARIANT_VIOLATION)
    proof = proof_of(sidecar)
    if proof is Proof.EXACT:
        return _exact(sidecar, pin, observed)
    if head == pinned:
        return TableJudgement(pin, observed, TableProgress.NO_MOVEMENT)
    return TableJudgement(pin, observed, _by_numbers(proof, pin, head, pinned))


def _by_numbers(proof: Proof, pin: Pin, head: int, pinned: int) -> TableProgress:
    """Judge a record without transaction marks, by version numbers alone."""
    on_base = pin.expected_version == pinned
    if proof is Proof.CONFIRMED:
        if pin.confirmed_version is None:
            return TableProgress.INCOMPLETE_PHASE_B
        return (
            TableProgress.ROLLED_PAST_EXPECTED
            if on_base and head == pin.confirmed_version
            else TableProgress.UNEXPECTED_MULTISTEP
        )
    if proof is Proof.LOOSE and on_base:
        return TableProgress.ROLLED_PAST_EXPECTED
    if head != pinned + 1:
        return TableProgress.UNEXPECTED_MULTISTEP
    is_ours = proof is Proof.STRICT and on_base and pin.post_commit_pin == head
    return TableProgress.ROLLED_PAST_EXPECTED if is_ours else TableProgress.UNEXPECTED_AT_P1


def _exact(sidecar: Sidecar, pin: Pin, observed: TableObservation) -> TableJudgement:
    owned = [one for one in observed.transactions if one.uuid in pin.transaction_uuids]
    if not owned:
        if observed.head == observed.pinned:
            return TableJudgement(pin, observed, TableProgress.NO_MOVEMENT)
        if _is_compensated(sidecar, observed):
            return TableJudgement(pin, observed, TableProgress.NO_MOVEMENT, compensated=True)
        one_step = observed.head == observed.pinned + 1
        return TableJudgement(
            pin, observed, TableProgress.UNEXPECTED_AT_P1 if one_step else TableProgress.UNEXPECTED_MULTISTEP
        )
    if any(one.version <= observed.pinned for one in owned):
        return TableJudgement(pin, observed, TableProgress.INVARIANT_VIOLATION)
    if _is_compensated(sidecar, observed):
        return TableJudgement(pin, observed, TableProgress.INCOMPLETE_PHASE_B, compensated=True)
    if owned[-1].version != observed.head:
        return TableJudgement(pin, observed, TableProgress.INVARIANT_VIOLATION)
    complete = (
        sidecar.phase == CONFIRMED
        # All versions since, not only the owned ones: no foreign change is published with it.
        and tuple(one.uuid for one in observed.transactions) == pin.transaction_uuids
        and observed.head == pin.confirmed_version
        and pin.expected_version == observed.pinned
    )
    return TableJudgement(
        pin, observed, TableProgress.ROLLED_PAST_EXPECTED if complete else TableProgress.INCOMPLETE_PHASE_B
    )


def _is_compensated(sidecar: Sidecar, observed: TableObservation) -> bool:
    """Whether the newest version is a restore that an earlier recovery of this write made."""
    newest = observed.transactions[-1] if observed.transactions else None
    return newest is not None and is_restore_of(newest, sidecar.operation_id)


def is_restore_of(made: TransactionInfo, operation_id: str | None = None) -> bool:
    """Whether a version is a restore by recovery, of this operation if one is given."""
    operation = made.properties.get(OPERATION)
    if made.operation != "Restore" or operation is None:
        return False
    return operation_id is None or operation == operation_id


def decide(sidecar: Sidecar, judged: Iterable[TableJudgement]) -> Decision:
    """All or nothing: a write takes effect in every table or in none."""
    classes = {one.progress for one in judged}
    if TableProgress.INVARIANT_VIOLATION in classes:
        return Decision.ABORT
    if classes - {TableProgress.ROLLED_PAST_EXPECTED} or sidecar.phase == "Armed":
        return Decision.ROLL_BACK
    return Decision.ROLL_FORWARD
