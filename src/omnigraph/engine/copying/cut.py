"""All branches of a graph at versions that belong together.

Branches are read one after another while others write to them. They are independent of each other except
where one took something over from another: by a merge, by being made from it, or by showing a version of its
table. So a set of branches is consistent when none of them knows of something newer than what was read of the
other. Where one does, the branches are read again: they only move on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.commit.schema_lock import find_lock
from omnigraph.engine.graph.coordinator import LoadedBranch
from omnigraph.engine.graph.manifest import MAIN
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.maintenance.cleanup.needed_versions import OwnedTable, read_branches, read_published
from omnigraph.errors import SchemaApplyBlocked, Unavailable

_LOOKS = 32


@dataclass(frozen=True, slots=True)
class Cut:
    """A consistent set of branches."""

    branches: Mapping[str, LoadedBranch]
    tables: Mapping[OwnedTable, int]
    """The newest version of each fork that a branch shows or showed; later ones are not published in it."""
    schema: Mapping[str, bytes]
    """The files of the accepted schema, by their names."""
    missing: frozenset[str]
    """Commits that were merged and are on no branch any more."""


def take_consistent_cut(graph: OpenGraph) -> Cut:
    """Return all branches and the schema as a consistent cut, without locks."""
    gone: frozenset[str] = frozenset()
    for _ in range(_LOOKS):
        _refuse_during_schema_apply(graph)
        schema = _schema(graph)
        branches = read_branches(graph)
        unknown = _unknown_commits(branches.values()) - gone
        rows = {branch: _versions(loaded) for branch, loaded in branches.items()}
        if unknown:
            # Their branch was read too early, or they are on no branch any more: read again.
            gone |= unknown - {
                one for loaded in read_branches(graph).values() for one in loaded.state.commits
            }
            continue
        if _leads(rows) or _was_forked_later(graph, branches):
            continue
        _refuse_during_schema_apply(graph)
        if _schema(graph) == schema:
            return Cut(branches, _newest(rows), schema, gone)
    raise Unavailable("the branches of the graph move faster than they can be read", remedy="try again")


def _refuse_during_schema_apply(graph: OpenGraph) -> None:
    if find_lock(graph.root) is not None:
        raise SchemaApplyBlocked(
            "copy is unavailable while the schema changes",
            remedy="try again when it is done; `omnigraph recover` finishes a change that was interrupted",
        )


def _schema(graph: OpenGraph) -> dict[str, bytes]:
    layout, objects = graph.root.layout, graph.root.objects
    places = (layout.schema_source, layout.schema_ir, layout.schema_state)
    return {at.name: objects.read_bytes_if_exists(at) or b"" for at in places}


def _unknown_commits(branches: Iterable[LoadedBranch]) -> frozenset[str]:
    """Commits that a branch merged, and that none of the branches has."""
    commits = [commit for loaded in branches for commit in loaded.state.commits.values()]
    merged = {commit.merged_parent for commit in commits if commit.merged_parent is not None}
    return frozenset(merged - {commit.id for commit in commits})


def _versions(loaded: LoadedBranch) -> dict[OwnedTable, int]:
    """The newest version of each fork that a branch shows, or showed."""
    found: dict[OwnedTable, int] = {}
    for row in read_published(loaded):
        found[row.place] = max(row.version, found.get(row.place, 0))
    return found


def _leads(rows: Mapping[str, Mapping[OwnedTable, int]]) -> bool:
    """Whether a branch shows a newer version of a table than the branch whose table it is."""
    return any(
        place.branch in rows and version > rows[place.branch].get(place, 0)
        for branch, found in rows.items()
        for place, version in found.items()
        if place.branch != branch
    )


def _was_forked_later(graph: OpenGraph, branches: Mapping[str, LoadedBranch]) -> bool:
    """Whether a branch was made from a later version of another than the one that was read."""
    forks = graph.root.forks.list(graph.root.layout.manifest)
    for branch in branches:
        fork = forks.get(branch)
        if fork is None:
            if branch != MAIN:
                return True
            continue
        parent = branches.get(fork.parent or MAIN)
        if parent is None or parent.state.version < fork.parent_version:
            return True
    return False


def _newest(rows: Mapping[str, Mapping[OwnedTable, int]]) -> dict[OwnedTable, int]:
    newest: dict[OwnedTable, int] = {}
    for found in rows.values():
        for place, version in found.items():
            newest[place] = max(version, newest.get(place, 0))
    return newest
