"""`cluster plan`: what apply would do. It takes the lock, acts on nothing and writes no ledger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from omnigraph.cluster.addresses import Kind, graph_address, kind_of, name_of
from omnigraph.cluster.diagnostics import Findings
from omnigraph.cluster.plan import Action, Plan
from omnigraph.cluster.plan_file import write_plan
from omnigraph.cluster.planner import Circumstances, build_plan
from omnigraph.cluster.preview import preview
from omnigraph.cluster.root import ClusterRoot, OpenRoot
from omnigraph.cluster.session import Session
from omnigraph.cluster.sidecars import read_sidecars
from omnigraph.cluster.state import State
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.files.output_paths import require_output


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan with what was found on the way to it."""

    session: Session
    plan: Plan | None = None

    @property
    def findings(self) -> Findings:
        """The findings of the command."""
        return self.session.findings

    def to_json(self) -> dict[str, Any]:
        """The result as a script reads it."""
        desired, plan = self.session.desired, self.plan
        return {
            "ok": self.findings.ok,
            "config_dir": str(self.session.directory),
            "desired_revision": {} if desired is None else {"config_digest": desired.config_digest},
            "resource_digests": {} if desired is None else desired.digests(),
            "dependencies": [] if desired is None else [one.to_json() for one in desired.dependencies],
            "state_observations": self.session.observed_json(),
            "changes": [] if plan is None else [change.to_json() for change in plan.changes],
            "blast_radius": [] if plan is None else plan.blast_json(),
            "approvals_required": [] if plan is None else [gate.to_json() for gate in plan.gates],
            "diagnostics": self.findings.to_json(),
        }


def plan(directory: Path, out: Path | None = None, open_root: OpenRoot = ClusterRoot.at) -> Planned:
    """Compare the files of a cluster with its ledger; `out` stores the plan for `apply`."""
    if out is not None:
        require_output(out)
    session = Session(directory, open_root)
    result = Planned(session)
    with session.reporting():
        desired = session.load()
        with session.locked("plan", desired.config) as (root, ledger):
            result = replace(result, plan=_plan(session, root, ledger.state or State(), ledger.cas))
        if out is not None and result.plan is not None:
            write_plan(out, result.plan)
    return result


def _plan(session: Session, root: ClusterRoot, state: State, cas: str | None) -> Plan | None:
    desired, findings = session.desired, session.findings
    if desired is None:
        return None
    sidecars = read_sidecars(root, findings)
    for one in sidecars:
        message = f"an interrupted {one.kind.words} waits; the next apply or refresh recovers it"
        findings.add("cluster_recovery_pending", graph_address(one.graph_id), message)
    approvals = session.approvals(root, state)
    pending = frozenset(one.graph_id for one in sidecars)
    made = build_plan(desired, state, Circumstances(cas, pending, approvals), findings)
    _report_unparsed(session, made)
    return preview(root, desired, made, approvals, findings)


def _report_unparsed(session: Session, made: Plan) -> None:
    """Note statements that only Spark can parse: starting it would make every plan wait for seconds."""
    for change in made.changes:
        if kind_of(change.resource) is Kind.PIPELINE and change.operation is not Action.DELETE:
            name = name_of(change.resource)
            command = f"omnigraph pipeline plan {name} --desired --config {session.directory}"
            message = f"the statements of '{name}' were not parsed by Spark; `{command}` does that"
            session.findings.add("pipeline_sql_check_skipped", change.resource, message)
