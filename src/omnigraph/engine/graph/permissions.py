"""Who uses an open graph, and what its policy lets them write.

Every writer asks at its head, so that no front can forget to. Reads and exports are the business of fronts.
Recovery and the upkeep after a write ask nothing: they finish what was allowed before.
"""

from __future__ import annotations

from typing import Protocol

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.lineage import require_actor
from omnigraph.errors import PolicyDenied, Unauthorized


class Decision(Protocol):
    """The answer of a policy."""

    @property
    def allowed(self) -> bool:
        """Whether the actor may."""

    @property
    def message(self) -> str:
        """The decision in one sentence."""


class Policy(Protocol):
    """Decides what an actor may do."""

    def allow(self, action: str, branch: str | None, target: str | None, actor: str | None) -> Decision:
        """Return the decision; raises when there can be none."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """The policy of an open graph, and the actor of writes that name none."""

    policy: Policy | None = None
    """None allows everything."""
    actor: str | None = None

    def actor_of(self, actor: str | None) -> str | None:
        """Return the actor of a write: the one it names, else that of the graph."""
        return self.actor if actor is None else actor

    def require(
        self, action: str, *, branch: str | None = None, target: str | None = None, actor: str | None = None
    ) -> None:
        """Raise `PolicyDenied` unless the policy allows it, and `Unauthorized` without an actor."""
        if actor is not None:
            require_actor(actor)
        if self.policy is None:
            return
        known = self.actor_of(actor)
        if known is None:
            raise Unauthorized(
                f"the graph has a policy, and action '{action}' names no actor",
                remedy="pass `actor` to the call, or to `open`",
            )
        decision = self.policy.allow(action, branch, target, known)
        if not decision.allowed:
            raise PolicyDenied(
                decision.message, actor=known, action=action, branch=branch, target_branch=target
            )

    def require_admin(self, actor: str | None, *, dry_run: bool = False) -> None:
        """Raise `PolicyDenied` unless maintenance is allowed; without an actor it is the operator's."""
        if actor is not None:
            require_actor(actor)
        if not dry_run and self.actor_of(actor) is not None:
            self.require("admin", actor=actor)
