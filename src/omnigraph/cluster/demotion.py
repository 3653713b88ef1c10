"""Block what depends on an operation that failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from omnigraph.cluster.addresses import graph_of
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.plan import Change, Disposition
from omnigraph.cluster.planner import NOT_APPLIED

_MOVING = (Disposition.APPLIED, Disposition.DERIVED)


def demote(changes: tuple[Change, ...], failed: Mapping[str, str], desired: Desired) -> tuple[Change, ...]:
    """Return the changes with failed ones, and everything around their graphs, blocked.

    `failed` has the resource of each operation that did not take place, with the reason.
    """
    graphs = {graph_of(resource) for resource in failed}
    return tuple(_demote(change, failed, graphs, desired) for change in changes)


def _demote(change: Change, failed: Mapping[str, str], graphs: set[str | None], desired: Desired) -> Change:
    if change.disposition not in _MOVING:
        return change
    if change.resource in failed:
        return replace(change, disposition=Disposition.BLOCKED, reason=failed[change.resource])
    if _scope(change, desired) & graphs:
        return replace(change, disposition=Disposition.BLOCKED, reason=NOT_APPLIED)
    return change


def _scope(change: Change, desired: Desired) -> set[str | None]:
    """Return the graphs that a change is about; a policy is about those that it is bound to."""
    own = graph_of(change.resource)
    if own is not None:
        return {own}
    wanted = desired.resources.get(change.resource)
    bound = () if wanted is None else wanted.entry.applies_to or ()
    return {found for binding in bound if (found := graph_of(binding)) is not None}
