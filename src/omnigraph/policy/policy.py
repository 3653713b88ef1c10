"""`Policy`: decides what an actor may do, by the rules of one bundle."""

from __future__ import annotations

import logging
import os
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import MissingExtra, PolicyFailed
from omnigraph.lang.values import escape_unprintable
from omnigraph.policy.actions import Action, parse_action, parse_kind
from omnigraph.policy.bundle import Bundle
from omnigraph.policy.cedar import entities_json, policy_text, resource, schema_text, uid
from omnigraph.policy.read_bundle import parse_bundle, read_bundle

DEFAULT_GRAPH = "default"
"""The id of a graph that is served, or opened, alone."""
_KEPT_DECISIONS = 4096

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PolicyDecision:
    """Whether an actor may do something, and by which rule."""

    allowed: bool
    action: str
    branch: str | None
    target: str | None
    actor: str | None
    matched_rule_id: str | None
    """The rule that allows it; of several, the one with the smallest id."""
    message: str
    """The decision in one sentence."""

    def to_json(self) -> dict[str, Any]:
        """The decision as a script reads it."""
        return {
            "decision": "allow" if self.allowed else "deny",
            "actor": self.actor,
            "action": self.action,
            "branch": self.branch,
            "target_branch": self.target,
            "matched_rule": self.matched_rule_id,
            "message": self.message,
        }


@dataclass(frozen=True, slots=True)
class _Question:
    """All that rules can look at: they know whether a branch is protected, not what it is called."""

    actor: str
    action: Action
    branch_is_protected: bool | None
    """None without a branch."""
    target_is_protected: bool | None

    def context(self) -> dict[str, object]:
        # Names of branches are left empty: no condition reads them, and so decisions can be kept.
        return {
            "has_branch": self.branch_is_protected is not None,
            "branch": "",
            "has_target_branch": self.target_is_protected is not None,
            "target_branch": "",
            "branch_is_protected": bool(self.branch_is_protected),
            "target_branch_is_protected": bool(self.target_is_protected),
        }


class Policy:
    """The rules of one bundle for one graph, or for the server. Never changes; threads may share it."""

    def __init__(self, bundle: Bundle, *, graph: str = DEFAULT_GRAPH) -> None:
        if find_spec("cedarpy") is None:
            raise MissingExtra("a policy", package="cedarpy", extra="policy")
        self.bundle = bundle
        self.graph = graph
        """The id of the graph, in Cedar's terms the resource."""
        self.cedar = policy_text(bundle, graph)
        """The rules as Cedar text."""
        self._members = bundle.actors()
        self._engine = _Engine(bundle, self.cedar, graph)
        self._matched_rule = lru_cache(_KEPT_DECISIONS)(self._engine.matched_rule)

    @classmethod
    def read(
        cls, path: str | os.PathLike[str], *, kind: str | None = None, graph: str = DEFAULT_GRAPH
    ) -> Policy:
        """Read a bundle file. `kind` is what it is used for, `graph` or `server`, where that is known."""
        return cls(read_bundle(path, parse_kind(kind)), graph=graph)

    @classmethod
    def parse(
        cls, text: str, *, name: str = "<text>", kind: str | None = None, graph: str = DEFAULT_GRAPH
    ) -> Policy:
        """Take the text of a bundle; `name` is what mistakes in it are reported with."""
        return cls(parse_bundle(text, name, parse_kind(kind)), graph=graph)

    def allow(
        self,
        action: str,
        branch: str | None = None,
        target: str | None = None,
        actor: str | None = None,
    ) -> PolicyDecision:
        """Decide about an action such as `change` or `branch_merge`.

        What no rule allows is denied, and so is everything to an unknown actor, or to none.
        """
        known = parse_action(action)
        branch, target = _trimmed(branch), _trimmed(target)
        rule = None
        if actor is not None and actor in self._members:
            places = (self._is_protected(branch), self._is_protected(target))
            rule = self._matched_rule(_Question(actor, known, *places))
        message = self._message(rule, known, branch, target, actor)
        decision = PolicyDecision(rule is not None, known.value, branch, target, actor, rule, message)
        _log_decision(decision)
        return decision

    def _is_protected(self, branch: str | None) -> bool | None:
        return None if branch is None else branch in self.bundle.protected_branches

    def _message(
        self, rule: str | None, action: Action, branch: str | None, target: str | None, actor: str | None
    ) -> str:
        place = "" if branch is None else f" on branch '{branch}'"
        goal = "" if target is None else f" targeting branch '{target}'"
        if rule is not None:
            text = f"policy allowed action '{action}'{place}{goal} for actor '{actor}' by rule '{rule}'"
        elif actor is None:
            text = f"policy denied action '{action}'{place}{goal} without an actor"
        elif actor not in self._members:
            text = f"policy denied action '{action}' for unknown actor '{actor}'"
        else:
            text = f"policy denied action '{action}'{place}{goal} for actor '{actor}'"
        return escape_unprintable(text)

    def __repr__(self) -> str:
        return f"<Policy '{self.bundle.name}' for {self.bundle.kind} '{self.graph}'>"


class _Engine:
    """Cedar with the rules of one bundle, parsed and validated once."""

    def __init__(self, bundle: Bundle, text: str, graph: str) -> None:
        import cedarpy

        self._cedar = cedarpy
        self._graph = graph
        try:
            self._schema = cedarpy.Schema.from_str(schema_text())
            self._policies = cedarpy.PolicySet.from_str(text)
            self._entities = cedarpy.Entities.from_json_str(entities_json(bundle), self._schema)
        except ValueError as failure:
            raise PolicyFailed(f"Cedar does not take the bundle '{bundle.name}': {failure}") from failure
        checked = cedarpy.validate_policies(text, self._schema)
        if not checked.validation_passed:
            reasons = "; ".join(map(str, checked.errors))
            raise PolicyFailed(f"Cedar does not accept the bundle '{bundle.name}': {reasons}")

    def matched_rule(self, question: _Question) -> str | None:
        """The id of the rule that allows it, or None."""
        request = {
            "principal": uid("Actor", question.actor),
            "action": uid("Action", question.action),
            "resource": resource(question.action.kind, self._graph),
            "context": question.context(),
        }
        answer = self._cedar.is_authorized(request, self._policies, self._entities, self._schema)
        found = answer.diagnostics
        # A rule that fails is passed over by Cedar, which would deny what another reading might allow.
        if found.errors or answer.decision is self._cedar.Decision.NoDecision:
            reasons = "; ".join(found.errors) or "no decision"
            raise PolicyFailed(f"Cedar could not decide about action '{question.action}': {reasons}")
        if not answer.allowed:
            return None
        names: dict[str, str] = found.id_annotations_by_reason
        return min(names[reason].rpartition(":")[0] for reason in found.reasons)


def _trimmed(branch: str | None) -> str | None:
    """A branch as the engine will name it, so that spaces around it do not evade its protection."""
    return None if branch is None else branch.strip()


def _log_decision(decision: PolicyDecision) -> None:
    if _log.isEnabledFor(logging.INFO):
        facts = {
            "actor": decision.actor,
            "action": decision.action,
            "branch": decision.branch,
            "target": decision.target,
            "allowed": decision.allowed,
            "rule": decision.matched_rule_id,
        }
        _log.info(decision.message, extra={"facts": facts})
