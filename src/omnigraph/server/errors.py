"""A failure as status, headers and body."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from omnigraph import errors
from omnigraph.engine.graph.layout import split_key
from omnigraph.server.wire import error_output as wire
from omnigraph.server.wire.base import encode

JSON = "application/json"
RETRY_AFTER = "60"

_CODES: Mapping[int, wire.ErrorCode] = {
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
"""Statuses without one have no `code`: the set is closed."""

_STATUSES: Mapping[type[errors.OmnigraphError], int] = {
    # The text of the request does not have the query it names; a stored query that is missing is `NotFound`.
    errors.QueryNotFound: 400,
    errors.EmbeddingUnavailable: 502,
}
"""Where the wire has another status than the library."""

_log = logging.getLogger(__name__)


class ClientGone(Exception):
    """The client closed the connection before its answer was ready."""


class OpaqueFailure(Exception):
    """A failure of the store that a contract describes in one sentence, and nothing else."""


class Restated(Exception):
    """A typed error that the wire answers with another status than its class has."""

    def __init__(self, error: errors.OmnigraphError, status: int) -> None:
        super().__init__(error.message)
        self.error = error
        self.status = status


def error_response(error: Exception, request_id: str) -> Response:
    """Return the answer to a failure; one that the caller is not to blame for is logged and not described."""
    if isinstance(error, OpaqueFailure):
        _log.error("request %s failed: %s", request_id, error, exc_info=error)
        return _respond(wire.ErrorOutput(error=str(error), code="internal"), 500, {})
    if isinstance(error, Restated):
        return _respond(error_body(error.error, error.status), error.status, _headers(error.error))
    if not isinstance(error, errors.OmnigraphError):
        _log.error("request %s failed", request_id, exc_info=error)
        return _respond(_internal(request_id, "internal"), 500, {})
    status = status_of(error)
    if status == 500:
        _log.error("request %s failed: %s", request_id, error, exc_info=error)
        return _respond(_internal(request_id, error.code), 500, {})
    return _respond(error_body(error, status), status, _headers(error))


def status_of(error: errors.OmnigraphError) -> int:
    """Return the status of the answer to a typed error."""
    return _STATUSES.get(type(error), error.status)


def error_body(error: errors.OmnigraphError, status: int) -> wire.ErrorOutput:
    """Return the body of a typed error: its facts under the names of the wire, and those of the library."""
    return wire.ErrorOutput(
        error=error.message,
        code=_CODES.get(status),
        error_code=error.code,
        remedy=error.remedy,
        retryable=error.retryable,
        data=error.data(),
        **_facts(error),
    )


def _internal(request_id: str, code: str) -> wire.ErrorOutput:
    return wire.ErrorOutput(
        error="the server could not carry out the request",
        code="internal",
        error_code=code,
        remedy=f"look for request {request_id} in the log of the server",
    )


def _respond(body: wire.ErrorOutput, status: int, headers: dict[str, str]) -> Response:
    return Response(encode(body), status, headers, media_type=JSON)


def _headers(error: errors.OmnigraphError) -> dict[str, str]:
    match error:
        case errors.Unauthorized():
            return {"WWW-Authenticate": "Bearer"}
        case errors.TooManyRequests():
            return {"Retry-After": RETRY_AFTER}
        case errors.MethodNotAllowed():
            return {"Allow": ", ".join(error.allowed)}
        case errors.UnsatisfiableRange():
            return {"Content-Range": f"bytes */{error.length}"}
        case _:
            return {}


def _facts(error: errors.OmnigraphError) -> dict[str, Any]:
    """Return the members that only errors of one kind have."""
    match error:
        case errors.MergeConflicts():
            return {"merge_conflicts": [_merge_conflict(found) for found in error.conflicts]}
        case errors.TableVersionConflict():
            return _version_conflict(error)
        case errors.ReadSetChanged():
            return {
                "read_set_conflict": wire.ReadSetConflict(
                    member=error.member, expected=error.expected, actual=error.actual
                )
            }
        case errors.KeyConflict():
            return {"key_conflict": _key_conflict(error)}
        case errors.ChangeDiffRefused():
            return {
                "change_diff_refusal": wire.ChangeDiffRefusal(
                    reason=error.reason, graph_commit_id=error.commit_id, type_name=error.type_name
                )
            }
        case _:
            return _limits_and_gaps(error)


def _limits_and_gaps(error: errors.OmnigraphError) -> dict[str, Any]:
    match error:
        case errors.ResourceLimitExceeded():
            return {
                "resource_limit": wire.ResourceLimit(
                    resource=error.resource, limit=error.limit, actual=error.actual
                )
            }
        case errors.UnsatisfiableRange():
            return {"blob_range": wire.BlobRange(start=error.start, end=error.end, length=error.length)}
        case errors.ExternalBlobUnavailable():
            return {"external_blob_source": wire.ExternalBlobSource(uri=error.uri, reason=error.reason)}
        case errors.RecoveryRequired():
            return {"recovery_required": wire.RecoveryIntent(operation_id=error.operation_id)}
        case errors.PreconditionFailed():
            return {
                "precondition_failure": wire.PreconditionFailure(expected=error.expected, actual=error.actual)
            }
        case errors.ChangeFeedGap():
            return {
                "change_feed_gap": wire.ChangeFeedGapOutput(
                    cursor=error.cursor, first_unreadable_commit_id=error.first_unreadable_commit_id
                )
            }
        case _:
            return {}


def _merge_conflict(found: Any) -> wire.MergeConflictOutput:
    return wire.MergeConflictOutput(**found.to_json())


def _version_conflict(error: errors.TableVersionConflict) -> dict[str, Any]:
    """Return the conflict under both of its names, where both versions are known."""
    if error.expected is None or error.actual is None:
        return {}
    kind, name = split_key(error.table_key)
    return {
        "manifest_conflict": wire.ManifestConflict(
            table_key=error.table_key, expected=error.expected, actual=error.actual
        ),
        "published_dataset_version_conflict": wire.PublishedDatasetVersionConflict(
            entity_kind=kind,
            type_name=name,
            expected_published_dataset_version=error.expected,
            actual_published_dataset_version=error.actual,
        ),
    }


def _key_conflict(error: errors.KeyConflict) -> wire.KeyConflictOutput:
    return wire.KeyConflictOutput(
        entity_kind=error.entity_kind,
        type_name=error.type_name,
        table_key=f"{error.entity_kind}:{error.type_name}",
        entity_id=error.entity_id,
        key=error.entity_id,
    )
