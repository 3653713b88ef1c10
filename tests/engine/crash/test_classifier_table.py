"""Every mode against every standing of a table, and the decision over every set of classes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, combinations, product

import pytest

from omnigraph.engine.commit.recovery.sidecar import Phase, Pin, Sidecar, WriterKind
from omnigraph.engine.commit.recovery.table_progress import (
    OPERATION,
    Decision,
    Proof,
    TableJudgement,
    TableObservation,
    TableProgress,
    decide,
    judge_table,
    proof_of,
)
from omnigraph.storage.staging import TransactionInfo

ID = "01J00000000000000000000000"

KINDS: tuple[WriterKind, ...] = (
    "Mutation",
    "Load",
    "SchemaApply",
    "BranchMerge",
    "EnsureIndices",
    "Optimize",
)


def record(version: int, kind: WriterKind = "Mutation", phase: Phase | None = None) -> Sidecar:
    return Sidecar(schema_version=version, operation_id=ID, started_at="1", writer_kind=kind, phase=phase)


def pin(expected: int, *, post: int = 0, confirmed: int | None = None, uuids: tuple[str, ...] = ()) -> Pin:
    return Pin(
        table_key="node:Person",
        table_path="/g",
        expected_version=expected,
        post_commit_pin=post or expected + 1,
        confirmed_version=confirmed,
        transaction_uuids=uuids,
    )


# --- modes ---------------------------------------------------------------------------------------

MODES = {
    1: ("Strict", "Strict", "Loose", "Loose", "Loose", "Loose"),
    2: ("Strict", "Strict", "Loose", "Confirmed", "Loose", "Loose"),
    3: ("Exact", "Exact", "Exact", "Exact", "Exact", "Loose"),
}


@pytest.mark.parametrize(
    ("version", "kind", "mode"),
    [
        (version, kind, mode)
        for version, modes in MODES.items()
        for kind, mode in zip(KINDS, modes, strict=True)
    ],
)
def test_each_form_of_each_writer_has_its_mode(version: int, kind: WriterKind, mode: str) -> None:
    assert proof_of(record(version, kind)) == Proof(mode)


# --- modes that count versions -------------------------------------------------------------------

PINNED = 5
N, R, P1, MULTI, PARTIAL, BROKEN = (
    TableProgress.NO_MOVEMENT,
    TableProgress.ROLLED_PAST_EXPECTED,
    TableProgress.UNEXPECTED_AT_P1,
    TableProgress.UNEXPECTED_MULTISTEP,
    TableProgress.INCOMPLETE_PHASE_B,
    TableProgress.INVARIANT_VIOLATION,
)

# Rows: expected below, at and above what is pinned. Columns: head at pinned -1, 0, +1, +2.
STRICT = {-1: (BROKEN, N, P1, MULTI), 0: (BROKEN, N, R, MULTI), 1: (BROKEN, N, P1, MULTI)}
LOOSE = {-1: (BROKEN, N, P1, MULTI), 0: (BROKEN, N, R, R), 1: (BROKEN, N, P1, MULTI)}
CONFIRMED_AT_P1 = {-1: (BROKEN, N, MULTI, MULTI), 0: (BROKEN, N, R, MULTI), 1: (BROKEN, N, MULTI, MULTI)}
UNCONFIRMED = dict.fromkeys((-1, 0, 1), (BROKEN, N, PARTIAL, PARTIAL))

TABLES: list[tuple[Sidecar, int | None, Mapping[int, tuple[TableProgress, ...]]]] = [
    (record(2, "Mutation"), None, STRICT),
    (record(1, "Load"), None, STRICT),
    (record(2, "SchemaApply"), None, LOOSE),
    (record(3, "Optimize"), None, LOOSE),
    (record(1, "BranchMerge"), PINNED + 1, LOOSE),
    (record(2, "BranchMerge"), PINNED + 1, CONFIRMED_AT_P1),
    (record(2, "BranchMerge"), None, UNCONFIRMED),
]


@pytest.mark.parametrize(
    ("sidecar", "confirmed", "expected", "head", "found"),
    [
        (sidecar, confirmed, PINNED + step, PINNED + head, classes[head + 1])
        for sidecar, confirmed, rows in TABLES
        for (step, classes), head in product(rows.items(), (-1, 0, 1, 2))
    ],
)
def test_older_records_are_judged_by_version_numbers(
    sidecar: Sidecar, confirmed: int | None, expected: int, head: int, found: TableProgress
) -> None:
    judged = judge_table(sidecar, pin(expected, confirmed=confirmed), TableObservation(head, PINNED))
    assert judged.progress == found


def test_a_strict_record_owns_only_the_version_it_announced() -> None:
    observed = TableObservation(PINNED + 1, PINNED)
    assert judge_table(record(2), pin(PINNED, post=PINNED + 2), observed).progress == P1


# --- exact ---------------------------------------------------------------------------------------


def make_transaction(version: int, what: str) -> TransactionInfo:
    if what in ("restore", "other restore"):
        operation = ID if what == "restore" else "another"
        return TransactionInfo(version, "Restore", f"r{version}", version - 1, {OPERATION: operation})
    return TransactionInfo(version, "Update", what, version - 1)


@pytest.mark.parametrize(
    ("plan", "phase", "confirmed", "pinned", "versions", "found", "compensated"),
    [
        # plan, phase, confirmed, pinned, who made the versions after 5
        (("a",), "EffectsConfirmed", 6, 5, (), N, False),
        (("a",), "Armed", None, 5, (), N, False),
        (("a",), "EffectsConfirmed", 6, 5, ("a",), R, False),
        (("a",), "Armed", None, 5, ("a",), PARTIAL, False),
        (("a", "b"), "EffectsConfirmed", 7, 5, ("a", "b"), R, False),
        (("a", "b"), "Armed", None, 5, ("a", "b"), PARTIAL, False),
        (("a", "b"), "Armed", None, 5, ("a",), PARTIAL, False),
        (("a", "b"), "EffectsConfirmed", 7, 5, ("a",), PARTIAL, False),
        (("a",), "EffectsConfirmed", 7, 5, ("a",), PARTIAL, False),
        (("a",), "EffectsConfirmed", None, 5, ("a",), PARTIAL, False),
        (("a",), "Armed", None, 5, ("a", "restore"), PARTIAL, True),
        (("a",), "EffectsConfirmed", 6, 5, ("a", "restore"), PARTIAL, True),
        (("a", "b"), "Armed", None, 5, ("a", "restore"), PARTIAL, True),
        (("a",), "Armed", None, 5, ("restore",), N, True),
        (("a",), "EffectsConfirmed", 6, 5, ("a", "foreign"), BROKEN, False),
        (("a",), "Armed", None, 5, ("a", "other restore"), BROKEN, False),
        (("a",), "Armed", None, 5, ("foreign", "a"), PARTIAL, False),
        (("a",), "EffectsConfirmed", 7, 5, ("foreign", "a"), PARTIAL, False),
        (("a",), "Armed", None, 6, ("a",), BROKEN, False),
        (("a",), "Armed", None, 6, ("a", "foreign"), BROKEN, False),
        (("a",), "EffectsConfirmed", 7, 6, ("foreign", "a"), PARTIAL, False),
        (("a",), "EffectsConfirmed", 6, 5, ("foreign",), P1, False),
        (("a",), "Armed", None, 5, ("foreign",), P1, False),
        (("a",), "Armed", None, 5, ("foreign", "foreign"), MULTI, False),
        (("a",), "Armed", None, 5, ("other restore",), P1, False),
        (("a",), "Armed", None, 6, ("foreign",), N, False),
        (("a",), "Armed", None, 7, ("foreign",), BROKEN, False),
    ],
)
def test_a_new_record_knows_its_own_transactions(
    plan: tuple[str, ...],
    phase: Phase,
    confirmed: int | None,
    pinned: int,
    versions: tuple[str, ...],
    found: TableProgress,
    compensated: bool,
) -> None:
    transactions = tuple(make_transaction(6 + position, what) for position, what in enumerate(versions))
    observed = TableObservation(5 + len(versions), pinned, transactions)
    judged = judge_table(record(3, "Mutation", phase), pin(5, confirmed=confirmed, uuids=plan), observed)
    assert (judged.progress, judged.compensated) == (found, compensated)


# --- the decision --------------------------------------------------------------------------------

SETS = list(chain.from_iterable(combinations(TableProgress, size) for size in range(len(TableProgress) + 1)))


@pytest.mark.parametrize("classes", SETS, ids=lambda found: "+".join(found) or "none")
@pytest.mark.parametrize("phase", [None, "Armed", "EffectsConfirmed"])
def test_a_write_takes_effect_everywhere_or_nowhere(
    classes: tuple[TableProgress, ...], phase: Phase | None
) -> None:
    sidecar = record(2 if phase is None else 3, "Mutation", phase)
    judged = [TableJudgement(pin(5), TableObservation(5, 5), one) for one in classes]
    if BROKEN in classes:
        expected = Decision.ABORT
    elif set(classes) <= {R} and phase != "Armed":
        expected = Decision.ROLL_FORWARD
    else:
        expected = Decision.ROLL_BACK
    assert decide(sidecar, judged) is expected
