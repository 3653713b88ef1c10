"""Decide how an interrupted write ends, from its record, the manifest and the tables; changes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ulid import ULID

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.recovery.damage import is_damage
from omnigraph.engine.commit.recovery.sidecar import Pin, Sidecar
from omnigraph.engine.commit.recovery.table_progress import (
    Decision,
    Proof,
    TableJudgement,
    TableObservation,
    TableProgress,
    decide,
    judge_table,
    proof_of,
)
from omnigraph.engine.commit.schema_staging import is_schema_staged
from omnigraph.engine.graph.coordinator import Coordinator
from omnigraph.engine.graph.manifest import ManifestState
from omnigraph.engine.graph.root import Root
from omnigraph.errors import BranchNotFound, CorruptGraph, RecoveryRequired, StorageFailure
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.location import Location
from omnigraph.storage.locks import HeldLocks
from omnigraph.storage.references import Fork
from omnigraph.storage.staging import read_transactions
from omnigraph.storage.tables import Table


@dataclass(frozen=True, slots=True)
class RecoveryContext:
    """Everything a recovery of one record works with; the branch's lock is held."""

    root: Root
    coordinator: Coordinator
    held: HeldLocks
    sidecar: Sidecar

    @property
    def forward_id(self) -> str:
        """The id of the commit that means success."""
        lineage = self.sidecar.lineage
        return lineage.graph_commit_id if lineage else outcome_id(self.sidecar, "forward")

    @property
    def rollback_id(self) -> str:
        """The id of the commit that means the write never happened."""
        return self.sidecar.rollback_commit_id or outcome_id(self.sidecar, "back")


def outcome_id(sidecar: Sidecar, outcome: str) -> str:
    """Return the id of an outcome for records that name none; deterministic."""
    digest = hashlib.sha256(f"{outcome}:{sidecar.operation_id}".encode()).digest()
    return str(ULID.from_bytes(digest[:16]))


def judge_tables(context: RecoveryContext) -> list[TableJudgement]:
    """Return how far the write came with every table of its record."""
    state = context.coordinator.load().state
    return [
        judge_table(context.sidecar, pin, _observe(context, pin, state)) for pin in context.sidecar.tables
    ]


def judge_tables_to_undo(
    context: RecoveryContext, judged: Iterable[TableJudgement] | None = None
) -> list[TableJudgement]:
    """Return the same, and whether the versions to restore can be read."""
    state = context.coordinator.load().state
    return [_check_base(context, one, state) for one in (judge_tables(context) if judged is None else judged)]


def _check_base(context: RecoveryContext, one: TableJudgement, state: ManifestState) -> TableJudgement:
    pin, observed = one.pin, one.observed
    if one.compensated or is_foreign(context, one) or not 0 < observed.pinned < observed.head:
        return one  # nothing is restored
    try:
        context.root.tables.open(location_of(context, pin, state), observed.pinned, branch=pin.table_branch)
    except StorageFailure as failure:
        if not is_damage(failure):
            raise
        return TableJudgement(
            pin, replace(observed, damage=failure.message), TableProgress.INVARIANT_VIOLATION
        )
    return one


def is_foreign(context: RecoveryContext, one: TableJudgement) -> bool:
    """Whether a table was only moved by another writer; older records cannot tell, and undo that too."""
    unexpected = one.progress in (TableProgress.UNEXPECTED_AT_P1, TableProgress.UNEXPECTED_MULTISTEP)
    return context.sidecar.schema_version >= 3 and unexpected


def location_of(context: RecoveryContext, pin: Pin, state: ManifestState) -> Location:
    """Return the location of a pinned table, from the manifest: the record may be of a copied graph."""
    path = state.locations.get(pin.table_key)
    return (
        context.root.layout.recorded_table(pin.table_path)
        if path is None
        else context.root.layout.table(path)
    )


def _observe(context: RecoveryContext, pin: Pin, state: ManifestState) -> TableObservation:
    pinned = pinned_version(state, pin)
    try:
        return _observe_readable(context, pin, state, pinned)
    except StorageFailure as failure:
        if not is_damage(failure):
            raise
        return TableObservation(head=0, pinned=pinned, damage=failure.message)


def _observe_readable(
    context: RecoveryContext, pin: Pin, state: ManifestState, pinned: int
) -> TableObservation:
    try:
        tip = open_tip(context, pin, state)
    except StorageFailure as failure:
        if failure.kind != TableFailureKind.NOT_FOUND:
            raise
        return TableObservation(head=0, pinned=pinned)  # its versions are gone, that of the manifest included
    if tip is None:
        return TableObservation(head=pinned, pinned=pinned)
    if proof_of(context.sidecar) is not Proof.EXACT:
        return TableObservation(head=tip.version, pinned=pinned)
    # Its own transactions are above the published version, even if the record expects another one.
    base = min(pin.expected_version, pinned) if pinned else pin.expected_version
    made = read_transactions(tip, base, tip.version)
    return TableObservation(head=tip.version, pinned=pinned, transactions=made)


