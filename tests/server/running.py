"""A server as a process on loopback, the graphs it serves and the tokens its clients have."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

import omnigraph as og
from tests.python_process import PIPE, Python

SCHEMA = """\
node Person {
    name: String @key
    age: I32?
    born: Date?
    score: F64?
    seen: DateTime?
    tags: [String]?
    photo: Blob?
}
edge Knows: Person -> Person {
    since: I32?
}
"""
PEOPLE = [
    {
        "name": "Ada",
        "age": 36,
        "born": "1815-12-10",
        "score": 1.5,
        "tags": ["x", "y"],
        "photo": "base64:MDEyMzQ1Njc4OQ==",
    },
    {"name": "Bob", "age": 20},
    {"name": "Cy", "age": 30, "seen": "2030-01-31T12:00:00Z"},
    {"name": "Di"},
]

PHOTO = b"0123456789"
"""The bytes of Ada's photo."""
STORED_QUERIES = """\
query older_than($age: I32) @description("People above an age") {
    match { $p: Person  $p.age > $age }
    return { $p.name, $p.age }
    order { $p.name }
}
query add_person($name: String, $age: I64?) { insert Person { name: $name } }
"""

TOKENS = {"root": "token-root", "reader": "token-reader", "stranger": "token-stranger"}
"""By actor: one that may do everything, one that may read, one that no rule knows."""
POLICY = """\
version: 1
kind: graph
groups: {admins: [root], readers: [reader]}
protected_branches: [main]
rules:
  - id: admins-data
    allow: {actors: {group: admins}, actions: [read, export, change], branch_scope: any}
  - id: admins-branches
    allow:
      actors: {group: admins}
      actions: [schema_apply, branch_create, branch_delete, branch_merge]
      target_branch_scope: any
  - id: admins-queries
    allow: {actors: {group: admins}, actions: [invoke_query]}
  - id: readers
    allow: {actors: {group: readers}, actions: [read], branch_scope: any}
"""
SERVER_POLICY = """\
version: 1
kind: server
groups: {admins: [root]}
rules:
  - id: admins-list
    allow: {actors: {group: admins}, actions: [graph_list]}
"""

_CLEAN = ("OMNIGRAPH_SERVER_", "OMNIGRAPH_PER_ACTOR_", "OMNIGRAPH_UNAUTHENTICATED", "OMNIGRAPH_CORS")


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server that answers."""

    host: str
    port: int
    process: Python
    log: Path

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def client(self, actor: str | None = None) -> httpx.Client:
        """Return a client with the token of an actor."""
        headers = {} if actor is None else {"Authorization": f"Bearer {TOKENS[actor]}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)

    def log_lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this environment without settings of a server, and with others."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_CLEAN)}
    return {**kept, **(changes or {})}


def with_tokens(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    return {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps(TOKENS), **(changes or {})}


@contextmanager
def start_server(
    store: Path | str,
    log: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    flag: str = "--store",
) -> Iterator[RunningServer]:
    """Start a server on a free port; it is ended at the end."""
    with log.open("w") as errors:
        process = Python(
            "-m",
            "omnigraph",
            "serve",
            flag,
            str(store),
            "--bind",
            "127.0.0.1:0",
            *options,
            env=environment(env),
            stdout=PIPE,
            stderr=errors.fileno(),
        )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            name, _, address = line.strip().partition("=")
            assert name == "OMNIGRAPH_LISTEN_ADDR", (line, log.read_text())
            host, _, port = address.rpartition(":")
            yield RunningServer(host, int(port), process, log)
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)


def run_server(
    store: Path | str, *options: str, env: Mapping[str, str] | None = None, flag: str = "--store"
) -> tuple[int, str, str]:
    """Return status, output and errors of a server that is expected not to start."""
    process = Python(
        "-m", "omnigraph", "serve", flag, str(store), "--bind", "127.0.0.1:0", *options,
        env=environment(env), stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    output, errors = process.communicate()
    return process.wait(), output, errors


def make_example(folder: Path) -> Path:
    """Make the small graph that servers of tests serve."""
    place = folder / "people.omni"
    with og.init(place, schema=SCHEMA) as graph:
        graph.load(PEOPLE, type="Person", mode="append")
        graph.mutate('query q() { insert Knows { from: "Ada", to: "Bob", since: 1833 } }', actor="root")
    return place


def policy_options(folder: Path) -> list[str]:
    """Write the policies of the graph and of the server, and return the options that name them."""
    (folder / "graph.yaml").write_text(POLICY)
    (folder / "server.yaml").write_text(SERVER_POLICY)
    return ["--policy", str(folder / "graph.yaml"), "--server-policy", str(folder / "server.yaml")]


def stored_query_options(folder: Path) -> list[str]:
    """Write the stored queries, and return the options that name them."""
    (folder / "people.gq").write_text(STORED_QUERIES)
    return ["--queries", str(folder / "people.gq")]
