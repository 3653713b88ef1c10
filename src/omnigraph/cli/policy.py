"""`omnigraph policy`: check a bundle, of a file or of a cluster, test it, and ask what it decides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from omnigraph.cli.addressing import require_cluster, resolve_graph_id
from omnigraph.cli.command_groups import new_app
from omnigraph.cli.invocation import current_invocation
from omnigraph.cli.options import AsJson
from omnigraph.cli.output import print_result
from omnigraph.errors import BadRequest
from omnigraph.policy.actions import parse_action
from omnigraph.policy.cases import find_mismatches, read_cases
from omnigraph.policy.policy import Policy

File = Annotated[Path | None, typer.Option("--file", "-f", help="The bundle file.", metavar="FILE.yaml")]
BundleName = Annotated[
    str | None, typer.Option("--bundle", help="The policy of the cluster with this name.", metavar="NAME")
]

app = new_app()


@app.callback()
def policy() -> None:
    """Check a policy bundle, and what it decides."""


@app.command()
def validate(
    file: File = None,
    bundle: BundleName = None,
    cedar: Annotated[bool, typer.Option("--cedar", help="Print the rules as Cedar text as well.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check a bundle; exits with 1 and the place of every mistake when it is wrong."""
    found = _read(file, bundle)
    rules, actors = found.bundle, len(found.bundle.actors())
    text = f"policy valid: bundle '{rules.name}' [{actors} actors]"
    facts: dict[str, Any] = {
        "status": "valid",
        "bundle": rules.name,
        "kind": str(rules.kind),
        "actors": actors,
        "groups": {group: list(members) for group, members in rules.groups.items()},
        "protected_branches": sorted(rules.protected_branches),
        "rules": [rule.id for rule in rules.rules],
    }
    if cedar:
        text, facts = f"{text}\n\n{found.cedar}", {**facts, "cedar": found.cedar}
    print_result(facts, text, as_json=as_json)


@app.command(name="test")
def run_tests(
    tests: Annotated[
        Path, typer.Option("--tests", help="The cases, with the decisions they expect.", metavar="FILE.yaml")
    ],
    file: File = None,
    bundle: BundleName = None,
    as_json: AsJson = False,
) -> None:
    """Compare decisions of a bundle with expected ones; exits with 1 when one differs."""
    cases = read_cases(tests)
    wrong = find_mismatches(_read(file, bundle), cases)
    body = {
        "ok": not wrong,
        "cases": len(cases),
        "mismatches": [{"id": one.id, "expected": one.expected, "got": one.got} for one in wrong],
    }
    failed = [f"policy tests failed: {len(wrong)} of {len(cases)} cases", *(f"  {one}" for one in wrong)]
    text = "\n".join(failed) if wrong else f"policy tests passed: {len(cases)} cases"
    print_result(body, text, as_json=as_json)
    if wrong:
        raise typer.Exit(1)


@app.command()
def explain(
    actor: Annotated[str, typer.Option("--actor", help="The actor who asks.", metavar="ACTOR")],
    action: Annotated[
        str, typer.Option("--action", help="What it wants to do, such as change.", metavar="ACTION")
    ],
    branch: Annotated[
        str | None, typer.Option("--branch", help="The branch it is about.", metavar="BRANCH")
    ] = None,
    target_branch: Annotated[
        str | None,
        typer.Option("--target-branch", help="The branch it changes, makes or deletes.", metavar="BRANCH"),
    ] = None,
    file: File = None,
    bundle: BundleName = None,
    as_json: AsJson = False,
) -> None:
    """Show what a bundle decides about one question, and by which rule; exits with 0 either way."""
    decision = _read(file, bundle).allow(parse_action(action), branch, target_branch, actor).to_json()
    lines = (f"{name}: {'-' if value is None else value}" for name, value in decision.items())
    print_result(decision, "\n".join(lines), as_json=as_json)


def _read(file: Path | None, bundle: str | None) -> Policy:
    """Return the bundle of a file, or the one that a cluster applied."""
    invocation = current_invocation()
    if file is not None:
        others = {"--cluster": "--cluster" in invocation.flags, "--graph": "--graph" in invocation.flags}
        for flag, is_named in {**others, "--bundle": bundle is not None}.items():
            if is_named:
                raise BadRequest(f"--file and {flag} are mutually exclusive")
        return Policy.read(file)
    from omnigraph.cluster.applied_policy import choose_policy

    return choose_policy(require_cluster("a bundle with --file"), resolve_graph_id(), bundle)
