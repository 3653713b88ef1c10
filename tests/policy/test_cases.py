"""Test files of policies."""

from __future__ import annotations

import pytest

from omnigraph.errors import PolicyInvalid
from omnigraph.policy.actions import Action
from omnigraph.policy.cases import Case, Outcome, find_mismatches, parse_cases
from omnigraph.policy.policy import Policy
from tests.policy.bundles import MEMBER, bundle, rule

CASES = """
version: 1
cases:
  - {id: draft, actor: act-ana, action: change, branch: draft, expect: allow}
  - {id: main, actor: act-ana, action: change, branch: main, expect: allow}
  - {id: merge, actor: act-ana, action: branch_merge, branch: draft, target_branch: main, expect: deny}
  - {id: read, actor: act-ana, action: read, expect: deny}
"""


def test_cases_are_read_as_they_are_written() -> None:
    cases = parse_cases(CASES, "cases.yaml")
    assert cases[2] == Case("merge", MEMBER, Action.BRANCH_MERGE, Outcome.DENY, "draft", "main")
    assert cases[3] == Case("read", MEMBER, Action.READ, Outcome.DENY)


def test_cases_that_are_decided_otherwise_are_listed() -> None:
    policy = Policy.parse(bundle(rule("change", scope="branch_scope: unprotected"), rule("read", id="s")))
    wrong = find_mismatches(policy, parse_cases(CASES, "cases.yaml"))
    assert list(map(str, wrong)) == [
        "main: expected Allow but got deny",
        "read: expected Deny but got allow",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cases: []", "f:1:1: the file needs `version`"),
        ("version: 1", "f:1:1: the file needs `cases`"),
        ("version: 1\ncases: []\nx: 1", "f:3:1: `x` is not known here"),
        ("version: 1\ncases: [{who: 1}]", "f:2:10: `cases[0].who` is not known here"),
        ("version: 1\ncases: [{id: ' '}]", "f:2:14: `cases[0].id` must not be blank"),
        ("version: 1\ncases:\n- {id: a}\n- {id: a}", "f:4:8: case id 'a' appears twice"),
        ("version: 1\ncases: [{id: a, expect: no}]", "f:2:25: `cases[0].expect` must be one of: allow, deny"),
        ("version: 1\ncases: [{id: a, action: chnage}]", "f:2:25: `cases[0].action` must be one of: read"),
    ],
)
def test_mistakes_in_a_test_file_have_their_places(text: str, expected: str) -> None:
    with pytest.raises(PolicyInvalid) as refused:
        parse_cases(text, "f")
    assert any(str(one).startswith(expected) for one in refused.value.violations or (refused.value,))
