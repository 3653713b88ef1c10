"""The text of a record: every form is read for ever, and nothing is believed that cannot be trusted."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from omnigraph.engine.commit.recovery.sidecar import (
    CURRENT,
    Authority,
    FirstTouch,
    LineageIntent,
    OwnerMark,
    Pin,
    Sidecar,
    Unreadable,
    Update,
    decode,
    encode,
)

OPERATION = "01J00000000000000000000000"

FULL = Sidecar(
    schema_version=CURRENT,
    operation_id=OPERATION,
    started_at="1700000000000000",
    writer_kind="Mutation",
    branch="a/b",
    actor_id="act-ivy",
    tables=(
        Pin(
            table_key="node:Person",
            table_path="/g/nodes/1",
            expected_version=3,
            post_commit_pin=4,
            confirmed_version=4,
            table_branch="a/b",
            transaction_uuids=("u1", "u2"),
            first_touch=FirstTouch(source_version=3),
        ),
    ),
    phase="EffectsConfirmed",
    lineage=LineageIntent(graph_commit_id="C", created_at=5, merged_parent_commit_id="P"),
    merge_source_commit_id="P",
    rollback_commit_id="R",
    restore_commit_id="S",
    owner=OwnerMark(host="h", pid=7, token="t"),
    lance_version="1.2.3",
    authority=Authority(branch_identifier=((3, "x"), (4, "y")), graph_head="H", schema_ir_hash="I"),
    updates=(Update(table_key="node:Person", table_version=4, table_branch="a/b", row_count=9),),
)
BARE = Sidecar(schema_version=CURRENT, operation_id=OPERATION, started_at="1", writer_kind="Load")

PIN = {"table_key": "node:Person", "table_path": "/g/n", "expected_version": 3, "post_commit_pin": 4}


def old_form(version: int, **more: Any) -> dict[str, Any]:
    """A record as an older release wrote it."""
    return {
        "schema_version": version,
        "operation_id": OPERATION,
        "started_at": "1700000000000000",
        "branch": None,
        "actor_id": None,
        "writer_kind": "Mutation",
        "tables": [PIN],
        **more,
    }


@pytest.mark.parametrize("record", [FULL, BARE], ids=["full", "bare"])
def test_a_record_reads_back_as_it_was_written(record: Sidecar) -> None:
    found = decode(encode(record), OPERATION)
    assert isinstance(found, Sidecar)
    assert msgspec.structs.replace(found, checksum=None) == record
    assert found.checksum is not None


def test_a_record_of_main_says_so() -> None:
    assert json.loads(encode(BARE))["branch"] is None


@pytest.mark.parametrize("version", [1, 2])
def test_older_forms_are_read_without_a_checksum(version: int) -> None:
    found = decode(json.dumps(old_form(version, branch="b")), OPERATION)
    assert isinstance(found, Sidecar)
    assert (found.schema_version, found.graph_branch) == (version, "b")
    assert found.phase is None
    assert found.tables == (
        Pin(table_key="node:Person", table_path="/g/n", expected_version=3, post_commit_pin=4),
    )


def test_the_second_form_keeps_its_confirmation_and_its_merge_source() -> None:
    text = json.dumps(
        old_form(
            2,
            writer_kind="BranchMerge",
            tables=[{**PIN, "confirmed_version": 6, "table_branch": "b"}],
            merge_source_commit_id="P",
        )
    )
    found = decode(text, OPERATION)
    assert isinstance(found, Sidecar)
    assert found.tables[0].confirmed_version == 6
    assert found.merge_source_commit_id == "P"


def test_members_of_older_forms_that_are_not_needed_are_passed_over() -> None:
    text = json.dumps(old_form(2, tombstones=[], additional_registrations=[]))
    assert isinstance(decode(text, OPERATION), Sidecar)


def unreadable(text: str) -> Unreadable:
    found = decode(text, OPERATION)
    assert isinstance(found, Unreadable)
    assert found.operation_id == OPERATION
    return found


def test_a_newer_form_is_refused_before_the_rest_is_read() -> None:
    found = unreadable(json.dumps({"schema_version": CURRENT + 1, "branch": "b", "tables": "elsewhere"}))
    assert "newer release" in found.reason
    assert "upgrade" in found.reason
    assert found.branch == "b"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not an object"),
        ('"x"', "not an object"),
        ("{}", "no version"),
        ('{"schema_version": "3"}', "no version"),
        ('{"schema_version": true}', "no version"),
        ('{"schema_version": 0}', "no version"),
        ('{"schema_version": 3}', "checksum"),
    ],
)
def test_what_is_no_record_is_recognised(text: str, reason: str) -> None:
    assert reason in unreadable(text).reason


def test_every_changed_byte_of_meaning_breaks_the_checksum() -> None:
    whole = json.loads(encode(FULL))
    for member in whole:
        changed = {**whole, member: "changed"}
        found = unreadable(json.dumps(changed))
        assert "checksum" in found.reason or member == "schema_version"
    for member in whole:
        missing = {name: value for name, value in whole.items() if name != member}
        assert isinstance(decode(json.dumps(missing), OPERATION), Unreadable)


def test_layout_of_the_text_does_not_matter_to_the_checksum() -> None:
    compact = json.dumps(json.loads(encode(FULL)), separators=(",", ":"), sort_keys=True)
    assert isinstance(decode(compact, OPERATION), Sidecar)


@pytest.mark.parametrize(
    ("branch", "known"),
    [({"branch": "b"}, "b"), ({"branch": None}, "main"), ({}, None), ({"branch": 5}, None)],
)
def test_a_distrusted_record_still_says_whom_it_concerns(branch: dict[str, Any], known: str | None) -> None:
    assert unreadable(json.dumps({"schema_version": 3, **branch})).branch == known


@pytest.mark.parametrize(
    "wrong",
    [
        {"writer_kind": "Rewrite"},
        {"tables": [{"table_key": "node:Person"}]},
        {"tables": None},
        {"started_at": 5},
    ],
)
def test_a_malformed_older_record_is_recognised(wrong: dict[str, Any]) -> None:
    assert "malformed" in unreadable(json.dumps(old_form(2, **wrong))).reason


def test_a_record_under_the_name_of_another_operation_is_not_believed() -> None:
    found = decode(encode(FULL), "01J99999999999999999999999")
    assert isinstance(found, Unreadable)
    assert OPERATION in found.reason
