"""Graphs as older releases stored them, built with Lance alone: no code of this package writes them.

Before format 4 a write committed its table, then the manifest, then a row in `_graph_commits.lance`, then one
in `_graph_commit_actors.lance`. Each builder keeps the history it made, so that a test can compare.
"""

from __future__ import annotations

import hashlib
import json
import os
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import lance
import pyarrow as pa

from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.graph.manifest import MAIN, TableEntry
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location

STAMP = "omnigraph:internal_schema_version"
PRIMARY_KEY = "lance-schema:unenforced-primary-key"
SOURCE = "node Person {\n  name: String @key\n  age: I32?\n}\n\nedge Knows: Person -> Person\n"
PERSON, KNOWS = "nodes/40d76f1f51639ec0", "edges/602a25a3bd0b455b"
FIRST_MOMENT = 4_102_444_800_000_000
"""After any moment at which a test can make a branch: a commit is never older than its branch."""

_PERSON = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("age", pa.int32()),
    ]
)
_KNOWS = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("id", "src", "dst")])
_COMMITS = pa.schema(
    [
        pa.field("graph_commit_id", pa.string(), nullable=False),
        pa.field("manifest_branch", pa.string()),
        pa.field("manifest_version", pa.uint64(), nullable=False),
        pa.field("parent_commit_id", pa.string()),
        pa.field("merged_parent_commit_id", pa.string()),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)
_ACTORS = pa.schema(
    [
        pa.field("graph_commit_id", pa.string(), nullable=False),
        pa.field("actor_id", pa.string(), nullable=False),
        pa.field("created_at", pa.timestamp("us"), nullable=False),
    ]
)


def manifest_schema(key: str | None) -> pa.Schema:
    """The manifest's columns, `key` marked as primary key."""
    mark = {PRIMARY_KEY: "true"}
    return pa.schema(
        [
            pa.field("object_id", pa.string(), nullable=False, metadata=mark if key == "object_id" else None),
            pa.field("object_type", pa.string(), nullable=False),
            pa.field("location", pa.string()),
            pa.field("metadata", pa.string()),
            pa.field("base_objects", pa.list_(pa.string())),
            pa.field("table_key", pa.string(), nullable=False, metadata=mark if key == "table_key" else None),
            pa.field("table_version", pa.uint64()),
            pa.field("table_branch", pa.string()),
            pa.field("row_count", pa.uint64()),
        ]
    )


@dataclass
class _Branch:
    commits: list[Commit]
    entries: dict[str, TableEntry]


@dataclass
class OldGraph:
    """A graph of form 1, 2 or 3 with two types and one commit; more are added by its methods."""

    root: Location
    form: int
    stable_row_ids: bool = True
    key: str | None = ""
    """The manifest's key; that of the form unless another one is given."""
    lineage: bool = True
    """False for a graph whose commits were never recorded."""
    branches: dict[str, _Branch] = field(default_factory=dict)
    snapshots: dict[str, dict[str, TableEntry]] = field(default_factory=dict)
    """The tables that each commit showed."""
    _made: int = 0

    def __post_init__(self) -> None:
        self._write_schema_files()
        if self.key == "":
            self.key = "object_id" if self.form > 1 else None
        entries = {"edge:Knows": TableEntry("edge:Knows", KNOWS, 1, None, 0)}
        entries["node:Person"] = TableEntry("node:Person", PERSON, 1, None, 0)
        self._create(PERSON, _PERSON.empty_table())
        self._create(KNOWS, _KNOWS.empty_table())
        rows = [row for entry in entries.values() for row in (_table_row(entry), _version_row(entry))]
        schema = manifest_schema(self.key)
        first = self._create("__manifest", pa.Table.from_pylist(rows, schema=schema), self.stable_row_ids)
        self.branches["main"] = _Branch([], entries)
        if self.lineage:
            self._create("_graph_commits.lance", _COMMITS.empty_table())
            self._record("main", first.version, None, None)
        if self.form > 1:
            self.set_stamp(str(self.form))

    # --- what a user of the old release did ------------------------------------------------------

    def commit(self, branch: str = "main", *, actor: str | None = None, merged: str | None = None) -> Commit:
        """One person is added on a branch."""
        known, fork = self.branches[branch], None if branch == "main" else branch
        before = known.entries["node:Person"]
        people = self._open(PERSON, before.owner)
        if before.owner != fork:
            assert fork is not None, "nothing main has belongs to a branch"
            people.create_branch(fork, (before.owner, before.version))
        name = f"person {self._made}"
        row = {"id": name, "name": name, "age": self._made}
        people = self._append(self._open(PERSON, fork), [row], _PERSON)
        entry = TableEntry("node:Person", PERSON, people.version, fork, people.count_rows())
        known.entries = {**known.entries, "node:Person": entry}
        manifest = self._open("__manifest", fork)
        landed = self._append(manifest, [_version_row(entry)], manifest.schema.remove_metadata())
        return self._record(branch, landed.version, actor, merged)

    def branch(self, name: str, from_: str = "main", *, recorded: bool = True) -> None:
        """A branch; not `recorded` as when its creation died before the commits were forked too."""
        source = None if from_ == "main" else from_
        parent = self.branches[from_]
        manifest = self._open("__manifest", source)
        manifest.create_branch(name, (source, manifest.version))
        if self.lineage and recorded:
            commits = self._open("_graph_commits.lance", source)
            commits.create_branch(name, (source, commits.version))
        self.branches[name] = _Branch(list(parent.commits), dict(parent.entries))

    def set_stamp(self, stamp: str, branch: str | None = None) -> None:
        """Write the stamp of a branch's manifest."""
        self._open("__manifest", branch).update_schema_metadata({STAMP: stamp})

    # --- what it made of it ----------------------------------------------------------------------

    def history(self, branch: str) -> dict[str, Commit]:
        """The commits a branch shows."""
        return {commit.id: commit for commit in self.branches[branch].commits}

    def stored(self, name: str, branch: str | None = None) -> lance.LanceDataset:
        """One of the graph's tables, through Lance."""
        return self._open(name, branch)

    # --- Lance -----------------------------------------------------------------------------------

    def _record(self, branch: str, version: int, actor: str | None, merged: str | None) -> Commit:
        known, moment = self.branches[branch], FIRST_MOMENT + self._made * 1_000_000
        commit = Commit(
            id=f"01HF0000000000000000{self._made:06d}",
            branch=branch,
            version=version,
            created_at=moment,
            parent=known.commits[-1].id if known.commits else None,
            merged_parent=merged,
            actor=actor,
        )
        fork = None if branch == "main" else branch
        row = {
            "graph_commit_id": commit.id,
            "manifest_branch": fork,
            "manifest_version": version,
            "parent_commit_id": commit.parent,
            "merged_parent_commit_id": merged,
            "created_at": moment,
        }
        self._append(self._open("_graph_commits.lance", fork), [row], _COMMITS)
        if actor is not None:
            self._record_actor({"graph_commit_id": commit.id, "actor_id": actor, "created_at": moment})
        known.commits.append(commit)
        self.snapshots[commit.id] = known.entries
        self._made += 1
        return commit

    def _record_actor(self, row: dict[str, Any]) -> None:
        if not any(commit.actor for known in self.branches.values() for commit in known.commits):
            self._create("_graph_commit_actors.lance", _ACTORS.empty_table())
        self._append(self._open("_graph_commit_actors.lance", None), [row], _ACTORS)

    def _open(self, name: str, branch: str | None) -> lance.LanceDataset:
        fork = "" if branch is None else f"/tree/{branch}"
        return lance.dataset(f"{self.root}/{name}{fork}", storage_options=self._options())

    def _create(self, name: str, rows: pa.Table, stable_row_ids: bool = True) -> lance.LanceDataset:
        return lance.write_dataset(
            rows,
            f"{self.root}/{name}",
            mode="create",
            enable_stable_row_ids=stable_row_ids,
            storage_options=self._options(),
        )

    def _append(
        self, to: lance.LanceDataset, rows: list[dict[str, Any]], schema: pa.Schema
    ) -> lance.LanceDataset:
        table = pa.Table.from_pylist(rows, schema=schema)
        return lance.write_dataset(table, to, mode="append", storage_options=self._options())

    def _options(self) -> dict[str, str] | None:
        return self.root.storage_options() or None

    # --- schema files ----------------------------------------------------------------------------

    def _write_schema_files(self) -> None:
        ir = _schema_ir()
        compact = json.dumps(ir, separators=(",", ":"), sort_keys=True)
        state = {
            "format_version": 1,
            "schema_ir_hash": f"sha256:{hashlib.sha256(compact.encode()).hexdigest()}",
            "schema_identity_version": 1,
        }
        self._write("_schema.pg", SOURCE)
        self._write("_schema.ir.json", json.dumps(ir, indent=2, sort_keys=True))
        self._write("__schema_state.json", json.dumps(state, indent=2))

    def _write(self, name: str, text: str) -> None:
        if self.root.is_local:
            self.root.path.mkdir(parents=True, exist_ok=True)
            (self.root.path / name).write_text(text)
            return
        url = f"{os.environ['AWS_ENDPOINT_URL']}/{self.root.bucket}/{self.root.key}/{name}"
        # Without a type of its own the body would pass for a form.
        put = urllib.request.Request(url, text.encode(), {"Content-Type": "text/plain"}, method="PUT")
        with urllib.request.urlopen(put):
            pass


def story(root: Location, form: int, *, stable_row_ids: bool = True) -> OldGraph:
    """A graph with actors, branches of branches and a merge, and leftovers where its release made them."""
    graph = OldGraph(root, form, stable_row_ids=stable_row_ids)
    graph.commit(actor="ann")
    graph.branch("work")
    graph.commit("work", actor="bob")
    graph.commit("work")
    graph.branch("deep", from_="work")
    graph.commit("deep", actor="act:cy")
    graph.commit(actor="ann", merged=graph.branches["work"].commits[-1].id)
    graph.branch("idle")
    graph.branch("unrecorded", recorded=False)
    graph.commit()
    if form < 3:
        graph.branch("__run__01")
        graph.branch("__run__02", from_="__run__01")
        graph.branch("__run__03")
    return graph


def small_graph(at: Location) -> OldGraph:
    """A graph of the first form with one branch, two actors and a leftover."""
    old = OldGraph(at, 1)
    old.commit(actor="ann")
    old.branch("work")
    old.commit("work", actor="bob")
    old.branch("__run__01")
    return old


def stored_stamp(old: OldGraph, branch: str | None = None) -> str | None:
    """The stamp as anyone reads it."""
    found = (old.stored("__manifest", branch).schema.metadata or {}).get(STAMP.encode())
    return None if found is None else found.decode()


def kinds(rows: pa.Table) -> Counter[str]:
    """How many manifest rows there are of each kind."""
    return Counter(rows.column("object_type").to_pylist())


def require_migrated(old: OldGraph, branch: str = MAIN) -> None:
    """The stored rows are complete, once each, and stamped."""
    fork = None if branch == MAIN else branch
    manifest = old.stored("__manifest", fork)
    assert stored_stamp(old, fork) == "4"
    assert manifest.schema.field("object_id").metadata == {b"lance-schema:unenforced-primary-key": b"true"}
    ids = manifest.to_table().column("object_id").to_pylist()
    assert len(ids) == len(set(ids))
    assert set(old.history(branch)) <= set(ids)


def open_again(at: Location, *, read_only: bool = False) -> OpenGraph:
    """The graph at a place, through handles of its own."""
    return OpenGraph.open(Root.at(at), read_only=read_only)


def _table_row(entry: TableEntry) -> dict[str, Any]:
    return {
        "object_id": entry.key,
        "object_type": "table",
        "location": entry.path,
        "table_key": entry.key,
    }


def _version_row(entry: TableEntry) -> dict[str, Any]:
    fork = f"/tree/{entry.owner}" if entry.owner else ""
    file = f"{entry.path}{fork}/_versions/{2**64 - 1 - entry.version:020d}.manifest"
    return {
        "object_id": f"{entry.key}${entry.version:020d}",
        "object_type": "table_version",
        "metadata": json.dumps(
            {"manifest_path": file, "manifest_size": 700, "e_tag": None, "naming_scheme": "V2"}
        ),
        "table_key": entry.key,
        "table_version": entry.version,
        "table_branch": entry.owner,
        "row_count": entry.row_count,
    }


def _schema_ir() -> dict[str, Any]:
    """The compiled schema; older releases numbered types and properties by hashes of their names."""
    types = {name: _name_hash(name) for name in ("node:Person", "edge:Knows")}
    properties = {name: _name_hash(f"Person:{name}") for name in ("name", "age")}
    person = {
        "name": "Person",
        "type_id": types["node:Person"],
        "implements": [],
        "annotations": [],
        "properties": [
            _property("name", "String", properties["name"], nullable=False, marks=["key"]),
            _property("age", "I32", properties["age"], nullable=True, marks=[]),
        ],
        "constraints": [{"Key": ["name"]}],
    }
    knows = {
        "name": "Knows",
        "type_id": types["edge:Knows"],
        "from": "Person",
        "to": "Person",
        "cardinality": {"min": 0, "max": None},
        "annotations": [],
        "properties": [],
        "constraints": [],
    }
    return {
        "ir_version": 1,
        "interfaces": [],
        "nodes": [person],
        "edges": [knows],
        "next_type_id": max(types.values()) + 1,
        "next_prop_id": max(properties.values()) + 1,
    }


def _property(name: str, scalar: str, number: int, *, nullable: bool, marks: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "prop_id": number,
        "type": {"scalar": scalar, "nullable": nullable, "list": False, "enum_values": None},
        "annotations": [],
        "embed": None,
        "interfaces": [],
        "inherited": False,
        "marks": marks,
    }


def _name_hash(text: str) -> int:
    value = 2_166_136_261
    for byte in text.encode():
        value = ((value ^ byte) * 16_777_619) & 0xFFFFFFFF
    return value or 1
