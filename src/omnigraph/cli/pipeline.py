"""`omnigraph pipeline`: declared pipelines, checked, planned and run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph import graph as graphs
from omnigraph.cli.addressing import echo_write, find_cluster, require_consent, resolve_actor
from omnigraph.cli.cluster import resolve_cluster_actor
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.invocation import current_invocation
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_note, print_result
from omnigraph.cluster.applied_pipelines import AppliedPipelines
from omnigraph.deferred_dataclass import dataclass
from omnigraph.display.text import format_total
from omnigraph.errors import BadRequest, Unauthorized
from omnigraph.pipeline.declared import lease
from omnigraph.pipeline.declared.adoption import FirstTarget, hold_ledger, identify_graph, open_ledger
from omnigraph.pipeline.declared.check import check
from omnigraph.pipeline.declared.declaration import LoadMode, Pipeline
from omnigraph.pipeline.declared.parse import read_pipeline, read_pipelines
from omnigraph.pipeline.declared.plan import PipelinePlan, dry_run, open_extract
from omnigraph.pipeline.declared.plan import plan as planned
from omnigraph.pipeline.declared.records import Ledger, RunRecord, Status, TargetRecord
from omnigraph.pipeline.declared.run import RunOptions, open_targets, parse_params, select_targets
from omnigraph.pipeline.declared.run import retry as take_up
from omnigraph.pipeline.declared.run import run as run_once

app = new_app(help="Check, plan and run pipelines that a file or a cluster declares.")

What = Annotated[
    str,
    typer.Argument(
        help="The file with the pipelines; or with --cluster or --config the name of a pipeline.",
        metavar="FILE|NAME",
    ),
]
Name = Annotated[
    str | None,
    typer.Option("--pipeline", help="Which pipeline, where a file has several.", metavar="NAME"),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", help="The directory with the cluster.yaml of a pipeline.", metavar="DIR"),
]
Targets = Annotated[
    list[str] | None,
    typer.Option("--target", help="Only this graph of `into`; may be repeated.", metavar="GRAPH"),
]
Desired = Annotated[
    bool, typer.Option("--desired", help="The pipeline of the cluster's files, not the applied one.")
]
RunId = Annotated[str, typer.Argument(help="The id of a run.", metavar="RUN")]


@app.command()
def validate(what: What, name: Name = None, config: Config = None, as_json: AsJson = False) -> None:
    """Check pipelines against their files, graphs and schemas; needs no Spark."""
    cluster = _find_cluster(config)
    if cluster is None and name is None:
        found = list(read_pipelines(what).values())
    else:
        found = [_find(what, name, config).pipeline]
    for one in found:
        check(one)
    report = {"file" if cluster is None else "cluster": cluster or what}
    pipelines = [_describe_pipeline(one) for one in found]
    text = "\n".join(f"{one.name}: valid" for one in found)
    print_result({**report, "pipelines": pipelines}, text, as_json=as_json)


@app.command()
def plan(
    what: What, name: Name = None, config: Config = None, desired: Desired = False, as_json: AsJson = False
) -> None:
    """Check a pipeline, and let Spark find the columns of every statement and map; reads no rows."""
    _print_plan(planned(_find(what, name, config, desired=desired).pipeline), as_json=as_json)


@app.command()
def run(
    what: What,
    name: Name = None,
    config: Config = None,
    target: Targets = None,
    param: Annotated[
        list[str] | None,
        typer.Option("--param", help="A parameter for this run; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    full_refresh: Annotated[
        bool, typer.Option("--full-refresh", help="Read and load everything, wherever earlier runs ended.")
    ] = False,
    only_count: Annotated[bool, typer.Option("--dry-run", help="Read and count, and write nothing.")] = False,
    desired: Desired = False,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline once: read its sources, make rows of them, and load them into each target.

    A pipeline of a cluster runs as it was applied. A run that was cut short is settled first. Exits with 1
    unless every target got its rows.
    """
    if desired and not only_count:
        raise BadRequest(
            "--desired needs --dry-run", remedy="apply the files with `omnigraph cluster apply` first"
        )
    found = _find(what, name, config, desired=desired)
    pipeline = found.pipeline
    params = parse_params(pipeline, _parse_params(param or []))
    targets = tuple(target or ())
    if only_count:
        extract = open_extract(pipeline, params)
        _print_plan(dry_run(pipeline, extract, targets=targets, full_refresh=full_refresh), as_json=as_json)
        return
    _require_consent(pipeline, targets, as_json=as_json)
    check(pipeline)
    order = found.authorize(RunOptions(targets, full_refresh, params))
    _print_run(pipeline, run_once(pipeline, open_extract(pipeline, params), order), "run", as_json=as_json)


