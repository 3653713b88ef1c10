"""A policy bundle as a value: who is in which group, which branches are protected, and what rules allow."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.deferred_dataclass import dataclass
from omnigraph.policy.actions import Action, Kind, Scope


@dataclass(frozen=True, slots=True)
class Rule:
    """What one group may do, and on which branches."""

    id: str
    group: str
    actions: tuple[Action, ...]
    branch_scope: Scope | None = None
    target_branch_scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """The content of a bundle file. What no rule allows is denied."""

    name: str
    """The file, as the caller named it."""
    kind: Kind
    groups: Mapping[str, tuple[str, ...]]
    """The members of each group."""
    protected_branches: frozenset[str]
    rules: tuple[Rule, ...]

    def actors(self) -> frozenset[str]:
        """All members of groups."""
        return frozenset(actor for members in self.groups.values() for actor in members)
