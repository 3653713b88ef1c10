"""`omnigraph policy`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omnigraph.cli.main import main

Run = Callable[..., str]
RunJson = Callable[..., Any]

BUNDLE = """\
version: 1
groups: {team: [act-ana, act-ben], stewards: [act-eve]}
protected_branches: [main]
rules:
  - id: drafts
    allow: {actors: {group: team}, actions: [read, change], branch_scope: unprotected}
  - id: merges
    allow: {actors: {group: stewards}, actions: [branch_merge, schema_apply]}
"""
CASES = """\
version: 1
cases:
  - {id: draft, actor: act-ana, action: change, branch: draft, expect: allow}
  - {id: main, actor: act-ana, action: change, branch: main, expect: deny}
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle and its cases in the working folder."""
    monkeypatch.chdir(tmp_path)
    Path("team.yaml").write_text(BUNDLE, encoding="utf-8")
    Path("cases.yaml").write_text(CASES, encoding="utf-8")


def test_a_valid_bundle_is_named_with_the_number_of_its_actors(run: Run, run_json: RunJson) -> None:
    assert run("policy", "validate", "--file", "team.yaml") == "policy valid: bundle 'team.yaml' [3 actors]\n"
    assert run_json("policy", "validate", "--file", "team.yaml") == {
        "status": "valid",
        "bundle": "team.yaml",
        "kind": "graph",
        "actors": 3,
        "groups": {"team": ["act-ana", "act-ben"], "stewards": ["act-eve"]},
        "protected_branches": ["main"],
        "rules": ["drafts", "merges"],
    }


def test_the_rules_are_printed_as_cedar_text(run: Run, run_json: RunJson) -> None:
    text = run("policy", "validate", "--file", "team.yaml", "--cedar")
    assert text.startswith("policy valid: bundle 'team.yaml' [3 actors]\n\n@id(\"drafts:read\")\npermit (\n")
    shown = run_json("policy", "validate", "--file", "team.yaml", "--cedar")["cedar"]
    assert text.endswith(shown)


def test_every_mistake_is_printed_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = BUNDLE.replace("group: team", "group: teem").replace("schema_apply", "schema_aply")
    Path("team.yaml").write_text(wrong, encoding="utf-8")
    assert main(["policy", "validate", "--file", "team.yaml"]) == 1
    head, *found = capsys.readouterr().err.splitlines()
    assert head == "error[policy_invalid]: 2 violations"
    assert found[0] == "  team.yaml:6:29: group 'teem' is not known"
    assert found[1].startswith("  team.yaml:8:64: `rules[1].allow.actions[1]` must be one of: read, export")


def test_cases_that_hold_are_counted(run: Run, run_json: RunJson) -> None:
    asked = ("policy", "test", "--file", "team.yaml", "--tests", "cases.yaml")
    assert run(*asked) == "policy tests passed: 2 cases\n"
    assert run_json(*asked) == {"ok": True, "cases": 2, "mismatches": []}


def test_a_case_that_fails_is_listed_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    Path("cases.yaml").write_text(CASES.replace("expect: deny", "expect: allow"), encoding="utf-8")
    assert main(["policy", "test", "--file", "team.yaml", "--tests", "cases.yaml"]) == 1
    assert (
        capsys.readouterr().out == "policy tests failed: 1 of 2 cases\n  main: expected Allow but got deny\n"
    )


@pytest.mark.parametrize("action", ["branch_merge", "branch-merge"])
def test_an_allowed_question_is_explained_by_its_rule(action: str, run: Run) -> None:
    asked = ("policy", "explain", "--file", "team.yaml", "--actor", "act-eve", "--action", action)
    place = "on branch 'draft' targeting branch 'main'"
    assert run(*asked, "--branch", "draft", "--target-branch", "main").splitlines() == [
        "decision: allow",
        "actor: act-eve",
        "action: branch_merge",
        "branch: draft",
        "target_branch: main",
        "matched_rule: merges",
        f"message: policy allowed action 'branch_merge' {place} for actor 'act-eve' by rule 'merges'",
    ]


def test_a_denied_question_exits_with_0(run_json: RunJson) -> None:
    asked = ("policy", "explain", "--file", "team.yaml", "--actor", "act-zed", "--action", "read")
    assert run_json(*asked) == {
        "decision": "deny",
        "actor": "act-zed",
        "action": "read",
        "branch": None,
        "target_branch": None,
        "matched_rule": None,
        "message": "policy denied action 'read' for unknown actor 'act-zed'",
    }
