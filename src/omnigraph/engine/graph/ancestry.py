"""Ancestors of commits, gathered from all branches that know some of them.

A branch's manifest shows its own commits and those it inherited. It also records the commits of other
branches that merges took in, unless main knows them. So two branches and main together know all their
ancestors. Merges of earlier releases recorded only the commit they took in: then the other branches are read,
and a commit that no branch knows is a *gap*.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import cached_property

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.lineage import Commit, ancestors, merge_bases, parents
from omnigraph.engine.graph.manifest import MAIN, ManifestState
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.errors import BranchNotFound, InternalError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ancestry:
    """The known ancestors of commits."""

    states: Mapping[str, ManifestState]
    """The branches that were read, by name."""

    @cached_property
    def commits(self) -> Mapping[str, Commit]:
        """All commits that any of the branches knows."""
        recorded = {name: one for state in self.states.values() for name, one in state.merged.items()}
        shown = {name: one for state in self.states.values() for name, one in state.commits.items()}
        return {**recorded, **shown}

    def merge_bases(self, *tips: Collection[str]) -> tuple[Commit, ...]:
        """The best common ancestors of any two tips; see `lineage.merge_bases`."""
        return merge_bases(self.commits, *tips)

    def bases_of_bases(self, *tips: Collection[str]) -> dict[str, Commit]:
        """The best common ancestors of any two tips, and those of any two of these, and so on."""
        found = {commit.id: commit for commit in self.merge_bases(*tips)}
        while True:
            more = {commit.id: commit for commit in self.merge_bases(*([name] for name in found))}
            if more.keys() <= found.keys():
                return found
            found |= more

    def gaps(self, *tips: str) -> list[Commit]:
        """Return the commits with an unknown parent that could change the merge bases.

        With a single base, its own ancestors cannot. With several, one may descend from another through an
        unknown parent.
        """
        known = self.commits
        lines = [ancestors(known, [tip]) for tip in tips]
        found = {
            name: commit
            for line in lines
            for name, commit in line.items()
            if any(parent not in known for parent in parents(commit))
        }
        if not found or len(self.merge_bases(*([tip] for tip in tips))) > 1:
            return list(found.values())
        return [commit for name, commit in found.items() if not all(name in line for line in lines)]

    def unrecorded(self, tip: str, state: ManifestState, main: ManifestState) -> tuple[Commit, ...]:
        """A commit and those of its ancestors that a branch has to record when it takes the commit in.

        Commits that main knows are omitted, because main always exists.
        """
        recorded = [state.commits, state.merged, main.commits, main.merged]
        return tuple(
            commit
            for name, commit in sorted(ancestors(self.commits, [tip]).items())
            if not any(name in known for known in recorded)
        )


def load_ancestry(graph: OpenGraph, states: Mapping[str, ManifestState], tips: Collection[str]) -> Ancestry:
    """Return the ancestry of some commits; other branches are read only where these have gaps."""
    found = Ancestry(states)
    if MAIN not in states and found.gaps(*tips):
        found = Ancestry({**states, MAIN: graph.load(MAIN).state})
    if found.gaps(*tips):
        found = Ancestry({**found.states, **_other_states(graph, found.states)})
    return found


def _other_states(graph: OpenGraph, known: Collection[str]) -> dict[str, ManifestState]:
    found = {}
    for branch in graph.branch_names():
        if branch not in known:
            try:
                found[branch] = graph.load(branch).state
            except (BranchNotFound, InternalError) as error:
                _log.warning("branch '%s' is skipped in the search for ancestors: %s", branch, error)
    return found
