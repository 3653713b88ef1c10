"""Every kind of failure has its status, its code and its facts on the wire."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omnigraph import errors
from omnigraph.server.errors import error_response
from omnigraph.server.wire.error_output import ErrorOutput

CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "bad_request",
    415: "bad_request",
    416: "bad_request",
    429: "too_many_requests",
    500: "internal",
}


def body_of(error: Exception) -> tuple[int, dict[str, Any], dict[str, str]]:
    answer = error_response(error, "id-1")
    return answer.status_code, json.loads(bytes(answer.body)), dict(answer.headers)


CASES: list[tuple[errors.OmnigraphError, int, dict[str, Any]]] = [
    (errors.BadRequest("x"), 400, {}),
    (errors.Unauthorized("missing bearer token"), 401, {}),
    (errors.PolicyDenied("no", actor="a", action="read"), 403, {}),
    (errors.BranchNotFound("b"), 404, {}),
    (errors.MethodNotAllowed("PUT", "/x", ["GET"]), 405, {}),
    (errors.QueryCancelled("late"), 408, {}),
    (errors.RequestTimeout("late"), 408, {}),
    (
        errors.TableVersionConflict("node:Person", expected=7, actual=9),
        409,
        {
            "manifest_conflict": {"table_key": "node:Person", "expected": 7, "actual": 9},
            "published_dataset_version_conflict": {
                "entity_kind": "node",
                "type_name": "Person",
                "expected_published_dataset_version": 7,
                "actual_published_dataset_version": 9,
            },
        },
    ),
    (errors.TableVersionConflict("node:Person", expected=None, actual=9), 409, {}),
    (
        errors.ReadSetChanged("schema", expected="a", actual=None),
        409,
        {"read_set_conflict": {"member": "schema", "expected": "a", "actual": None}},
    ),
    (
        errors.KeyConflict("node", "Person", "Ada"),
        409,
        {
            "key_conflict": {
                "entity_kind": "node",
                "type_name": "Person",
                "table_key": "node:Person",
                "entity_id": "Ada",
                "key": "Ada",
            }
        },
    ),
    (
        errors.ChangeDiffRefused("no", reason="schema_boundary", commit_id="c"),
        409,
        {"change_diff_refusal": {"reason": "schema_boundary", "graph_commit_id": "c"}},
    ),
    (
        errors.ChangeFeedGap("cur", "c"),
        410,
        {"change_feed_gap": {"cursor": "cur", "first_unreadable_commit_id": "c"}},
    ),
    (
        errors.PreconditionFailed("main", expected="e", actual=None),
        412,
        {"precondition_failure": {"expected": "e"}},
    ),
    (
        errors.ResourceLimitExceeded("rows", limit=1, actual=2),
        413,
        {"resource_limit": {"resource": "rows", "limit": 1, "actual": 2}},
    ),
    (errors.UnsupportedMediaType("text/plain", "application/json"), 415, {}),
    (
        errors.UnsatisfiableRange(start=5, end=6, length=3),
        416,
        {"blob_range": {"start": 5, "end": 6, "length": 3}},
    ),
    (
        errors.ExternalBlobUnavailable("s3://b/x", "gone"),
        424,
        {"external_blob_source": {"uri": "s3://b/x", "reason": "gone"}},
    ),
    (errors.TooManyRequests("cap"), 429, {}),
    (errors.EmbeddingUnavailable("openai", "m", "down"), 502, {}),
    (errors.WriterBusy("main", owner="x", waited=1.0), 503, {}),
    (errors.LockLost("main"), 503, {}),
    (
        errors.RecoveryRequired("op", "why"),
        503,
        {"recovery_required": {"operation_id": "op"}},
    ),
]


@pytest.mark.parametrize(("error", "status", "facts"), CASES, ids=lambda value: type(value).__name__)
def test_error_has_its_status_code_and_facts(
    error: errors.OmnigraphError, status: int, facts: dict[str, Any]
) -> None:
    found, body, _ = body_of(error)
    assert found == status
    assert body.get("code") == CODES.get(status)
    assert body["error"] == error.message
    assert body["error_code"] == error.code
    assert body.get("retryable", False) is error.retryable
    assert body.get("remedy") == error.remedy
    own = {name: value for name, value in body.items() if name not in SHARED}
    assert own == facts


SHARED = {"error", "code", "error_code", "remedy", "retryable", "data"}


def test_headers_that_go_with_a_status() -> None:
    assert body_of(errors.Unauthorized("x"))[2]["www-authenticate"] == "Bearer"
    assert body_of(errors.TooManyRequests("x"))[2]["retry-after"] == "60"
    assert body_of(errors.MethodNotAllowed("PUT", "/x", ["GET", "POST"]))[2]["allow"] == "GET, POST"
    assert body_of(errors.UnsatisfiableRange(start=1, end=2, length=0))[2]["content-range"] == "bytes */0"


@pytest.mark.parametrize(
    "error",
    [
        errors.StorageFailure("/secret/place is broken", kind="io", uri="/secret/place"),
        OSError("/secret/place"),
    ],
)
def test_failure_of_the_server_is_logged_and_not_described(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    status, body, _ = body_of(error)
    assert (status, body["code"]) == (500, "internal")
    assert "/secret" not in json.dumps(body)
    assert "id-1" in body["remedy"]
    assert "/secret/place" in caplog.text


def test_members_of_the_body_are_those_of_the_contract() -> None:
    assert set(ErrorOutput.__struct_fields__) - SHARED == {
        "merge_conflicts",
        "manifest_conflict",
        "published_dataset_version_conflict",
        "read_set_conflict",
        "key_conflict",
        "resource_limit",
        "blob_range",
        "external_blob_source",
        "recovery_required",
        "precondition_failure",
        "change_feed_gap",
        "change_diff_refusal",
    }
