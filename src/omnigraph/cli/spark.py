"""`omnigraph spark`: the warm server of the data pipeline, and what the pipeline needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from omnigraph.cli.command_groups import new_app
from omnigraph.cli.invocation import current_invocation
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result
from omnigraph.pipeline import server
from omnigraph.pipeline.doctor import Check, examine
from omnigraph.pipeline.server import IDLE_MINUTES, Server, ServerFolder
from omnigraph.pipeline.session import LOCAL, require_spark
from omnigraph.pipeline.spark_settings import DEFAULT_MEMORY, MEMORY_SETTING

app = new_app(help="Keep a warm Spark on this machine, and see what the data pipeline needs.")


@app.command()
def start(
    master: Annotated[
        str, typer.Option("--master", help="The master the server runs on.", metavar="MASTER")
    ] = LOCAL,
    memory: Annotated[
        str,
        typer.Option("--memory", envvar=MEMORY_SETTING, help="Memory of its JVM, as in 2g.", metavar="SIZE"),
    ] = DEFAULT_MEMORY,
    idle_minutes: Annotated[
        float,
        typer.Option(
            "--idle-minutes", min=0.1, help="End it after so long without a client.", metavar="MINUTES"
        ),
    ] = IDLE_MINUTES,
    as_json: AsJson = False,
) -> None:
    """Start a warm server that sessions on this machine find automatically.

    Does nothing if it already runs. It listens on this machine only, for you alone, and ends when it is idle.
    """
    require_spark()
    found, started = server.start(master=master, memory=memory, idle_minutes=idle_minutes)
    if started:
        _warm_up()
    facts = {"started": started, **_to_json(found)}
    print_result(
        facts, f"{'started' if started else 'already running'}: {_render_line(found)}", as_json=as_json
    )


@app.command()
def stop(as_json: AsJson = False) -> None:
    """End the warm server. Jobs that it runs are lost, and none of what they did is visible."""
    stopped = server.stop()
    print_result({"stopped": stopped}, "stopped" if stopped else "not running", as_json=as_json)


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show whether the warm server runs; exits with 1 when it does not."""
    found = server.find_server()
    facts = {"running": found is not None, **(_to_json(found) if found else {})}
    print_result(facts, f"running: {_render_line(found)}" if found else "not running", as_json=as_json)
    if found is None:
        raise typer.Exit(1)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Show what the data pipeline needs and what of it is missing; exits with 1 when something is."""
    checks = examine()
    ok = all(check.ok for check in checks)
    facts = {"ok": ok, "checks": [asdict(check) for check in checks]}
    print_result(facts, "\n".join(_render_lines(checks)), as_json=as_json)
    if not ok:
        raise typer.Exit(1)


def _warm_up() -> None:
    """Run a small job, so that the first real one finds everything loaded, and we know that it works."""
    from omnigraph.pipeline.session import session
    from omnigraph.pipeline.warm_up import run_warm_up_job

    # Only whether it works matters.
    current_invocation().shows_progress = False
    found = server.lease()
    spark = session(found.url if found else None)
    run_warm_up_job(spark)
    spark.stop()


def _to_json(found: Server) -> dict[str, Any]:
    return {
        "url": found.address,
        "master": found.master,
        "memory": found.memory,
        "idle_minutes": found.idle_minutes,
        "started_at": datetime.fromtimestamp(found.started, UTC).isoformat(timespec="seconds"),
        "pid": found.jvm,
        "log": str(ServerFolder.of_this_environment().log),
    }


def _render_line(found: Server) -> str:
    idle = f"ends after {found.idle_minutes:g} minutes without a client"
    return f"{found.address} on {found.master}, {found.memory}, {idle}"


def _render_lines(checks: Sequence[Check]) -> Iterator[str]:
    width = max(len(check.name) for check in checks)
    for check in checks:
        yield f"{'ok     ' if check.ok else 'missing'}  {check.name:<{width}}  {check.found}"
        if check.remedy:
            yield f"{'':9}{'':<{width}}  help: {check.remedy}"
