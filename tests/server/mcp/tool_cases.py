"""A call of every tool that succeeds, and hostile ones that must fail in order."""

from __future__ import annotations

from typing import Any

from tests.server.running import SCHEMA

READ = "query q() { match { $p: Person } return { $p.name } order { $p.name } }"
LINE = '{"type": "Person", "data": {"name": "Ed WAY"}}\n'

CALLS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("describe", {}, "Knows (1): Person -> Person"),
    ("health", {}, '"status":"ok"'),
    ("snapshot", {}, '"type_name":"Person"'),
    ("query", {"query": READ}, '"p.name":"Ada"'),
    ("read", {"querySource": READ, "branch": "main", "snapshot": "HEAD"}, '"p.name":"Ada"'),
    ("schema_get", {}, "node Person"),
    ("branches_list", {}, '"main"'),
    ("tags_list", {}, '"tags"'),
    ("commits_list", {}, '"graph_commit_id"'),
    ("commits_get", {"commitId": "HEAD"}, '"graph_commit_id":"HEAD"'),
    ("branch_start", {"name": "agent/WAY"}, '"name":"agent/WAY"'),
    (
        "mutate",
        {
            "query": "query q($n: String) { insert Person { name: $n } }",
            "params": {"n": "Mo WAY"},
            "branch": "agent/WAY",
        },
        '"actor_id":"root"',
    ),
    (
        "change",
        {"querySource": 'query q() { insert Person { name: "Ny WAY" } }', "branch": "agent/WAY"},
        '"affected_nodes":1',
    ),
    ("ingest", {"branch": "agent/WAY", "mode": "merge", "data": LINE}, '"total_entities":1'),
    ("diff", {"to": "agent/WAY", "stat": True}, '"inserted":3'),
    ("diff", {"to": "agent/WAY", "ops": ["insert"]}, '"name":"Ny WAY"'),
    ("merge_preview", {"source": "agent/WAY"}, '"outcome":"fast_forward"'),
    ("merge", {"source": "agent/WAY", "target": "main", "deleteBranch": True}, '"branch_deleted":true'),
    ("branches_create", {"name": "other", "from": "main"}, '"name":"other"'),
    ("branches_merge", {"source": "other"}, '"outcome":"already_up_to_date"'),
    ("branches_delete", {"name": "other"}, '"name":"other"'),
    ("schema_apply", {"schemaSource": SCHEMA}, '"applied":false'),
    ("older_than", {"age": 25}, '"p.name":"Cy"'),
    ("add_person", {"name": "Zed WAY", "age": "9007199254740993"}, '"affected_nodes":1'),
)
"""In this order; HEAD stands for the newest commit of main, WAY for a name that no other run uses."""

_LONG = "x" * 100_000
HOSTILE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("describe", {"branch": "no/such branch\n"}),
    ("health", {"path": "../../etc/passwd"}),
    ("snapshot", {"branch": {"$ne": None}}),
    ("query", {"query": "query q() { " + "{" * 5_000}),
    ("query", {"query": 'query q() { delete Person where name = "Ada" }'}),
    ("query", {"query": READ, "params": ["Ada"]}),
    ("query", {"query": READ, "branch": "main", "snapshot": "../main"}),
    ("read", {"querySource": _LONG}),
    ("schema_get", {"uri": "s3://elsewhere"}),
    ("branches_list", {"branch": 7}),
    ("tags_list", {"tag": "../main"}),
    ("commits_list", {"branch": "main&branch=other"}),
    ("commits_get", {"commitId": "../branches"}),
    ("commits_get", {"commitId": ""}),
    ("diff", {"from": "main", "to": "main@v99999999999999999999"}),
    ("diff", {"ops": ["drop"]}),
    ("merge_preview", {"source": ""}),
    ("merge_preview", {"source": "main", "resolutions": {"node:Person": "Ada"}}),
    ("mutate", {"query": 'query q() { insert Person { name: "a", __id: "b" } }'}),
    ("change", {"querySource": READ}),
    ("ingest", {"data": "[" * 10_000}),
    ("ingest", {"data": LINE, "mode": "truncate"}),
    ("ingest", {"data": LINE, "branch": "../main"}),
    ("branches_create", {"name": "../../escape"}),
    ("branch_start", {"name": "__schema_apply_lock__"}),
    ("branches_delete", {"name": "main"}),
    ("branches_delete", {"name": "a/../../graphs"}),
    ("branches_merge", {"source": "main", "target": "nowhere", "strategy": "mine"}),
    ("merge", {}),
    ("schema_apply", {"schemaSource": "node Person { name: String @key } " * 10 + _LONG}),
    ("older_than", {"age": "25; delete"}),
    ("older_than", {}),
    ("add_person", {"name": "Ok", "age": "1e9"}),
)
