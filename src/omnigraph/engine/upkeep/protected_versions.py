"""Versions of a table that must stay, whatever a cleanup is allowed to remove."""

from __future__ import annotations

from omnigraph.engine.graph.root import Root
from omnigraph.storage.location import Location
from omnigraph.storage.tables import Table
from omnigraph.storage.transactions import read_transaction


def fork_points(root: Root, at: Location, owner: str | None) -> set[int]:
    """The versions at which forks begin: on the side they were made from, and on their own."""
    forks = root.forks.list(at)
    found = {fork.parent_version for fork in forks.values() if fork.parent == owner}
    if owner in forks:
        found.add(forks[owner].parent_version)
    return found


def versions_since_last_change(table: Table, stored: set[int]) -> set[int]:
    """The versions from the newest change of rows on.

    In a bucket a writer may sleep through the loss of its lease. Lance refuses what it writes then as long as
    a change that it runs into is stored; compactions and new indexes let it pass.
    """
    version = table.version
    while read_transaction(table, version).is_maintenance and version - 1 in stored:
        version -= 1
    return {one for one in stored if one >= version}
