"""Expected decisions in a file, compared with those of a policy."""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.values import shorten_legibly
from omnigraph.policy.actions import Action
from omnigraph.policy.members import Node, parse_document, read_file
from omnigraph.policy.policy import Policy


class Outcome(StrEnum):
    """What a case expects."""

    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Case:
    """A question, and the decision that is expected."""

    id: str
    actor: str
    action: Action
    expect: Outcome
    branch: str | None = None
    target_branch: str | None = None


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A case that was decided otherwise."""

    id: str
    expected: Outcome
    got: Outcome

    def __str__(self) -> str:
        return f"{self.id}: expected {self.expected.title()} but got {self.got}"


def read_cases(path: str | os.PathLike[str]) -> tuple[Case, ...]:
    """Read a file of cases; raises `PolicyInvalid` with all mistakes, or `YamlInvalid`."""
    return parse_cases(read_file(Path(path)), str(path))


def parse_cases(text: str, name: str) -> tuple[Case, ...]:
    """Parse the text of a file of cases."""
    document = parse_document(text, name)
    top = document.members(("version", "cases"), required=("version", "cases"))
    if "version" in top:
        top["version"].require_version()
    ids: set[str] = set()
    nodes = [] if "cases" not in top else top["cases"].items()
    cases = tuple(case for case in (_case(node, ids) for node in nodes) if case is not None)
    document.mistakes.raise_if_any()
    return cases


def find_mismatches(policy: Policy, cases: Iterable[Case]) -> tuple[Mismatch, ...]:
    """Decide every case, and return those with another decision than expected."""
    decided = ((case, _outcome(policy, case)) for case in cases)
    return tuple(Mismatch(case.id, case.expect, got) for case, got in decided if got is not case.expect)


def _outcome(policy: Policy, case: Case) -> Outcome:
    decision = policy.allow(case.action, case.branch, case.target_branch, case.actor)
    return Outcome.ALLOW if decision.allowed else Outcome.DENY


def _case(node: Node, ids: set[str]) -> Case | None:
    known = ("id", "actor", "action", "branch", "target_branch", "expect")
    members = node.members(known, required=("id", "actor", "action", "expect"))
    texts = {name: member.text() for name, member in members.items() if name not in ("action", "expect")}
    if (case_id := texts.get("id")) in ids:
        members["id"].report(f"case id '{shorten_legibly(case_id or '')}' appears twice")
    ids.update([case_id] if case_id else [])
    action = members["action"].choice(Action) if "action" in members else None
    expect = members["expect"].choice(Outcome) if "expect" in members else None
    if action is None or expect is None or "id" not in texts or "actor" not in texts:
        return None
    return Case(action=action, expect=expect, **texts)
