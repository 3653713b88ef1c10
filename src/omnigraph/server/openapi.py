"""The OpenAPI document, made from the table of routes; its schemas are those of the msgspec types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

import msgspec

from omnigraph import __version__
from omnigraph.server.route import JSON, Body, Param, Route
from omnigraph.server.routes import ROUTES
from omnigraph.server.wire.base import encode
from omnigraph.server.wire.error_output import ErrorOutput

SECURITY = "bearer_token"
GRAPH = "/graphs/{graph_id}"
REFERENCE = "#/components/schemas/{name}"

_NAME = re.compile(r"{(\w+)}")
_EVERYWHERE = (400, 404, 500, 503)
_MEANINGS = {
    206: "A part of the bytes.",
    302: "The bytes are elsewhere.",
    304: "The client has them already.",
    400: "The request is wrong.",
    401: "The token is missing or invalid.",
    403: "Policy does not allow it.",
    404: "Something that the request names is not there.",
    405: "The path does not offer the method.",
    408: "The query was cancelled or took too long, or the body did not arrive.",
    409: "Another change is in the way.",
    410: "The data of that moment was cleaned up.",
    412: "The branch has another newest commit; nothing was written.",
    413: "A limit was exceeded.",
    415: "The content type is not the one the route takes.",
    416: "The range lies outside the blob.",
    424: "An external source of bytes did not answer.",
    429: "The actor has too much under way.",
    500: "The server failed.",
    502: "The embedding provider failed.",
    503: "Another process holds what is needed, or an interrupted write must be recovered first.",
}


@cache
def render_openapi(*, authenticated: bool) -> bytes:
    """Return the document as JSON; without authentication nothing in it mentions tokens."""
    return encode(build_openapi(authenticated=authenticated))


def build_openapi(*, authenticated: bool = True) -> dict[str, Any]:
    """Return the document."""
    listed = [route for route in ROUTES if route.listed]
    types = {
        kind for route in listed for body in (route.request, route.response) for kind in _alternatives(body)
    }
    ordered = sorted({*types, ErrorOutput}, key=lambda kind: kind.__name__)
    _, schemas = msgspec.json.schema_components(ordered, ref_template=REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for route in listed:
        path = route.path if not route.is_per_graph else f"{GRAPH}/{route.path}"
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, path, authenticated)
    components: dict[str, Any] = {"schemas": schemas}
    if authenticated:
        components["securitySchemes"] = {SECURITY: {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Omnigraph API",
            "version": __version__,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": components,
    }


def operation_id(route: Route) -> str:
    """Return the operation id of a route; those about a graph have a prefix."""
    return f"cluster_{route.operation}" if route.is_per_graph else route.operation


def statuses_of(route: Route) -> list[int]:
    """Return the statuses of failures that a route can answer with."""
    found = {*_EVERYWHERE, *route.statuses}
    if not route.is_public:
        found |= {401, 403}
    if route.body is not Body.NONE:
        found |= {408, 413}
    if route.body in (Body.JSON, Body.STREAM):
        found |= {415}
    if route.admission:
        found |= {429}
    return sorted(found)


def _operation(route: Route, path: str, authenticated: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation_id(route),
        "summary": route.summary,
        "parameters": list(_parameters(route, path)),
        "responses": _responses(route),
    }
    if route.policy:
        found["description"] = f"Policy: {route.policy}." + (" Not in the reference." if route.ours else "")
    if route.request is not None:
        found["requestBody"] = {
            "required": route.body is Body.JSON,
            "content": {route.request_media: {"schema": _reference(route.request)}},
        }
    elif route.body is Body.STREAM:
        found["requestBody"] = {"required": True, "content": {route.request_media: {}}}
    if route.successor is not None:
        found["deprecated"] = True
    if authenticated and not route.is_public:
        found["security"] = [{SECURITY: []}]
    return {name: value for name, value in found.items() if value != []}


def _parameters(route: Route, path: str) -> Iterator[dict[str, Any]]:
    for name in _NAME.findall(path):
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
    for param in route.params:
        yield {**_parameter(param), "in": "query"}
    for param in route.headers:
        yield {**_parameter(param), "in": "header"}


def _parameter(param: Param) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": param.kind}
    if param.choices:
        schema["enum"] = list(param.choices)
    if param.repeats:
        schema = {"type": "array", "items": schema}
    return {"name": param.name, "required": param.required, "description": param.help, "schema": schema}


def _responses(route: Route) -> dict[str, Any]:
    media = route.media.partition(";")[0]
    schema = {} if route.response is None else {"schema": _reference(route.response)}
    success = {"200": {"description": "The answer.", "content": {media: schema}}}
    others = {str(status): {"description": _MEANINGS[status]} for status in route.successes}
    body = {"content": {JSON: {"schema": _reference(ErrorOutput)}}}
    failures = {str(status): {"description": _MEANINGS[status], **body} for status in statuses_of(route)}
    return {**success, **others, **failures}


def _alternatives(body: Any) -> tuple[Any, ...]:
    """Return the types that a body may have: one, or those of a union."""
    if body is None:
        return ()
    return get_args(body) or (body,)


def _reference(body: Any) -> dict[str, Any]:
    found = [{"$ref": REFERENCE.format(name=kind.__name__)} for kind in _alternatives(body)]
    return found[0] if len(found) == 1 else {"anyOf": found}
