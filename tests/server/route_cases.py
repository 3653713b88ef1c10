"""A request for each route that succeeds, for the table of tests over all routes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from omnigraph.server.route import ARROW, TAR
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

    def body(self, head: str) -> Any:
        """Return the JSON, with the newest commit in it."""
        if not isinstance(self.json, dict):
            return self.json
        return {name: head if value == "HEAD" else value for name, value in self.json.items()}


def insert(name: str) -> dict[str, str]:
    return {"query": f'query q() {{ insert Person {{ name: "{name}" }} }}'}


def archive_of(name: str, content: bytes) -> bytes:
    """Return a tar archive of one file."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return sink.getvalue()


def arrow_rows() -> bytes:
    sink = io.BytesIO()
    rows = pa.table({"name": ["Ed"], "age": pa.array([7], pa.int32())})
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue()


LINE = '{"type": "Person", "data": {"name": "Ed"}}\n'
PHOTO = {"entity": "node", "type": "Person", "id": "Ada", "property": "photo"}

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
    "listTags": Case(
        "tags",
        before=(("POST", "tags", {"name": "v1", "message": "First"}),),
        after=(("DELETE", "tags/v1", None),),
    ),
    "createTag": Case("tags", {"name": "v2", "at": "HEAD"}, after=(("DELETE", "tags/v2", None),)),
    "deleteTag": Case("tags/gone", before=(("POST", "tags", {"name": "gone"}),)),
    "mergeBranches": Case(
        "branches/merge",
        {"source": "feature", "delete_branch": True},
        before=(
            ("POST", "branches", {"name": "feature"}),
            ("POST", "mutate", {**insert("merged"), "branch": "feature"}),
        ),
    ),
    "revertCommit": Case("revert", {"commit": "HEAD"}, before=(("POST", "mutate", insert("reverted")),)),
    "cherryPickCommit": Case("cherry-pick", {"commit": "HEAD"}),
    "resetBranch": Case("reset", {"to": "HEAD"}),
    "listCommits": Case("commits"),
    "readLog": Case("log"),
    "readHistory": Case("history", params={"type": "Person", "id": "Ada"}),
    "getCommit": Case("commits/HEAD"),
    "list_queries": Case("queries"),
    "invoke_query": Case("queries/older_than", {"params": {"age": 25}}, denied=404),
    "invoke_query_if_graph_commit": Case(
        "queries/add_person/if-graph-commit",
        {"params": {"name": "stored"}},
        headers={"Omnigraph-If-Graph-Commit": "HEAD"},
        denied=404,
    ),
    "getWriteSchema": Case("write/schema"),
    "write": Case(
        "write",
        {
            "statements": [
                {"op": "insert", "type": "Person", "values": {"name": "Bea", "age": 20}},
                {"op": "insert_edge", "type": "Knows", "from": "Bea", "to": "Ada"},
                {"op": "update", "type": "Person", "where": ["name", "=", "Bea"], "values": {"age": 21}},
            ]
        },
    ),
    "load": Case("load", {"data": LINE}),
    "loadNdjson": Case(
        "load/ndjson", content=LINE.encode(), headers={"Content-Type": "application/x-ndjson"}
    ),
    "loadArrow": Case(
        "load/arrow", content=arrow_rows(), params={"type": "Person"}, headers={"Content-Type": ARROW}
    ),
    "loadFiles": Case(
        "load/files", content=archive_of("Person.csv", b"name\nFay\n"), headers={"Content-Type": TAR}
    ),
    "ingest": Case("ingest", {"data": LINE}),
    "export": Case("export", {}),
    "captureChangeBaseline": Case("changes/baseline", {}),
    "getCommitChanges": Case(
        "commits/HEAD/changes", denied=404, before=(("POST", "mutate", insert("seen")),)
    ),
    "pollChanges": Case("changes", params={"start": "after:HEAD"}),
    "getBlob": Case("blob", params=PHOTO),
    "headBlob": Case("blob", params=PHOTO),
    "diff": Case("diff", {"from": "main", "to": "main"}),
    "explain": Case("explain", {"query": READ}),
    "rows": Case("rows", {"type": "Person", "columns": ["name"], "limit": 2}),
    "previewMerge": Case(
        "branches/merge/preview",
        {"source": "draft"},
        before=(("POST", "branches", {"name": "draft"}),),
        after=(("DELETE", "branches/draft", None),),
    ),
    "getPermissions": Case("permissions", denied=200),
    "describeSchema": Case("schema/types"),
    "lint": Case("lint", {"query": READ}),
    "findNodes": Case("find", params={"text": "ad"}),
    "readSubgraph": Case("subgraph", {"nodes": {"Person": ["Ada"]}, "hops": 1}),
    "doctor": Case("doctor"),
    "graphMcp": Case("mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, denied=200),
}
"""By operation; HEAD stands for the newest commit of main."""
