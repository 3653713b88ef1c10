"""A bundle as Cedar text: a `permit` for each action of each rule, the schema, and members of groups."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from omnigraph.policy.actions import Action, Kind, Scope
from omnigraph.policy.bundle import Bundle, Rule

NAMESPACE = "Omnigraph"
SERVER_ID = "root"
_CONDITIONS = {
    Scope.ANY: "true",
    Scope.PROTECTED: "context.has_{0} && context.{0}_is_protected",
    Scope.UNPROTECTED: "context.has_{0} && context.{0}_is_protected == false",
}


def schema_text() -> str:
    """The Cedar schema that all bundles are validated against."""
    actions = {kind: [action for action in Action if action.kind is kind] for kind in Kind}
    return f"""namespace {NAMESPACE} {{
  type Place = {{
    has_branch: Bool,
    branch: String,
    has_target_branch: Bool,
    target_branch: String,
    branch_is_protected: Bool,
    target_branch_is_protected: Bool,
  }};
  entity Group;
  entity Actor in [Group];
  entity Graph;
  entity Server;
  action {_quoted(actions[Kind.GRAPH])}
    appliesTo {{ principal: [Actor], resource: [Graph], context: Place }};
  action {_quoted(actions[Kind.SERVER])}
    appliesTo {{ principal: [Actor], resource: [Server], context: Place }};
}}
"""


def policy_text(bundle: Bundle, graph: str) -> str:
    """The rules of a bundle; each permit carries its rule and action as `@id("rule:action")`."""
    return "\n".join(_permit(rule, action, graph) for rule in bundle.rules for action in rule.actions)


def entities_json(bundle: Bundle) -> str:
    """The actors and their groups, as Cedar reads entities."""
    groups: dict[str, list[dict[str, str]]] = {actor: [] for actor in sorted(bundle.actors())}
    for group, members in bundle.groups.items():
        for actor in members:
            groups[actor].append(uid("Group", group))
    return json.dumps([*_entities(bundle), *(_entity("Actor", *one) for one in groups.items())])


def resource(kind: Kind, graph: str) -> dict[str, str]:
    """What a request is about: this graph, or the server."""
    return uid("Server", SERVER_ID) if kind is Kind.SERVER else uid("Graph", graph)


def uid(type_name: str, id: str) -> dict[str, str]:
    """The name of an entity, as a request has it: any text, without the rules of Cedar's own syntax."""
    return {"type": f"{NAMESPACE}::{type_name}", "id": id}


def _permit(rule: Rule, action: Action, graph: str) -> str:
    about = resource(action.kind, graph)
    return f"""@id({_literal(f"{rule.id}:{action}")})
permit (
  principal in {NAMESPACE}::Group::{_literal(rule.group)},
  action == {NAMESPACE}::Action::{_literal(action)},
  resource == {about["type"]}::{_literal(about["id"])}
){_condition(rule)};
"""


def _condition(rule: Rule) -> str:
    for scope, member in ((rule.branch_scope, "branch"), (rule.target_branch_scope, "target_branch")):
        if scope is not None:
            return f"\nwhen {{ {_CONDITIONS[scope].format(member)} }}"
    return ""


def _entities(bundle: Bundle) -> Iterator[dict[str, Any]]:
    return (_entity("Group", group, []) for group in bundle.groups)


def _entity(type_name: str, id: str, parents: list[dict[str, str]]) -> dict[str, Any]:
    return {"uid": uid(type_name, id), "attrs": {}, "parents": parents}


def _quoted(actions: Iterable[Action]) -> str:
    return ", ".join(map(_literal, actions))


def _literal(text: str) -> str:
    """A text as Cedar writes it; whatever is in a name, it cannot end the literal."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"
