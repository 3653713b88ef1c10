"""Block what depends on an operation that failed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from omnigraph.cluster.addresses import graph_of
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.entries import Entries, find_users
from omnigraph.cluster.plan import Change, Disposition
from omnigraph.cluster.planner import NOT_APPLIED

_MOVING = (Disposition.APPLIED, Disposition.DERIVED)


def demote(
    changes: tuple[Change, ...], failed: Mapping[str, str], desired: Desired, recorded: Entries
) -> tuple[Change, ...]:
    """Return the changes with failed ones, and everything around their graphs, blocked.

    `failed` has the resource of each operation that did not take place, with the reason.
    """
    graphs = {graph_of(resource) for resource in failed}

    def around(change: Change) -> frozenset[str]:
        used = find_users(change.resource, recorded) if graphs else set()
        return desired.graphs_of(change.resource) | used

    return tuple(_demote(change, failed, graphs, around) for change in changes)


def _demote(
    change: Change,
    failed: Mapping[str, str],
    graphs: set[str | None],
    around: Callable[[Change], frozenset[str]],
) -> Change:
    if change.disposition not in _MOVING:
        return change
    if change.resource in failed:
        return replace(change, disposition=Disposition.BLOCKED, reason=failed[change.resource])
    if around(change) & graphs:
        return replace(change, disposition=Disposition.BLOCKED, reason=NOT_APPLIED)
    return change
