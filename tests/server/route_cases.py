"""A request for each route that succeeds, for the table of tests over all routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.server.running import SCHEMA

READ = "query q() { match { $p: Person } return { $p.name } order { $p.name } }"


@dataclass(frozen=True, slots=True)
class Case:
    """A request, and what must be there before and gone after it."""

    path: str
    json: Any = None
    content: bytes | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    before: tuple[tuple[str, str, Any], ...] = ()
    after: tuple[tuple[str, str, Any], ...] = ()
    denied: int = 403
    """What an actor gets that policy does not know."""


def insert(name: str) -> dict[str, str]:
    return {"query": f'query q() {{ insert Person {{ name: "{name}" }} }}'}


CASES: dict[str, Case] = {
    "getSnapshot": Case("snapshot"),
    "query": Case("query", {"query": READ}),
    "read": Case("read", {"query_source": READ}),
    "mutate": Case("mutate", insert("mutated")),
    "mutate_if_graph_commit": Case(
        "mutate/if-graph-commit", insert("conditional"), headers={"Omnigraph-If-Graph-Commit": "HEAD"}
    ),
    "change": Case("change", {"query_source": insert("changed")["query"]}),
    "getSchema": Case("schema"),
    "applySchema": Case("schema/apply", {"schema_source": SCHEMA}),
    "listBranches": Case("branches"),
    "createBranch": Case("branches", {"name": "made"}, after=(("DELETE", "branches/made", None),)),
    "deleteBranch": Case("branches/gone", before=(("POST", "branches", {"name": "gone"}),)),
    "mergeBranches": Case(
        "branches/merge",
        {"source": "feature", "delete_branch": True},
        before=(
            ("POST", "branches", {"name": "feature"}),
            ("POST", "mutate", {**insert("merged"), "branch": "feature"}),
        ),
    ),
    "listCommits": Case("commits"),
    "getCommit": Case("commits/HEAD"),
}
"""By operation; HEAD stands for the newest commit of main."""
