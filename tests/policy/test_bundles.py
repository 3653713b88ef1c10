"""Bundle files: what they may hold, and where every mistake is."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import cedarpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import OmnigraphError, PolicyInvalid, YamlInvalid
from omnigraph.policy.actions import Action, Kind, Scope
from omnigraph.policy.bundle import Rule
from omnigraph.policy.cases import parse_cases
from omnigraph.policy.cedar import schema_text
from omnigraph.policy.policy import Policy
from omnigraph.policy.read_bundle import parse_bundle, read_bundle
from tests.policy.bundles import bundle, rule

WHOLE = """
version: 1
kind: graph
groups: {analysts: [act-a, " act-b "], admins: [act-a]}
protected_branches: [main, " release "]
rules:
  - id: analyst-writes
    allow:
      actors: {group: analysts}
      actions: [change, read, change]
      branch_scope: any
"""


def test_a_bundle_is_read_as_it_is_written() -> None:
    found = parse_bundle(WHOLE, "team.yaml")
    assert (found.name, found.kind) == ("team.yaml", Kind.GRAPH)
    assert found.groups == {"analysts": ("act-a", "act-b"), "admins": ("act-a",)}
    assert found.actors() == {"act-a", "act-b"}
    assert found.protected_branches == {"main", "release"}
    assert found.rules == (Rule("analyst-writes", "analysts", (Action.CHANGE, Action.READ), Scope.ANY),)


MISTAKES = {
    "unknown at the top": ("version: 1\nrulez: []", "2:1: `rulez` is not known here"),
    "unknown in a rule": (
        "version: 1\nrules:\n  - id: r\n    deny:\n      x: 1",
        "4:5: `rules[0].deny` is not",
    ),
    "unknown in allow": (
        bundle(rule("read", scope="scope: any")),
        "5:61: `rules[0].allow.scope` is not known",
    ),
    "unknown in actors": (
        bundle("{id: r, allow: {actors: {group: team, actor: x}, actions: [read]}}"),
        "5:43: `rules[0].allow.actors.actor` is not known here",
    ),
    "no object": ("[1]", "1:1: the file must be an object"),
    "empty": ("", "f.yaml: the file must be an object"),
    "no version": ("groups: {}", "1:1: the file needs `version`"),
    "another version": ("version: 2", "1:10: `version` must be 1"),
    "a text as version": ("version: '1'", "1:10: `version` must be 1"),
    "true as version": ("version: true", "1:10: `version` must be 1"),
    "another kind": ("version: 1\nkind: cluster", "2:7: `kind` must be one of: graph, server"),
    "blank group": ("version: 1\ngroups:\n  ' ': [a]", "3:3: the name of a group must not be blank"),
    "group twice": ("version: 1\ngroups:\n  a: [x]\n  ' a': [y]", "4:3: group 'a' appears twice"),
    "empty group": ("version: 1\ngroups:\n  a: []", "3:6: `groups.a` needs at least one member"),
    "blank member": ("version: 1\ngroups:\n  a: [x, '']", "3:10: `groups.a[1]` must not be blank"),
    "number as member": (
        "version: 1\ngroups: {a: [7]}",
        "2:14: `groups.a[0]` must be a text; put it in quotes",
    ),
    "unseen member": (
        'version: 1\ngroups: {a: ["x\\u200b"]}',
        "2:14: `groups.a[0]` has characters that do not",
    ),
    "blank branch": (
        "version: 1\nprotected_branches: [' ']",
        "2:22: `protected_branches[0]` must not be blank",
    ),
    "no list": ("version: 1\nrules: {}", "2:8: `rules` must be a list"),
    "blank id": (bundle(rule("read", id="''")), "5:10: `rules[0].id` must not be blank"),
    "id twice": (bundle(rule("read"), rule("change")), "6:10: rule id 'r' appears twice"),
    "no id": (bundle("{allow: {actors: {group: team}, actions: [read]}}"), "5:5: `rules[0]` needs `id`"),
    "no allow": (bundle("{id: r}"), "5:5: `rules[0]` needs `allow`"),
    "unknown group": (bundle(rule("read", group="teem")), "5:37: group 'teem' is not known"),
    "no actions": (bundle(rule("")), "5:53: `rules[0].allow.actions` needs at least one action"),
    "unknown action": (
        bundle(rule("read, write")),
        "5:60: `rules[0].allow.actions[1]` must be one of: read, ",
    ),
    "unknown scope": (
        bundle(rule("read", scope="branch_scope: all")),
        "5:75: `rules[0].allow.branch_scope` must be one of: any, protected, unprotected",
    ),
    "both scopes": (
        bundle(rule("read", scope="branch_scope: any, target_branch_scope: any")),
        "a rule has `branch_scope` or `target_branch_scope`, not both",
    ),
    "mixed kinds": (
        bundle(rule("read, graph_list")),
        "5:60: a rule allows server actions or graph actions, not",
    ),
    "mixed bundles": (
        bundle(rule("graph_list"), rule("read", id="s")),
        "6:54: 'read' is a graph action, but the bundle is for a server",
    ),
    "graph action of a server": (
        "kind: server\n" + bundle(rule("read")),
        "6:54: 'read' is a graph action, but the bundle is for a server",
    ),
    "server action of a graph": (
        "kind: graph\n" + bundle(rule("graph_list")),
        "6:54: 'graph_list' is a server action, but the bundle is for a graph",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_has_its_line_and_column(name: str) -> None:
    text, expected = MISTAKES[name]
    with pytest.raises(PolicyInvalid) as refused:
        parse_bundle(text, "f.yaml")
    messages = [one.message for one in refused.value.violations or (refused.value,)]
    assert any(expected in message for message in messages), messages
    assert all(message.startswith("f.yaml:") for message in messages)


@pytest.mark.parametrize("action", Action)
@pytest.mark.parametrize("member", ["branch_scope", "target_branch_scope"])
def test_a_scope_belongs_to_the_actions_that_are_about_it(action: Action, member: str) -> None:
    takes = {
        "branch_scope": {"read", "export", "change"},
        "target_branch_scope": {"schema_apply", "branch_create", "branch_delete", "branch_merge"},
    }
    text = bundle(rule(action, scope=f"{member}: protected"))
    if action in takes[member]:
        assert parse_bundle(text, "f.yaml").rules[0].actions == (action,)
        return
    with pytest.raises(PolicyInvalid, match=rf"f\.yaml:5:54: `{member}` does not apply to '{action}'"):
        parse_bundle(text, "f.yaml")


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file() -> None:
    text = "version: 3\ngroups: {a: []}\nrules: [{id: r}, {id: r}]\nx: 1\n"
    with pytest.raises(PolicyInvalid) as refused:
        parse_bundle(text, "f.yaml")
    places = [(one.line, one.column) for one in refused.value.violations]
    assert places == sorted(places)
    assert refused.value.total == len(places) == 6
    assert refused.value.data()["violations"][0]["data"]["line"] == 1


def test_what_a_bundle_is_used_for_must_agree_with_its_kind() -> None:
    cookbook = "version: 1\nkind: server\ngroups: {a: [x]}\n"
    assert parse_bundle(cookbook, "f", Kind.SERVER).kind is Kind.SERVER
    with pytest.raises(PolicyInvalid, match="f:2:7: `kind` is server, but the bundle is used for a graph"):
        parse_bundle(cookbook, "f", Kind.GRAPH)
    with pytest.raises(PolicyInvalid, match="'graph_list' is a server action, but the bundle is for a graph"):
        parse_bundle(bundle(rule("graph_list")), "f", Kind.GRAPH)
    assert parse_bundle(bundle(rule("graph_list")), "f").kind is Kind.SERVER
    assert parse_bundle(bundle(), "f").kind is Kind.GRAPH


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyInvalid, match=r"missing\.yaml: cannot be read: No such file"):
        read_bundle(tmp_path / "missing.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"version: 1\ngroups: {a: [\xe9]}")
    with pytest.raises(PolicyInvalid, match=r"latin\.yaml: is not UTF-8"):
        read_bundle(tmp_path / "latin.yaml")
    with pytest.raises(YamlInvalid, match=r"f:2:9: '\*x' is an alias"):
        parse_bundle("a: &x 1\ngroups: *x", "f")


def test_a_bundle_compiles_to_cedar_text_that_passes_strict_validation() -> None:
    policy = Policy.parse(bundle(rule("change, read", scope="branch_scope: unprotected")), graph="sales")
    assert policy.cedar == cedarpy.format_policies(policy.cedar)
    assert cedarpy.validate_policies(policy.cedar, schema_text()).validation_passed
    first = policy.cedar.partition(";\n")[0]
    assert first == (
        '@id("r:change")\n'
        "permit (\n"
        '  principal in Omnigraph::Group::"team",\n'
        '  action == Omnigraph::Action::"change",\n'
        '  resource == Omnigraph::Graph::"sales"\n'
        ")\n"
        "when { context.has_branch && context.branch_is_protected == false }"
    )


@pytest.mark.fuzz
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.sampled_from(["r", "team", "read", "any", " ", "'1'"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "version",
                        "kind",
                        "groups",
                        "rules",
                        "id",
                        "allow",
                        "actors",
                        "group",
                        "actions",
                        "branch_scope",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_any_structure_is_a_bundle_or_a_typed_error(value: object) -> None:
    text = repr(value).replace("True", "true").replace("False", "false").replace("None", "null")
    for parse in (parse_bundle, parse_cases):
        with suppress(OmnigraphError):
            parse(text, "f")