def open_tip(context: RecoveryContext, pin: Pin, state: ManifestState) -> Table | None:
    """Open the newest version of a pinned table; None when its fork was never created."""
    place, branch = location_of(context, pin, state), pin.table_branch
    # Older records do not say whether the fork existed before. Files alone are no fork.
    may_miss = pin.first_touch is not None or context.sidecar.schema_version < 3
    if may_miss and branch is not None and not _is_intended_fork(context.root.forks.find(place, branch), pin):
        return None
    return context.root.tables.tip(place, branch=branch)


def _is_intended_fork(fork: Fork | None, pin: Pin) -> bool:
    """Whether a fork may be that of the write: an earlier branch of the name may have left another."""
    if fork is None or pin.first_touch is None:
        return fork is not None
    touch = pin.first_touch
    return (fork.parent, fork.parent_version) == (touch.source_branch, touch.source_version)


def pinned_version(state: ManifestState, pin: Pin) -> int:
    """The version of a table that the manifest publishes; 0 when it has none."""
    known = state.versions.get(pin.table_key)
    return known.version if known else 0


# --- how it ends ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a write ends, as things stand."""

    decision: Decision
    visible: bool = False
    """Whether the manifest shows that outcome already, and only its consequences are missing."""
    judged: tuple[TableJudgement, ...] = ()


def reach_verdict(context: RecoveryContext) -> Verdict:
    """Return how the write of a record ends; changes nothing."""
    _require_branch(context)
    outcome = visible_outcome(context)
    if outcome is not None:
        return Verdict(outcome, visible=True)
    judged = tuple(judge_tables(context))
    if _is_published_legacy(context, judged):
        return Verdict(Decision.ROLL_FORWARD, visible=True, judged=judged)
    decision = decide(context.sidecar, judged)
    if decision is Decision.ROLL_FORWARD and not _may_go_forward(context):
        decision = Decision.ROLL_BACK
    if decision is Decision.ROLL_BACK:
        judged = tuple(judge_tables_to_undo(context, judged))
        if any(one.observed.damage for one in judged):
            decision = Decision.ABORT
    return Verdict(decision, judged=judged)


def _require_branch(context: RecoveryContext) -> None:
    """Raise `RecoveryRequired` when the manifest of the branch, which decides everything, is damaged."""
    branch = context.sidecar.graph_branch
    try:
        context.coordinator.load()
    except (BranchNotFound, CorruptGraph, StorageFailure) as error:
        if isinstance(error, BranchNotFound):
            # Without its reference the branch was just deleted; with it, its versions are missing.
            harmless = context.root.forks.find(context.root.layout.manifest, branch) is None
        else:
            harmless = not is_damage(error)
        if harmless:
            raise
        reason = f"branch '{branch}' cannot be read: {error.message}"
        raise RecoveryRequired(context.sidecar.operation_id, reason) from error


def _may_go_forward(context: RecoveryContext) -> bool:
    """Whether a completed write still fits: it is never published on a head it does not know."""
    sidecar, authority = context.sidecar, context.sidecar.authority
    if sidecar.writer_kind == "SchemaApply" and not is_schema_staged(context.root, schema_target(sidecar)):
        return False
    if authority is None:
        return True
    loaded = context.coordinator.load()
    head = loaded.state.head.id if loaded.state.head else None
    return (loaded.identity, head) == (authority.branch_identifier, authority.graph_head)


def visible_outcome(context: RecoveryContext) -> Decision | None:
    """Return the outcome that the manifest shows, if any."""
    commits = context.coordinator.load().state.commits
    if context.forward_id in commits:
        return Decision.ROLL_FORWARD
    if context.rollback_id in commits:
        return Decision.ROLL_BACK
    return None


def is_repinned(context: RecoveryContext) -> bool:
    """Whether the restored versions are published, so that nothing is left to restore."""
    if context.sidecar.schema_version < 3:
        return True
    return context.sidecar.restore_commit_id in context.coordinator.load().state.commits


def _is_published_legacy(context: RecoveryContext, judged: Sequence[TableJudgement]) -> bool:
    """Whether a record of an older format, which names no commit, is of a published write."""
    if context.sidecar.schema_version >= 3 or any(
        one.progress is not TableProgress.NO_MOVEMENT for one in judged
    ):
        return False
    return any(one.observed.pinned > one.pin.expected_version for one in judged)


def schema_target(sidecar: Sidecar) -> str | None:
    """Return the hash of the schema that the write accepts, if it accepts one."""
    return sidecar.schema_target.schema_ir_hash if sidecar.schema_target else None
