"""The OpenAPI document says what the table says, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from omnigraph.server.openapi import build_openapi
from omnigraph.server.routes import ROUTES
from tests.server.running import RunningServer

LISTED = [route for route in ROUTES if route.listed]


def values(found: Any, name: str) -> Iterator[Any]:
    """Yield every value that a member of this name has, however deep."""
    if isinstance(found, dict):
        for key, value in found.items():
            if key == name:
                yield value
            yield from values(value, name)
    elif isinstance(found, list):
        for one in found:
            yield from values(one, name)


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {found["operationId"]: found for path in document["paths"].values() for found in path.values()}


def test_document_has_every_listed_route_with_its_prefix() -> None:
    expected = {f"cluster_{route.operation}" if route.is_per_graph else route.operation for route in LISTED}
    document = build_openapi()
    assert set(operations(document)) == expected
    assert {"health", "listGraphs", "cluster_query", "cluster_mutate_if_graph_commit"} <= expected
    assert (document["openapi"], document["info"]["title"]) == ("3.1.0", "Omnigraph API")


def test_every_reference_leads_to_a_schema() -> None:
    document = build_openapi()
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(values(document, "$ref")) <= known
    assert {"ReadOutput", "ChangeOutput", "CommitOutput", "ErrorOutput", "SnapshotOutput"} <= set(
        document["components"]["schemas"]
    )


def test_every_route_but_health_needs_a_token() -> None:
    document = build_openapi()
    free = {name for name, found in operations(document).items() if "security" not in found}
    assert free == {"health"}
    assert document["components"]["securitySchemes"] == {"bearer_token": {"type": "http", "scheme": "bearer"}}


def test_without_authentication_nothing_mentions_tokens() -> None:
    document = build_openapi(authenticated=False)
    assert not list(values(document, "security"))
    assert not list(values(document, "securitySchemes"))


def test_deprecated_routes_are_marked() -> None:
    marked = {name for name, found in operations(build_openapi()).items() if found.get("deprecated")}
    assert marked == {f"cluster_{route.operation}" for route in LISTED if route.successor}


def test_served_document_is_the_one_of_the_function(open_server: RunningServer) -> None:
    with open_server.client() as client:
        served = client.get("/openapi.json")
    assert served.headers["content-type"] == "application/json"
    assert served.json() == json.loads(json.dumps(build_openapi(authenticated=False)))
