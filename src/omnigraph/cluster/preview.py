"""Preview schema changes on live graphs, read-only; a plan without previews is still a plan."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.cluster.addresses import Kind, graph_of, kind_of
from omnigraph.cluster.approvals import Approvals
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import Findings
from omnigraph.cluster.live import Expected, describe, open_read_only
from omnigraph.cluster.plan import Action, Change, Disposition, Fence, Migration, Plan
from omnigraph.cluster.root import ClusterRoot
from omnigraph.errors import OmnigraphError
from omnigraph.lang.schema import MigrationPlan, describe_plan


def preview(
    root: ClusterRoot, desired: Desired, plan: Plan, approvals: Approvals, findings: Findings
) -> Plan:
    """Return the plan with the steps of every schema update, and the graphs they were computed on."""
    migrations, fences = {}, {}
    for change in filter(is_schema_update, plan.changes):
        graph_id = str(graph_of(change.resource))
        try:
            migration, fences[graph_id] = _preview(root, desired, change, graph_id)
        except OmnigraphError as error:
            message = f"the live graph '{graph_id}' cannot be previewed: {error.message}"
            findings.add("schema_preview_unavailable", change.resource, message)
        else:
            hard = approvals.find(change.question(plan.config_digest)) is not None
            migrations[change.resource] = replace(migration, data_loss_approved=hard)
    changes = tuple(
        replace(change, migration=migrations.get(change.resource, change.migration))
        for change in plan.changes
    )
    return replace(plan, changes=changes, fences=fences)


def is_schema_update(change: Change) -> bool:
    """Whether apply would change the schema of a live graph."""
    is_update = kind_of(change.resource) is Kind.SCHEMA and change.operation is Action.UPDATE
    return is_update and change.disposition is Disposition.APPLIED


def _preview(root: ClusterRoot, desired: Desired, change: Change, graph_id: str) -> tuple[Migration, Fence]:
    source = schema_text(desired, change.resource)
    with open_read_only(root, graph_id) as graph:
        live = describe(graph, Expected(change.before_digest, change.after_digest, source))
        steps = to_migration(graph.plan_schema(source))
    return steps, Fence(live.schema_digest, live.manifest_version)


def schema_text(desired: Desired, address: str) -> str:
    """Return the desired text of a schema."""
    file = desired.resources[address].file
    return "" if file is None else file.data.decode()


def to_migration(found: MigrationPlan) -> Migration:
    """Return a migration of the engine as a plan has it."""
    steps = tuple(step.to_json() for step in found.steps)
    return Migration(found.supported, steps, tuple(describe_plan(found)))
