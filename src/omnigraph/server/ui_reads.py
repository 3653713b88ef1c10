"""Handlers of what the explorer shows beside data: rights, types, findings of lint, health."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.responses import Response

from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.maintenance.doctor import examine
from omnigraph.engine.maintenance.health import Health
from omnigraph.errors import PolicyDenied
from omnigraph.lang.query.lint import lint
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.schema.catalog_json import edge_value, interface_value, node_value
from omnigraph.lang.source import Source
from omnigraph.policy.actions import Action
from omnigraph.server.moments import authorize_moment, parse_moment, pin
from omnigraph.server.requests import Call, branch_or_main
from omnigraph.server.stored_queries import StoredQuery
from omnigraph.server.wire.explorer import (
    DoctorOutput,
    HealthFinding,
    LintOutput,
    LintRequest,
    PermissionsOutput,
    SchemaTypesOutput,
)
from omnigraph.server.wire.stored_queries import StoredQueryOutput
from omnigraph.snapshot import pinned_by

PERSONAL = "personal"


async def get_permissions(call: Call) -> Response:
    """Return what policy would allow; the page offers that, and the server is asked again anyway."""
    branch, target = branch_or_main(call.query("branch")), branch_or_main(call.query("target"))
    questions: dict[Action, tuple[str | None, str | None]] = {
        Action.READ: (branch, None),
        Action.EXPORT: (branch, None),
        Action.CHANGE: (branch, None),
        Action.SCHEMA_APPLY: (None, MAIN),
        Action.BRANCH_CREATE: (branch, target),
        Action.BRANCH_DELETE: (None, branch),
        Action.BRANCH_MERGE: (branch, target),
        Action.INVOKE_QUERY: (None, None),
    }
    allowed = {action: _allows(call, action, *about) for action, about in questions.items()}
    service = call.service
    return call.reply(
        PermissionsOutput(
            graph_id=call.target.graph_id,
            actor_id=call.actor,
            mode=PERSONAL if service.sessions.is_personal else call.booted.state.value,
            branch=branch,
            target=target,
            can_apply_schema=allowed[Action.SCHEMA_APPLY] and not call.target.is_managed,
            actions={action.value: answer for action, answer in allowed.items()},
        )
    )


def _allows(call: Call, action: Action, branch: str | None, target: str | None) -> bool:
    try:
        call.authorize(action, branch=branch, target=target)
    except PolicyDenied:
        return False
    return True


async def describe_schema(call: Call) -> Response:
    """Return the types of a moment as data."""
    moment = parse_moment(call.query("branch"), None, call.query("commit"))
    await authorize_moment(call, moment)
    graph = call.graph

    def work() -> bytes:
        found = pin(graph, moment)
        catalog = found.schema
        return call.encode(
            SchemaTypesOutput(
                graph_commit_id=found.commit.id if found.commit else None,
                interfaces=[interface_value(one) for one in catalog.interfaces.values()],
                nodes=[node_value(one) for one in catalog.nodes.values()],
                edges=[edge_value(one) for one in catalog.edges.values()],
                rows={key: table.rows or 0 for key, table in sorted(found.tables.items())},
            )
        )

    return call.reply(await call.read(work))


async def lint_queries(call: Call) -> Response:
    """Return what lint finds; a wrong query is an answer and no failure."""
    asked = call.body(LintRequest)
    call.authorize(Action.READ)
    graph = call.graph

    def work() -> bytes:
        source = Source(asked.query)
        report = lint(source, graph.schema)
        return call.encode(
            LintOutput(
                status=report.status,
                errors=report.errors,
                warnings=report.warnings,
                infos=report.infos,
                results=[result.to_json() for result in report.results],
                findings=[finding.to_json() for finding in report.findings],
                queries=_describe_queries(source) if report.results else [],
            )
        )

    return call.reply(await call.read(work))


def _describe_queries(source: Source) -> list[StoredQueryOutput]:
    """Return what the queries of a file that parses take."""
    return [StoredQuery(one.name, source, one).describe() for one in parse_queries(source).queries]


async def doctor(call: Call) -> Response:
    """Return what the doctor finds, without reading all rows."""
    call.authorize(Action.READ)
    graph = call.graph

    def work() -> bytes:
        opened, _ = pinned_by(graph.snapshot())
        found = examine(opened)
        ours = [one for one in found.history if one.branch == MAIN]
        return call.encode(
            DoctorOutput(
                ok=found.ok,
                findings=list(_findings(found)),
                versions={one.key: one.versions for one in ours},
                past_versions={one.key: one.past for one in ours},
            )
        )

    return call.reply(await call.read(work))


def _findings(found: Health) -> Iterator[HealthFinding]:
    """Yield what is to be fixed, then what is good to know."""
    yield from _problems(found)
    for pending in found.pending:
        yield _note("pending index", f"{pending.key} on {pending.branch}: {', '.join(pending.columns)}")
    for few in found.below_minimum:
        yield _note("below minimum", f"{few.count:,} {few.node} have fewer than {few.minimum} {few.edge}")
    past = sum(one.past for one in found.history)
    if past:
        yield _note("history", f"{past:,} stored versions are past", "see `omnigraph cleanup`")
    for dropped in found.dropped:
        yield _note("dropped", f"{dropped.key} is kept for the past", "see `omnigraph cleanup`")
    if found.staged:
        yield _note("staged files", f"{len(found.staged):,} loads are running or were interrupted")


def _problems(found: Health) -> Iterator[HealthFinding]:
    for record in found.interrupted:
        yield _problem(
            "interrupted write", f"{record.operation_id} on {record.branch}", "run `omnigraph recover`"
        )
    for unread in found.unread:
        name = unread.key or "the branch"
        yield _problem("unreadable", f"{name} on {unread.branch}: {unread.reason}", "restore from a backup")
    for file in found.unreadable_files:
        yield _problem("unreadable", f"{file.path}: {file.reason}", file.remedy)
    for drift in found.drift:
        yield _problem("drift", f"{drift.key} on {drift.branch}: {drift.cause}", "see `omnigraph repair`")
    for fork in found.forks:
        yield _problem(
            "stray fork", f"{fork.key} for {fork.branch}: {fork.reason}", "see `omnigraph cleanup`"
        )
    for owed in found.removals:
        yield _problem("removal owed", ", ".join(owed.keys), "run `omnigraph recover`")


def _problem(what: str, detail: str, remedy: str) -> HealthFinding:
    return HealthFinding(severity="problem", what=what, detail=detail, remedy=remedy)


def _note(what: str, detail: str, remedy: str | None = None) -> HealthFinding:
    return HealthFinding(severity="note", what=what, detail=detail, remedy=remedy)
