"""Merge bases: the commits that any two branches have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from omnigraph.engine.graph.ancestry import Ancestry
from omnigraph.engine.graph.coordinator import LoadedBranch
from omnigraph.engine.graph.manifest import ManifestState


def find_merge_bases(states: Mapping[str, ManifestState], tips: Iterable[str] = ()) -> frozenset[str]:
    """Return the ids of commits that a merge of any two of these branches would read.

    `tips` are further commits from which a branch may soon descend.
    """
    ancestry = Ancestry(states)
    heads = {state.head.id for state in states.values() if state.head is not None}
    found = heads | {tip for tip in tips if tip in ancestry.commits}
    return frozenset(ancestry.bases_of_bases(*([head] for head in sorted(found))))


def tips_between(earlier: Mapping[str, LoadedBranch], now: Mapping[str, LoadedBranch]) -> Iterator[str]:
    """Yield the commits of an earlier read from which branches descend now.

    Branches are read one after another while merges go on. A merge is invisible in a single read when its
    target was read before it, and its source after the source had new commits.
    """
    for branch, loaded in now.items():
        before = earlier.get(branch)
        if before is None or before.identity != loaded.identity:
            continue
        if before.state.head is not None:
            yield before.state.head.id
        new = loaded.state.commits.keys() - before.state.commits.keys()
        yield from (parent for one in new if (parent := loaded.state.commits[one].merged_parent))
