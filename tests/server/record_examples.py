"""`python -m tests.server.record_examples`: record a request and its answer for each route."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import httpx

from omnigraph.server.route import Route
from omnigraph.server.routes import ROUTES
from tests.server.route_cases import CASES, Case
from tests.server.running import (
    RunningServer,
    make_example,
    policy_options,
    start_server,
    stored_query_options,
    with_tokens,
)

FILE = Path(__file__).parents[2] / "src/omnigraph/server/examples.json"
KEPT = ("content-type", "deprecation", "link", "etag", "omnigraph-snapshot-id", "accept-ranges")
SERVER_CASES = {
    "health": Case("/healthz"),
    "graphHealth": Case("/graphs/default/healthz"),
    "listGraphs": Case("/graphs"),
}
MOST_LINES = 40
_PLACE = re.compile(r'"[^"]*people\.omni')


def record(server: RunningServer, most_lines: int) -> dict[str, dict[str, str]]:
    """Return the examples of all routes that have a case; longer bodies are cut."""
    with server.client("root") as client:
        cases = {**SERVER_CASES, **CASES}
        return {
            route.operation: _record(client, route, cases[route.operation], most_lines)
            for route in ROUTES
            if route.operation in cases
        }


def _record(client: httpx.Client, route: Route, case: Case, most: int) -> dict[str, str]:
    for method, path, body in case.before:
        client.request(method, f"/{path}", json=body)
    head = client.get("/commits").json()["commits"][0]["graph_commit_id"]
    path = case.path.replace("HEAD", head)
    params = {name: value.replace("HEAD", head) for name, value in case.params.items()}
    request = client.build_request(
        route.method,
        path if path.startswith("/") else f"/graphs/default/{path}",
        json=case.body(head),
        content=case.content,
        params=params or None,
        headers={name: value.replace("HEAD", head) for name, value in case.headers.items()},
    )
    answer = client.send(request)
    assert answer.status_code == 200, (route.operation, answer.text)
    for method, path, body in case.after:
        client.request(method, f"/{path}", json=body)
    return {"request": _request_text(route, request, most), "answer": _answer_text(answer, most)}


def _request_text(route: Route, request: httpx.Request, most: int) -> str:
    names = [*(["content-type"] if request.content else []), "omnigraph-if-graph-commit"]
    lines = [f"{route.method} {request.url.raw_path.decode()} HTTP/1.1"]
    lines += ["Authorization: Bearer TOKEN"] if not route.is_public else []
    lines += [f"{name.title()}: {request.headers[name]}" for name in names if name in request.headers]
    return "\n".join([*lines, *_body(request.content, request.headers.get("content-type", ""), most)])


def _answer_text(answer: httpx.Response, most: int) -> str:
    lines = [f"HTTP/1.1 {answer.status_code} {answer.reason_phrase}"]
    lines += [f"{name.title()}: {answer.headers[name]}" for name in KEPT if name in answer.headers]
    return "\n".join([*lines, *_body(answer.content, answer.headers["content-type"], most)])


def _body(content: bytes, media: str, most: int) -> list[str]:
    if not content:
        return []
    if media.startswith("application/json"):
        shown = json.dumps(_with_public_place(json.loads(content)), indent=2, ensure_ascii=False).splitlines()
    elif "ndjson" in media:
        shown = content.decode().splitlines()
    else:
        shown = [f"({len(content)} bytes)"]
    cut = shown[:most] + (["..."] if len(shown) > most else [])
    return ["", *cut]


def _with_public_place(body: Any) -> Any:
    return json.loads(_PLACE.sub('"/data/people.omni', json.dumps(body)))


def main() -> None:
    """Record all examples from a server of its own."""
    folder = Path(tempfile.mkdtemp())
    try:
        options = [*policy_options(folder), *stored_query_options(folder)]
        with start_server(make_example(folder), folder / "log", *options, env=with_tokens()) as server:
            FILE.write_text(json.dumps(record(server, MOST_LINES), indent=1, ensure_ascii=False) + "\n")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
