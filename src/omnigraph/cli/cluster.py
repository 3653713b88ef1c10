"""`omnigraph cluster`: declared deployments, checked, planned and applied."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from omnigraph.cli.addressing import resolve_actor
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_note, print_result
from omnigraph.cluster.explain import Line, Tone, describe_outcome, explain

if TYPE_CHECKING:
    from omnigraph.cluster.diagnostics import Findings

app = new_app(help="Declare graphs in files, plan what would change, and apply it.")

ACTOR_SETTING = "OMNIGRAPH_CLUSTER_ACTOR"

ConfigDir = Annotated[Path, typer.Option("--config", help="The directory with cluster.yaml.", metavar="DIR")]
Actor = Annotated[str | None, typer.Option("--actor", help="The same as --as.", metavar="ACTOR", hidden=True)]

_COLOURS: dict[Tone, dict[str, Any]] = {
    Tone.ADDED: {"fg": "green"},
    Tone.CHANGED: {"fg": "yellow"},
    Tone.REMOVED: {"fg": "red"},
    Tone.FAINT: {"dim": True},
}


class Outcome(Protocol):
    """What every command returns."""

    @property
    def findings(self) -> Findings: ...
    def to_json(self) -> dict[str, Any]: ...


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="A new directory.", metavar="DIR")],
    as_json: AsJson = False,
) -> None:
    """Write a small example into a new directory: two graphs, queries, a policy and a pipeline."""
    from omnigraph.cluster.example import write_example

    written = [str(path) for path in write_example(directory)]
    steps = ", ".join(f"`cluster {name} --config {directory}`" for name in ("import", "plan", "apply"))
    text = "\n".join([*(f"wrote {path}" for path in written), f"next: {steps}"])
    print_result({"directory": str(directory), "files": written}, text, as_json=as_json)


@app.command()
def validate(config: ConfigDir = Path(), as_json: AsJson = False) -> None:
    """Check cluster.yaml and every file it names; reads no graph and no ledger."""
    from omnigraph.cluster.validate import validate as run

    found = run(config)
    desired = found.desired
    resources, edges = (0, 0) if desired is None else (len(desired.resources), len(desired.dependencies))
    text = f"cluster config valid: {resources} resource(s), {edges} dependency edge(s)"
    _print(found, [Line(text if found.ok else "cluster config invalid")], as_json=as_json)


@app.command()
def plan(
    config: ConfigDir = Path(),
    out: Annotated[
        Path | None, typer.Option("--out", help="Store the plan for `cluster apply --plan`.", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what apply would do; changes nothing."""
    from omnigraph.cluster.plan_command import plan as run

    found = run(config, out)
    lines = [Line("cluster plan failed")] if found.plan is None else list(explain(found.plan))
    _print(found, lines, as_json=as_json)


@app.command()
def apply(
    config: ConfigDir = Path(),
    plan_file: Annotated[
        Path | None,
        typer.Option("--plan", help="Only if this stored plan still holds.", metavar="FILE"),
    ] = None,
    actor: Actor = None,
    as_json: AsJson = False,
) -> None:
    """Do what the plan says, and record it; a part that fails leaves the others alone."""
    from omnigraph.cluster.apply import ApplyOptions
    from omnigraph.cluster.apply import apply as run

    done = run(config, ApplyOptions(resolve_cluster_actor(actor), plan_file))
    state = done.session.state
    revision = 0 if state is None else state.revision
    lines = [
        Line(f"cluster apply: {done.applied_count} applied, {done.deferred_count} deferred/blocked"),
        *map(describe_outcome, done.changes),
        Line(
            f"  state: revision {revision}, converged: {_flag(done.converged)}, "
            f"written: {_flag(done.state_written)}"
        ),
    ]
    if done.state_written:
        lines.append(Line("  servers with --reload pick it up now, others at their next restart", Tone.FAINT))
    _print(done, lines, as_json=as_json)


