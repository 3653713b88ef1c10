"""A deployment in a folder, with commands that return what a script would read."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omnigraph import graph as graphs
from omnigraph.cluster.apply import ApplyOptions, apply
from omnigraph.cluster.approve import ApprovalRequest, approve
from omnigraph.cluster.plan_command import plan
from omnigraph.cluster.refresh import import_graphs, refresh
from omnigraph.cluster.root import ClusterRoot, OpenRoot
from omnigraph.cluster.status import force_unlock, status
from omnigraph.cluster.validate import validate

SCHEMA = "node Person { name: String @key  age: I32? }\n"
WIDER = "node Person { name: String @key  age: I32?  mail: String? }\n"
NARROWER = "node Person { name: String @key }\n"
IMPOSSIBLE = "node Person { name: String @key  age: String? }\n"
QUERY = "query people() { match { $p: Person } return { $p.name } }\n"
MAILS = "query mails() { match { $p: Person } return { $p.mail } }\n"
CONFIG = """\
version: 1
providers:
  embedding:
    local: {kind: mock}
graphs:
  knowledge:
    schema: knowledge.pg
    queries: queries/
    embedding_provider: local
policies:
  server: {file: server.yaml, applies_to: [cluster]}
"""
SERVER_POLICY = """\
version: 1
kind: server
groups: {ops: [ann]}
rules: [{id: list, allow: {actors: {group: ops}, actions: [graph_list]}}]
"""
GRAPH_POLICY = """\
version: 1
groups: {ops: [ann]}
rules: [{id: all, allow: {actors: {group: ops}, actions: [schema_apply]}}]
"""
TWO_GRAPHS = CONFIG.replace(
    "policies:", "  second: {schema: knowledge.pg, queries: {people: {file: queries/people.gq}}}\npolicies:"
)
GONE = "version: 1\n"

Json = dict[str, Any]


@dataclass(frozen=True)
class Deployment:
    """A folder with a configuration; commands run in this process."""

    folder: Path
    open_root: OpenRoot = field(default=ClusterRoot.at)

    def write(self, name: str, text: str) -> None:
        """Write a file of the configuration."""
        at = self.folder / name
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(text, encoding="utf-8")

    def configure(self, text: str) -> None:
        """Write `cluster.yaml`."""
        self.write("cluster.yaml", text)

    def validate(self) -> Json:
        return validate(self.folder).to_json()

    def plan(self, out: Path | None = None) -> Json:
        return plan(self.folder, out, self.open_root).to_json()

    def apply(self, actor: str | None = None, plan_file: Path | None = None) -> Json:
        return apply(self.folder, ApplyOptions(actor, plan_file), self.open_root).to_json()

    def approve(self, resource: str, actor: str | None = "ann", *, allow_data_loss: bool = False) -> Json:
        request = ApprovalRequest(resource, actor, allow_data_loss)
        return approve(self.folder, request, self.open_root).to_json()

    def status(self) -> Json:
        return status(self.folder, self.open_root).to_json()

    def refresh(self) -> Json:
        return refresh(self.folder, self.open_root).to_json()

    def import_(self) -> Json:
        return import_graphs(self.folder, self.open_root).to_json()

    def force_unlock(self, lock_id: str) -> Json:
        return force_unlock(self.folder, lock_id, self.open_root).to_json()

    @property
    def control(self) -> Path:
        """The folder of the ledger."""
        return self.folder / "__cluster"

    def graph(self, graph_id: str = "knowledge") -> Path:
        """Where a graph is."""
        return self.folder / "graphs" / f"{graph_id}.omni"

    def state(self) -> Json:
        """The ledger on disk."""
        found: Json = json.loads((self.control / "state.json").read_text(encoding="utf-8"))
        return found

    def edit_state(self, change: Any) -> None:
        """Edit the ledger as no command would."""
        state = self.state()
        change(state)
        (self.control / "state.json").write_text(json.dumps(state), encoding="utf-8")

    def sidecars(self) -> list[Json]:
        """The recovery files."""
        return _read_all(self.control / "recoveries")

    def approvals(self) -> list[Json]:
        """The approvals."""
        return _read_all(self.control / "approvals")

    def schema_of(self, graph_id: str = "knowledge") -> str:
        """The schema of a live graph."""
        with graphs.open(self.graph(graph_id), read_only=True) as opened:
            return opened.schema_source

    def copy_to(self, folder: Path) -> Deployment:
        """A copy that a test may change."""
        shutil.copytree(self.folder, folder)
        return Deployment(folder)


def _read_all(folder: Path) -> list[Json]:
    if not folder.is_dir():
        return []
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def new_deployment(folder: Path) -> Deployment:
    """A configuration with one graph, before anything was applied."""
    made = Deployment(folder)
    made.configure(CONFIG)
    made.write("knowledge.pg", SCHEMA)
    made.write("queries/people.gq", QUERY)
    made.write("server.yaml", SERVER_POLICY)
    return made


def leave_sidecar(deployment: Deployment, **members: Any) -> None:
    """Leave a recovery file as a killed command would."""
    sidecar = {
        "schema_version": 1,
        "operation_id": "01J",
        "started_at": "2026-01-01T00:00:00Z",
        "actor": None,
        "kind": "schema_apply",
        "graph_id": "knowledge",
        "graph_uri": str(deployment.graph()),
        "observed_manifest_version": 1,
        "expected_manifest_version": None,
        "desired_schema_digest": "x",
        "state_cas_base": None,
        "approval_id": None,
    }
    deployment.write("__cluster/recoveries/01J.json", json.dumps({**sidecar, **members}))


def codes(result: Json, severity: str | None = None) -> list[str]:
    """The codes of the findings of a command."""
    return [one["code"] for one in result["diagnostics"] if severity in (None, one["severity"])]


def outcomes(result: Json) -> dict[str, str]:
    """What became of each change: operation, disposition and reason."""
    return {
        one["resource"]: " ".join(filter(None, (one["operation"], one.get("disposition"), one.get("reason"))))
        for one in result["changes"]
    }


def statuses(result: Json) -> dict[str, str]:
    """How each resource stands, with its conditions."""
    return {
        address: " ".join((one["status"], *one.get("conditions", ())))
        for address, one in result["resource_statuses"].items()
    }
