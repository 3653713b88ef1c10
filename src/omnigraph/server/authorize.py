"""Whether an actor may do this here: policy where there is one, and what holds without."""

from __future__ import annotations

from enum import StrEnum

from omnigraph.errors import PolicyDenied, Unauthorized
from omnigraph.policy.actions import Action
from omnigraph.policy.policy import Policy


class RuntimeState(StrEnum):
    """How a server decides, from the tokens and policies it was started with."""

    OPEN = "open"
    """No authentication; everything about a graph is allowed."""
    DEFAULT_DENY = "default-deny"
    """Tokens and no policy: only reads are allowed."""
    POLICY = "policy"
    """Tokens and a policy, which decides."""


def authorize(
    policy: Policy | None, action: Action, actor: str | None, branch: str | None, target: str | None
) -> None:
    """Let the request pass, or raise `PolicyDenied`; `policy` is that of the scope of the action."""
    if policy is None:
        _without_policy(action, actor, branch, target)
        return
    if actor is None:
        raise Unauthorized("missing bearer token")
    decision = policy.allow(action, branch, target, actor)
    if not decision.allowed:
        raise PolicyDenied(decision.message, actor=actor, action=action.value)


def _without_policy(action: Action, actor: str | None, branch: str | None, target: str | None) -> None:
    if action is not Action.GRAPH_LIST and (actor is None or action is Action.READ):
        return
    raise PolicyDenied(denial(action, actor, branch, target), actor=actor, action=action.value)


def denial(action: Action, actor: str | None, branch: str | None, target: str | None) -> str:
    """Return the sentence of a denial."""
    where = f" on branch '{branch}'" if branch is not None else ""
    towards = f" targeting branch '{target}'" if target is not None else ""
    who = f" for actor '{actor}'" if actor is not None else ""
    return f"policy denied action '{action.value}'{where}{towards}{who}"
