"""Requests made from the OpenAPI document: no failure of the server, no status or body it does not name."""

from __future__ import annotations

import json
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)

from omnigraph.server.openapi import build_openapi
from omnigraph.server.route import ARROW, TAR
from tests.examples import EXAMPLES
from tests.server.running import RunningServer

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
REQUESTS = max(3, EXAMPLES // 80)
"""For each operation; over 20,000 in the long form."""

document: Any = schemathesis.openapi.from_dict(build_openapi(authenticated=False))
operations = [found.ok() for found in document.get_all_operations()]


@schemathesis.serializer("application/x-ndjson", ARROW, TAR)
def send_anything(_context: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


@pytest.mark.fuzz
@pytest.mark.parametrize("operation", operations, ids=lambda operation: operation.label)
def test_generated_requests_get_answers_that_the_document_names(
    open_server: RunningServer, operation: Any
) -> None:
    @settings(
        max_examples=REQUESTS,
        suppress_health_check=[
            HealthCheck.too_slow,
            HealthCheck.filter_too_much,
            HealthCheck.function_scoped_fixture,
        ],
    )
    @given(case=operation.as_strategy())
    def send(case: Any) -> None:
        if "graph_id" in (case.path_parameters or {}):
            # Any other is unknown before anything of the request is read.
            case.path_parameters["graph_id"] = "default"
        case.validate_response(case.call(base_url=open_server.url, timeout=60), checks=CHECKS)

    send()
