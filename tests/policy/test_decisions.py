"""Who may do what where: every action, with every scope, for members and others."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from omnigraph.errors import InvalidValue, PolicyFailed
from omnigraph.policy.actions import BRANCH_ACTIONS, TARGET_ACTIONS, Action, Kind, Scope
from omnigraph.policy.bundle import Bundle, Rule
from omnigraph.policy.policy import Policy
from tests.policy.bundles import MEMBER, OTHER, PROTECTED, STRANGER, UNPROTECTED, bundle, rule

PLACES = (None, PROTECTED, UNPROTECTED)
GRID = [
    (action, member, scope)
    for action in Action
    for member in ("branch_scope" if action in BRANCH_ACTIONS else "target_branch_scope",)
    for scope in ((None, *Scope) if action in BRANCH_ACTIONS | TARGET_ACTIONS else (None,))
]


@pytest.mark.parametrize(("action", "member", "scope"), GRID)
def test_the_grid(action: Action, member: str, scope: Scope | None) -> None:
    policy = Policy.parse(bundle(rule(action, scope="" if scope is None else f"{member}: {scope}")))
    for actor, branch, target in product((MEMBER, OTHER, STRANGER, None), PLACES, PLACES):
        place = branch if member == "branch_scope" else target
        fits = {None: True, "any": True, "protected": place == PROTECTED, "unprotected": place == UNPROTECTED}
        expected = actor == MEMBER and fits[scope]
        decision = policy.allow(action, branch, target, actor)
        assert decision.allowed is expected, decision
        assert decision.matched_rule_id == ("r" if expected else None)
    # A rule allows nothing but what it names.
    assert [one for one in Action if policy.allow(one, PROTECTED, PROTECTED, MEMBER).allowed] in (
        [],
        [action],
    )


def test_the_grid_covers_every_action_with_every_scope_it_takes() -> None:
    assert {action for action, _, _ in GRID} == set(Action)
    assert len(GRID) == 4 * len(BRANCH_ACTIONS | TARGET_ACTIONS) + 3


@pytest.mark.parametrize(
    ("actor", "branch", "target", "message"),
    [
        (OTHER, None, None, "policy denied action 'branch_merge' for actor 'act-bob'"),
        (OTHER, "a", None, "policy denied action 'branch_merge' on branch 'a' for actor 'act-bob'"),
        (
            *(OTHER, "a", "b"),
            "policy denied action 'branch_merge' on branch 'a' targeting branch 'b' for actor 'act-bob'",
        ),
        (STRANGER, "a", "b", "policy denied action 'branch_merge' for unknown actor 'act-zed'"),
        (
            *(None, "a", "b"),
            "policy denied action 'branch_merge' on branch 'a' targeting branch 'b' without an actor",
        ),
    ],
)
def test_a_denial_names_the_action_the_branches_and_the_actor(
    actor: str | None, branch: str | None, target: str | None, message: str
) -> None:
    policy = Policy.parse(bundle(rule("branch_merge")))
    decision = policy.allow("branch_merge", branch, target, actor)
    assert (decision.allowed, decision.message) == (False, message)


def test_of_several_rules_the_smallest_id_is_reported() -> None:
    rules = [rule("read", id=name) for name in ("r9", "r10", '"a:b"', "z")]
    decision = Policy.parse(bundle(*rules)).allow("read", "x", None, MEMBER)
    assert decision.matched_rule_id == "a:b"
    assert decision.message == "policy allowed action 'read' on branch 'x' for actor 'act-ana' by rule 'a:b'"


@pytest.mark.parametrize("padded", [" main", "main ", "\tmain\n", "\N{NO-BREAK SPACE}main"])
def test_spaces_around_a_branch_do_not_evade_its_protection(padded: str) -> None:
    policy = Policy.parse(bundle(rule("change", scope="branch_scope: unprotected")))
    assert policy.allow("change", UNPROTECTED, None, MEMBER).allowed
    assert not policy.allow("change", padded, None, MEMBER).allowed


def test_a_member_of_two_groups_has_the_rights_of_both() -> None:
    text = "version: 1\ngroups: {a: [x], b: [x, y]}\nrules:\n" + "".join(
        f"  - {rule(action, id=group, group=group)}\n" for group, action in (("a", "read"), ("b", "change"))
    )
    policy = Policy.parse(text)
    assert [policy.allow(one, None, None, "x").allowed for one in ("read", "change")] == [True, True]
    assert [policy.allow(one, None, None, "y").allowed for one in ("read", "change")] == [False, True]


def test_a_bundle_without_rules_allows_nothing() -> None:
    policy = Policy.parse("version: 1\ngroups: {a: [x]}\n")
    assert not any(policy.allow(action, "main", "main", "x").allowed for action in Action)


@pytest.mark.parametrize(
    "name", ['a"b', "a\\b", '"); permit (principal, action, resource); //', "\N{GRINNING FACE}", "é", "${x}"]
)
def test_no_name_can_change_the_rules_it_is_written_into(name: str) -> None:
    made = Bundle("f", Kind.GRAPH, {name: (name,)}, frozenset(), (Rule(name, name, (Action.READ,)),))
    policy = Policy(made, graph=name)
    assert policy.allow("read", None, None, name).matched_rule_id == name
    assert not policy.allow("change", None, None, name).allowed
    assert not policy.allow("read", None, None, "x").allowed


def test_an_unknown_action_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidValue, match="'chnage' is not an action") as refused:
        Policy.parse(bundle()).allow("chnage")
    assert refused.value.remedy == f"it may be: {', '.join(Action)}"


def test_a_kind_is_graph_or_server() -> None:
    with pytest.raises(InvalidValue, match="'cluster' is not a kind of policy"):
        Policy.parse(bundle(), kind="cluster")


def test_what_cedar_cannot_decide_is_a_failure_and_not_a_denial() -> None:
    # A lone surrogate is no Unicode; files cannot have one.
    made = Bundle("f", Kind.GRAPH, {"g": ("x", "\ud800")}, frozenset(), (Rule("r", "g", (Action.READ,)),))
    with pytest.raises(PolicyFailed):
        Policy(made).allow("read", None, None, "\ud800")


def test_each_decision_is_logged_with_its_facts(caplog: pytest.LogCaptureFixture) -> None:
    policy = Policy.parse(bundle(rule("change")))
    with caplog.at_level(logging.INFO, "omnigraph.policy"):
        policy.allow("change", "main", None, MEMBER)
        policy.allow("change", "main", None, MEMBER)
    facts = {"actor": MEMBER, "action": "change", "branch": "main", "target": None}
    assert [vars(record)["facts"] for record in caplog.records] == 2 * [
        {**facts, "allowed": True, "rule": "r"}
    ]


def test_threads_share_a_policy() -> None:
    policy = Policy.parse(bundle(rule("change", scope="branch_scope: unprotected")))
    asked = [(actor, branch) for actor in (MEMBER, OTHER) for branch in (PROTECTED, UNPROTECTED)] * 50
    with ThreadPoolExecutor(4) as pool:
        decided = list(pool.map(lambda one: policy.allow("change", one[1], None, one[0]).allowed, asked))
    assert decided == [one == (MEMBER, UNPROTECTED) for one in asked]
