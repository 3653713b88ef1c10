"""Tags, and branches at old commits, that are created while a cleanup runs.

A cleanup decides what is old before it takes the locks under which it removes that. A tag or branch of an old
commit is created under the same locks, so looking again there finds it. A branch that began at the head of
another one needs no look: what was the head is kept anyway.
"""

from __future__ import annotations

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.branches.old_commits import PAST
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.tags import list_tags
from omnigraph.storage.references import Incarnation


@dataclass(frozen=True, slots=True)
class Claims:
    """The commits that tags name, and the branches that were created at old commits."""

    tagged: frozenset[str]
    """As they were when it was decided what is old: a tag may be deleted, and created again."""
    branches: frozenset[Incarnation]
    """As they were before that; one that is created again is another incarnation."""

    def are_outdated(self, graph: OpenGraph) -> bool:
        """Whether there are new ones."""
        tagged = {tag.commit_id for tag in list_tags(graph.root)}
        return not (tagged <= self.tagged and find_branches_at_old_commits(graph) <= self.branches)


def find_branches_at_old_commits(graph: OpenGraph) -> frozenset[Incarnation]:
    """Return the incarnations of the branches that were created at old commits."""
    found = graph.root.forks.survey(graph.root.layout.manifest).forks.values()
    return frozenset(fork.identity for fork in found if PAST in fork.notes)