@app.command()
def retry(
    what: What, run_id: RunId, name: Name = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Retry a run that failed or was interrupted; rows that landed are not delivered twice."""
    found = _find(what, name, config)
    pipeline = found.pipeline
    _require_consent(pipeline, (), as_json=as_json)
    record = open_ledger(pipeline).read_run(run_id)
    params = {key: value for key, value in record.params.items() if key in dict(pipeline.params)}
    order = found.authorize(RunOptions())
    done = take_up(pipeline, open_extract(pipeline, params), run_id, order)
    _print_run(pipeline, done, "retry", as_json=as_json)


@app.command(name="list")
def list_pipelines(
    file: Annotated[
        Path | None, typer.Argument(help="The file with the pipelines.", metavar="[FILE]")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the pipelines of a file, or those that a cluster has applied, each with its last run."""
    cluster = _find_cluster(config)
    if (file is None) == (cluster is None):
        raise BadRequest(
            "no pipelines addressed", remedy="name a file, or a cluster with --cluster or --config"
        )
    if file is not None:
        found = list(read_pipelines(file).values())
    else:
        applied = AppliedPipelines.open(str(cluster))
        found = [applied.read(each) for each in applied.names()]
    reports, lines = [], []
    for one in found:
        last = open_ledger(one).list_runs(1)
        reports.append({**_describe_pipeline(one), "last_run": last[0].to_json() if last else None})
        lines.append(f"{one.name}: {_run_line(last[0]) if last else 'no runs'}")
    print_result({"pipelines": reports}, "\n".join(lines) or "no pipelines", as_json=as_json)


@app.command()
def runs(
    what: What,
    name: Name = None,
    config: Config = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many.", metavar="N")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the runs of a pipeline, the newest first."""
    found = _open_ledger(what, name, config).list_runs(limit)
    text = "\n".join(_run_line(one) for one in found) or "no runs"
    print_result({"runs": [one.to_json() for one in found]}, text, as_json=as_json)


@app.command()
def status(
    what: What, run_id: RunId, name: Name = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Show one run: what was read, and what became of each target."""
    found = _open_ledger(what, name, config).read_run(run_id)
    print_result(found.to_json(), "\n".join(_run_lines(found)), as_json=as_json)


@app.command()
def show(what: What, name: Name = None, config: Config = None, as_json: AsJson = False) -> None:
    """Show a pipeline: its views and targets, how far each has come, and the last run."""
    pipeline = _find(what, name, config).pipeline
    ledger = open_ledger(pipeline)
    reached, last = ledger.read_checkpoint(), ledger.list_runs(1)
    report = {
        **_describe_pipeline(pipeline),
        "checkpoints": {
            target: {source: one.upper for source, one in sources.items()}
            for target, sources in reached.items()
        },
        "last_run": last[0].to_json() if last else None,
    }
    print_result(report, "\n".join(_render_report(report, last)), as_json=as_json)


@app.command(name="reset-checkpoint")
def reset_checkpoint(
    what: What, name: Name = None, config: Config = None, target: Targets = None, as_json: AsJson = False
) -> None:
    """Forget how far targets have come, so that the next run reads all; in a bucket this needs --yes."""
    pipeline = _find(what, name, config).pipeline
    require_consent("forgetting checkpoints", pipeline.home, as_json=as_json)
    names = tuple(one.name for one in select_targets(pipeline, target or ()))
    with graphs.open(pipeline.into[0].uri, read_only=True) as graph:
        first = FirstTarget(identify_graph(graph))
    with hold_ledger(pipeline, "reset-checkpoint", first) as ledger:
        gone = ledger.forget(names)
    print_result({"forgotten": gone}, "\n".join(gone) or "nothing to forget", as_json=as_json)


@app.command(name="force-unlock")
def force_unlock(
    what: What,
    lease_id: Annotated[
        str, typer.Argument(help="The lease, as the refusal of a run names it.", metavar="LEASE")
    ],
    name: Name = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Remove the lease of a run whose process is gone for certain."""
    found = lease.force_unlock(_open_ledger(what, name, config), lease_id)
    report = {"lease_id": found.lease_id, "run_id": found.run_id}
    print_result(report, f"removed the lease of run {found.run_id}", as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Found:
    """A pipeline, and the cluster that applied it."""

    pipeline: Pipeline
    applied: AppliedPipelines | None = None

    def authorize(self, order: RunOptions) -> RunOptions:
        """Return the options with actor and policies; fails before Spark starts if they do not fit."""
        if self.applied is None:
            return replace(order, actor=resolve_actor())
        actor, policies = resolve_cluster_actor(), self.applied.policies(self.pipeline)
        if policies and actor is None:
            raise Unauthorized(
                f"the policy of '{next(iter(policies))}' needs an actor", remedy="name one with --as"
            )
        made = replace(order, actor=actor, policies=policies)
        with open_targets(self.pipeline, made):
            return made


def _find(what: str, name: str | None, config: Path | None, *, desired: bool = False) -> _Found:
    """Return the pipeline that a command is about: one of a file, or an applied one of a cluster."""
    cluster = _find_cluster(config)
    if cluster is None:
        if desired:
            raise BadRequest("--desired is about a pipeline of a cluster", remedy="name it with --config")
        return _Found(read_pipeline(what, name))
    if name is not None:
        raise BadRequest("--pipeline chooses a pipeline of a file", remedy="name the pipeline alone")
    applied = AppliedPipelines.open(cluster)
    return _Found(applied.read_desired(what) if desired else applied.read(what), applied)


def _find_cluster(config: Path | None) -> str | None:
    """Return the cluster of --cluster or --config; a name in the config file stands for its place."""
    named = current_invocation().text("--cluster")
    if named is not None and config is not None:
        raise BadRequest("--cluster and --config are mutually exclusive")
    if named is not None:
        return find_cluster(named)
    return None if config is None else str(config)


def _open_ledger(what: str, name: str | None, config: Path | None) -> Ledger:
    return open_ledger(_find(what, name, config).pipeline)


def _parse_params(given: list[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadRequest(f"'{text}' is not a parameter", remedy="write --param NAME=VALUE")
        found[name] = value
    return found


def _require_consent(pipeline: Pipeline, targets: tuple[str, ...], *, as_json: bool) -> None:
    for one in select_targets(pipeline, targets):
        if one.mode is LoadMode.OVERWRITE:
            require_consent(f"overwriting types on branch '{one.branch}'", one.uri, as_json=as_json)


def _describe_pipeline(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "name": pipeline.name,
        "definition_digest": pipeline.digest,
        "sources": [one.name for one in pipeline.sources],
        "views": pipeline.list_views(),
        "targets": {
            one.name: {"mode": one.mode.value, "branch": one.branch, "types": list(one.by_table())}
            for one in pipeline.into
        },
    }


def _print_plan(made: PipelinePlan, *, as_json: bool) -> None:
    lines = []
    for one in made.targets:
        target = one.target
        lines.append(f"{target.name}: {target.mode.value} on branch {target.branch}")
        for key, what in one.types.items():
            rows = "" if what.rows is None else f"{format_total(what.rows, 'row')}, "
            columns = what.columns or {}
            shown = ", ".join(f"{column} {kind}" for column, kind in columns.items())
            lines.append(f"  {key}: {rows}{shown or 'columns not checked'}")
    print_result(made.to_json(), "\n".join(lines), as_json=as_json)
    for warning in made.warnings:
        print_note(f"warning[{warning['code']}]: {warning['message']}")


def _print_run(pipeline: Pipeline, record: RunRecord, command: str, *, as_json: bool) -> None:
    print_result(record.to_json(), "\n".join(_run_lines(record)), as_json=as_json)
    for warning in record.diagnostics:
        print_note(f"warning[{warning['code']}]: {warning['message']}")
    for target in pipeline.into:
        if target.name in record.targets and record.targets[target.name].status.is_landed:
            echo_write(f"pipeline {command}", target.uri)
    if record.status is not Status.SUCCEEDED:
        raise typer.Exit(1)


def _run_line(record: RunRecord) -> str:
    rows = sum(_count_rows(one) for one in record.targets.values() if one.status.is_landed)
    return f"{record.run_id}  {record.started_at}  {record.status.value:9}  {format_total(rows, 'row')}"


def _run_lines(record: RunRecord) -> Iterator[str]:
    yield f"run {record.run_id}: {record.status.value}"
    for name, one in record.targets.items():
        at = f", commit {one.commit_id}" if one.commit_id is not None and one.status.is_landed else ""
        yield f"  {name}: {one.status.value}, {format_total(_count_rows(one), 'row')}{at}"
        if one.error is not None:
            yield f"    error[{one.error['code']}]: {one.error['message']}"


def _count_rows(target: TargetRecord) -> int:
    return sum(target.nodes.values()) + sum(target.edges.values())


def _render_report(report: Mapping[str, Any], last: list[RunRecord]) -> Iterator[str]:
    yield f"{report['name']}: {', '.join(report['views'])}"
    for name, one in report["targets"].items():
        yield f"  {name}: {one['mode']} on branch {one['branch']}: {', '.join(one['types'])}"
        for source, upper in report["checkpoints"].get(name, {}).items():
            yield f"    {source} up to {upper}"
    if last:
        yield f"last run: {_run_line(last[0])}"
