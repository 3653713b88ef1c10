"""Where merges would start: the commits that any two branches have in common, and nearest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.lineage import Commit, distances, merge_base
from omnigraph.engine.manifest import State

_FAR = 1 << 29
"""Further away than any commit is; twice as far is still a number of 32 bits."""


def merge_bases(states: Sequence[State]) -> frozenset[str]:
    """The commits at which a merge of any of these branches with another one would start.

    What two branches know by themselves can be less than what all of them know together, since the commits
    of a branch that was merged are shown by that one alone. A merge looks at the one, then at the other.
    """
    heads = {state.head.id: state for state in states if state.head is not None}
    known = {commit.id: commit for state in states for commit in state.commits.values()}
    return _nearest(known.values(), list(heads)) | _of_two(list(heads.values()), known)


def _nearest(commits: Iterable[Commit], heads: Sequence[str]) -> frozenset[str]:
    """The nearest common commits of all pairs, as far as all histories together tell."""
    newest_first = sorted(commits, key=lambda commit: commit.order, reverse=True)
    known = {commit.id: commit for commit in newest_first}
    place = {name: number for number, name in enumerate(known)}
    far: NDArray[np.int32] = np.full((len(heads), len(known)), _FAR, np.int32)
    for row, head in enumerate(heads):
        steps = distances(known, head)
        far[row, [place[name] for name in steps]] = list(steps.values())
    found: set[str] = set()
    for row in range(len(heads) - 1):
        together = far[row] + far[row + 1 :]
        # Of several as near, the first is the newest.
        nearest = together.argmin(axis=1)
        common = together[np.arange(len(nearest)), nearest] < _FAR
        found.update(newest_first[at].id for at in nearest[common].tolist())
    return frozenset(found)


def _of_two(states: Sequence[State], known: Mapping[str, Commit]) -> frozenset[str]:
    """The same, told from the histories of two branches alone."""
    found = set()
    gaps = [_has_gaps(state, known) for state in states]
    for (one, here), (other, there) in combinations(zip(states, gaps, strict=True), 2):
        if not (here or there):
            continue  # both know all that the others could tell
        assert one.head is not None
        assert other.head is not None
        base = merge_base({**one.commits, **other.commits}, one.head.id, other.head.id)
        if base is not None:
            found.add(base.id)
    return frozenset(found)


def _has_gaps(state: State, known: Mapping[str, Commit]) -> bool:
    """Whether a branch took in commits that only another one shows."""
    taken = (commit.merged_parent for commit in state.commits.values())
    return any(name in known and name not in state.commits for name in taken if name is not None)
