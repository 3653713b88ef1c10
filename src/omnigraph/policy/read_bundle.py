"""A bundle file into a `Bundle`: unknown members are rejected, and every mistake has its line and column."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from omnigraph.lang.values import shorten_legibly
from omnigraph.policy.actions import BRANCH_ACTIONS, TARGET_ACTIONS, Action, Kind, Scope
from omnigraph.policy.bundle import Bundle, Rule
from omnigraph.policy.members import Node, list_choices, parse_document, read_file

_ALLOW = ("actors", "actions", "branch_scope", "target_branch_scope")

PlacedAction = tuple[Action, Node]
"""An action and where it is written."""


def read_bundle(path: str | os.PathLike[str], kind: Kind | None = None) -> Bundle:
    """Read a bundle file; `kind` is what the bundle is used for, where the caller knows it."""
    return parse_bundle(read_file(Path(path)), str(path), kind)


def parse_bundle(text: str, name: str, kind: Kind | None = None) -> Bundle:
    """Parse the text of a bundle; raises `PolicyInvalid` with all mistakes, or `YamlInvalid`."""
    top = parse_document(text, name)
    bundle = _BundleReader(top, kind).read()
    top.mistakes.raise_if_any()
    return bundle


class _BundleReader:
    """Reads one file. After a mistake it continues, so what it returns counts only if there was none."""

    def __init__(self, top: Node, used_for: Kind | None) -> None:
        self._top = top
        self._used_for = used_for
        self._groups: dict[str, tuple[str, ...]] = {}
        self._rule_ids: set[str] = set()
        self._actions: list[PlacedAction] = []

    def read(self) -> Bundle:
        known = ("version", "kind", "groups", "protected_branches", "rules")
        top = self._top.members(known, required=("version",))
        if "version" in top:
            top["version"].require_version()
        declared = self._declared_kind(top.get("kind"))
        self._groups = self._read_groups(top.get("groups"))
        protected = frozenset(branch.text() for branch in _items(top.get("protected_branches")))
        rules = tuple(rule for rule in map(self._rule, _items(top.get("rules"))) if rule is not None)
        return Bundle(self._top.mistakes.file, self._kind(declared), self._groups, protected, rules)

    # --- kind ------------------------------------------------------------------------------------

    def _declared_kind(self, node: Node | None) -> Kind | None:
        declared = None if node is None else node.choice(Kind)
        if node is not None and declared is not None and self._used_for not in (None, declared):
            node.report(f"`kind` is {declared}, but the bundle is used for a {self._used_for}")
            return self._used_for
        return self._used_for or declared

    def _kind(self, declared: Kind | None) -> Kind:
        """The kind that every action must have: the declared one, else that of the actions."""
        serves = any(action.kind is Kind.SERVER for action, _ in self._actions)
        kind = declared or (Kind.SERVER if serves else Kind.GRAPH)
        for action, node in self._actions:
            if action.kind is not kind:
                node.report(f"'{action}' is a {action.kind} action, but the bundle is for a {kind}")
        return kind

    # --- groups ----------------------------------------------------------------------------------

    def _read_groups(self, node: Node | None) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        if node is None or node.value.value is None:
            return found
        for name, members in (node.object() or {}).items():
            group = name.strip()
            if not group:
                members.report_name("the name of a group must not be blank")
            elif not group.isprintable():
                members.report_name("the name of a group has characters that do not print")
            elif group in found:
                members.report_name(f"group '{shorten_legibly(group)}' appears twice")
            found[group] = self._members(members)
        return found

    def _members(self, node: Node) -> tuple[str, ...]:
        before = len(node.mistakes.found)
        members = tuple(dict.fromkeys(item.text() for item in node.items()))
        if not members and len(node.mistakes.found) == before:
            node.report(f"`{node.path}` needs at least one member")
        return members

    # --- rules -----------------------------------------------------------------------------------

    def _rule(self, node: Node) -> Rule | None:
        members = node.members(("id", "allow"), required=("id", "allow"))
        rule_id = "" if "id" not in members else self._rule_id(members["id"])
        if "allow" not in members:
            return None
        allow = members["allow"].members(_ALLOW, required=("actors", "actions"))
        group = "" if "actors" not in allow else self._group(allow["actors"])
        actions = [] if "actions" not in allow else self._read_actions(allow["actions"])
        branch = self._scope(allow.get("branch_scope"), actions, BRANCH_ACTIONS)
        target = self._scope(allow.get("target_branch_scope"), actions, TARGET_ACTIONS)
        if branch is not None and target is not None:
            allow["target_branch_scope"].report_name(
                "a rule has `branch_scope` or `target_branch_scope`, not both", "write two rules"
            )
        names = tuple(dict.fromkeys(action for action, _ in actions))
        return Rule(rule_id, group, names, branch, target)

    def _rule_id(self, node: Node) -> str:
        rule_id = node.text()
        if rule_id in self._rule_ids:
            node.report(f"rule id '{shorten_legibly(rule_id)}' appears twice")
        if rule_id:
            self._rule_ids.add(rule_id)
        return rule_id

    def _group(self, node: Node) -> str:
        named = node.members(("group",), required=("group",)).get("group")
        group = "" if named is None else named.text()
        if named is not None and group and group not in self._groups:
            named.report(f"group '{shorten_legibly(group)}' is not known", list_choices(self._groups))
        return group

    def _read_actions(self, node: Node) -> list[PlacedAction]:
        items = node.items()
        if node.value.value == []:
            node.report(f"`{node.path}` needs at least one action")
        actions = [(action, item) for item in items if (action := item.choice(Action)) is not None]
        mixed = [item for action, item in actions if action.kind is not actions[0][0].kind]
        if mixed:
            mixed[0].report("a rule allows server actions or graph actions, not both", "write two bundles")
        else:
            self._actions += actions
        return actions

    def _scope(
        self, node: Node | None, actions: Iterable[PlacedAction], scoped: frozenset[Action]
    ) -> Scope | None:
        """The scope of a rule, which every action of the rule must take."""
        if node is None:
            return None
        name = node.path.rpartition(".")[2]
        for action, item in actions:
            if action not in scoped:
                item.report(f"`{name}` does not apply to '{action}'", f"it applies to: {_listed(scoped)}")
        return node.choice(Scope)


def _items(node: Node | None) -> list[Node]:
    """The items of a list that may be missing, or have all its lines commented out."""
    return [] if node is None or node.value.value is None else node.items()


def _listed(actions: frozenset[Action]) -> str:
    return ", ".join(action for action in Action if action in actions)
