"""docs/http.md, made from the table of routes and from recorded requests with their answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

import msgspec

from omnigraph.server.openapi import operation_id, statuses_of
from omnigraph.server.route import Body, Param, Route
from omnigraph.server.routes import ROUTES
from omnigraph.server.wire.base import Wire

INTRODUCTION = """\
# HTTP routes

<!-- Written by `make docs` from the table of routes in `server/routes.py`; edit that instead. -->

Every route of `omnigraph serve`, with a real request and its answer. [Serving a graph](server.md) says how to
start a server, and how tokens and limits work; `GET /openapi.json` has the same routes as an OpenAPI 3.1
document.

`G` stands for `/graphs/{graph_id}`. A server that was started on one store serves it as `default`, and offers
its routes without `/graphs/default` too. *Policy* is the [action](policy.md) that must be allowed, with the
branch and the target it is asked about; `b` is the branch of the request, `main` if it names none. *Limited*
routes count against what one actor may have [under way](server.md#limits).

Every answer has `X-Request-Id`, which repeats that of the request if it had one. A failure is a JSON object
with `error` and, where the set of eight has one for it, `code`; `error_code`, `remedy`, `retryable` and
`data` are those of [the error index](errors.md). Routes marked *ours* are not part of the wire that other
implementations share.

"""


class Example(Wire, frozen=True, kw_only=True):
    """A request that was sent to a server, and the answer."""

    request: str
    answer: str


def render_http() -> str:
    """Return the page about HTTP routes."""
    parts = [INTRODUCTION, "| Method | Path | Policy | Limited | |\n|---|---|---|---|---|\n"]
    parts += [_row(route) for route in ROUTES]
    parts += [section for route in ROUTES for section in _section(route)]
    return "".join(parts)


@cache
def recorded_examples() -> Mapping[str, Example]:
    """Return the recorded requests by operation."""
    text = files("omnigraph.server").joinpath("examples.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, Example])


def _row(route: Route) -> str:
    marks = [*(["deprecated"] if route.successor else []), *(["ours"] if route.ours else [])]
    limited = "yes" if route.admission else ""
    link = f"[`{_path(route)}`](#{_anchor(route)})"
    return f"| {route.method} | {link} | {_policy(route)} | {limited} | {', '.join(marks)} |\n"


def _path(route: Route) -> str:
    return f"G/{route.path}" if route.is_per_graph else route.path


def _anchor(route: Route) -> str:
    return operation_id(route).lower()


def _policy(route: Route) -> str:
    return f"`{route.policy}`" if route.policy else "none, no token"


def _section(route: Route) -> Iterator[str]:
    yield f"\n## {operation_id(route)}\n\n`{route.method} {_path(route)}`: {route.summary}\n\n"
    if route.successor:
        yield f"Deprecated; use `{route.successor}`. Answers carry `Deprecation` and `Link` headers.\n\n"
    facts = [f"- Policy: {_policy(route)}"]
    if route.request is not None:
        facts += [f"- Body: `{route.request.__name__}`, {_size(route.limit)} at most"]
    elif route.body is not Body.NONE:
        facts += [f"- Body: `{route.request_media}`"]
    facts += [f"- Parameter {_param(param)}" for param in route.params]
    facts += [f"- Header {_param(param)}" for param in route.headers]
    statuses = ", ".join(str(status) for status in statuses_of(route))
    yield "\n".join([*facts, f"- Failures: {statuses}"]) + "\n"
    example = recorded_examples().get(route.operation)
    if example is not None:
        yield f"\n```http\n{example.request}\n```\n\n```http\n{example.answer}\n```\n"


def _param(param: Param) -> str:
    kinds = f" ({', '.join(param.choices)})" if param.choices else ""
    needed = ", required" if param.required else ""
    more = ", may repeat" if param.repeats else ""
    return f"`{param.name}`{kinds}{needed}{more}: {param.help}"


def _size(limit: int) -> str:
    return f"{limit >> 20} MiB"