@app.command()
def approve(
    resource: Annotated[
        str, typer.Argument(help="The resource whose change is approved.", metavar="RESOURCE")
    ],
    config: ConfigDir = Path(),
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Let this schema change remove dropped data for good.")
    ] = False,
    actor: Actor = None,
    by: Annotated[str | None, typer.Option("--by", help="The same as --as.", hidden=True)] = None,
    as_json: AsJson = False,
) -> None:
    """Allow one change of the current plan, as a person; it holds for exactly these files and this ledger."""
    from omnigraph.cluster.approve import ApprovalRequest
    from omnigraph.cluster.approve import approve as run

    done = run(config, ApprovalRequest(resource, resolve_cluster_actor(actor or by), allow_data_loss))
    found = done.approval
    text = (
        "nothing was approved"
        if found is None
        else f"approved {found.operation} of {found.resource} by {found.approved_by}: {found.approval_id}"
    )
    _print(done, [Line(text)], as_json=as_json)


@app.command()
def status(config: ConfigDir = Path(), as_json: AsJson = False) -> None:
    """Show the ledger, its lock and what waits for recovery; changes nothing."""
    from omnigraph.cluster.status import status as run

    found = run(config)
    facts = found.session.observed_json()
    lines = [Line(f"cluster status: revision {facts.get('state_revision', 0)}, {_locked(facts)}")]
    if found.session.state is not None:
        lines += _status_lines(found.session.state.statuses_json())
    _print(found, lines, as_json=as_json)


@app.command()
def refresh(config: ConfigDir = Path(), as_json: AsJson = False) -> None:
    """Compare the ledger with live graphs and published files, and record what differs."""
    from omnigraph.cluster.refresh import refresh as run

    _print_refreshed(run(config), as_json=as_json)


@app.command(name="import")
def import_(config: ConfigDir = Path(), as_json: AsJson = False) -> None:
    """Make the first ledger of a cluster, from the graphs that are there."""
    from omnigraph.cluster.refresh import import_graphs as run

    _print_refreshed(run(config), as_json=as_json)


@app.command(name="force-unlock")
def force_unlock(
    lock_id: Annotated[str, typer.Argument(help="The lock, as the refusal names it.", metavar="LOCK")],
    config: ConfigDir = Path(),
    as_json: AsJson = False,
) -> None:
    """Remove the lock of a command whose process is gone for certain."""
    from omnigraph.cluster.status import force_unlock as run

    done = run(config, lock_id)
    text = f"removed lock {lock_id}" if done.lock_removed else "no lock was removed"
    _print(done, [Line(text)], as_json=as_json)


def resolve_cluster_actor(named: str | None = None) -> str | None:
    """Return the actor: --as or its other spellings, the environment, the config file."""
    given = [name for name in (named, current_as()) if name is not None]
    return given[0] if given else os.environ.get(ACTOR_SETTING) or resolve_actor()


def current_as() -> str | None:
    """Return the actor of --as."""
    from omnigraph.cli.invocation import current_invocation

    return current_invocation().text("--as")


def _print_refreshed(done: Any, *, as_json: bool) -> None:
    state = done.session.state
    revision = 0 if state is None else state.revision
    lines = [Line(f"cluster {done.operation}: revision {revision}")]
    if state is not None:
        lines += _status_lines(state.statuses_json())
    _print(done, lines, as_json=as_json)


def _status_lines(statuses: dict[str, Any]) -> Iterable[Line]:
    for address, one in statuses.items():
        conditions = ", ".join(one.get("conditions", ()))
        yield Line(f"  {address}: {one['status']}{f' ({conditions})' if conditions else ''}")


def _locked(facts: dict[str, Any]) -> str:
    if not facts.get("locked"):
        return "not locked"
    age = facts.get("lock_age_seconds")
    return (
        f"locked by `cluster {facts['lock_operation']}` (lock {facts['lock_id']}, pid {facts['lock_pid']}"
        f"{'' if age is None else f', {age} s'})"
    )


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _print(outcome: Outcome, lines: Iterable[Line], *, as_json: bool) -> None:
    """Print a result with its findings, and exit with 1 when one of them is an error."""
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    text = "\n".join(
        typer.style(line.text, **_COLOURS.get(line.tone, {})) if coloured else line.text for line in lines
    )
    print_result(outcome.to_json(), text, as_json=as_json)
    if not as_json:
        for one in outcome.findings.found:
            print_note(str(one))
    if not outcome.findings.ok:
        raise typer.Exit(1)
