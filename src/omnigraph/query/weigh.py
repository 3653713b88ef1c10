"""Count what nobody asks to see: parts of a pattern as weights of the rows they hang on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from omnigraph.lang.query import plan as p
from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.lang.query.terms import Predicate
from omnigraph.query.counting import products, sums
from omnigraph.query.frame import NO_ROW, Frame, Positions
from omnigraph.query.interrupt import apart
from omnigraph.query.pattern import Pattern
from omnigraph.query.reading import Reading
from omnigraph.query.topology import walk
from omnigraph.query.topology.linked import Linked
from omnigraph.query.topology.spread import pieces
from omnigraph.query.turns import STEPS_AT_ONCE

Weights = NDArray[np.int64]
Known = Callable[[str], NDArray[np.bool_] | None]
"""For each position of a variable whether it passes its own tests, where that was found out already."""

REVERSED: dict[EdgeDirection, EdgeDirection] = {"out": "in", "in": "out", "both": "both"}
_WORTH_MERGING = 4096
_KEY_SPACE = 2**62


@dataclass(frozen=True, slots=True)
class Branch:
    """A walk to a variable that is only counted, with everything that hangs on that variable."""

    anchor: str
    far: str
    walk: p.Expand
    tests: tuple[Predicate, ...]
    branches: tuple[Branch, ...]

    @property
    def direction(self) -> EdgeDirection:
        """Seen from the anchor."""
        return self.walk.direction if self.walk.source == self.anchor else REVERSED[self.walk.direction]


@dataclass(frozen=True, slots=True)
class Cut:
    """A pattern in two: the parts that are only counted, and the walks and tests of the rest."""

    branches: tuple[Branch, ...]
    walks: tuple[p.Expand, ...]
    hidden: frozenset[str]
    """The variables of the parts that are counted."""


def cut(pattern: Pattern, asked: frozenset[str], bound: frozenset[str]) -> Cut:
    """What of a pattern is only counted when these variables are asked for and those are bound already."""
    return pattern.once(("cut", asked, bound), lambda: _cut(pattern, asked, bound))


def _cut(pattern: Pattern, asked: frozenset[str], bound: frozenset[str]) -> Cut:
    branches = branches_of(pattern, asked, bound)
    counted = {id(walk) for branch in branches for walk in _walks(branch)}
    walks = tuple(step for step in pattern.walks if id(step) not in counted)
    return Cut(tuple(branches), walks, frozenset(var for branch in branches for var in _hidden(branch)))


def _walks(branch: Branch) -> list[p.Expand]:
    return [branch.walk, *(walk for inner in branch.branches for walk in _walks(inner))]


def _hidden(branch: Branch) -> list[str]:
    return [branch.far, *(var for inner in branch.branches for var in _hidden(inner))]


def branches_of(pattern: Pattern, asked: frozenset[str], bound: Iterable[str]) -> list[Branch]:
    """The parts of a pattern without variables that are asked for or bound already, by leaves inwards."""
    walks = list(pattern.walks)
    fixed = set(asked) | set(bound) | _entangled(pattern)
    hanging: dict[str, list[Branch]] = {}
    while (found := _leaf(walks, fixed)) is not None:
        leaf, far = found
        walks.remove(leaf)
        anchor = leaf.source if leaf.target == far else leaf.target
        branch = Branch(anchor, far, leaf, pattern.own_tests(far), tuple(hanging.pop(far, ())))
        hanging.setdefault(anchor, []).append(branch)
    return [branch for held in hanging.values() for branch in held]


def _entangled(pattern: Pattern) -> set[str]:
    """Variables that a test compares with others, and edges that are tested at all."""
    edges = {walk.edge_var for walk in pattern.walks}
    met = [pattern.met(test) for test in pattern.tests]
    return {var for names in met for var in names if len(names) > 1 or var in edges}


def _leaf(walks: list[p.Expand], fixed: set[str]) -> tuple[p.Expand, str] | None:
    for candidate in walks:
        if candidate.maximum > 1 or candidate.edge_var in fixed or candidate.source == candidate.target:
            continue
        for far in (candidate.target, candidate.source):
            if far not in fixed and not any(far in (o.source, o.target) for o in walks if o is not candidate):
                return candidate, far
    return None


# --- weights -------------------------------------------------------------------------------------


def weights_of(reading: Reading, branch: Branch, sources: Positions, known: Known) -> Weights:
    """How many ways lead from each row into the branch."""
    near = reading.rows(branch.anchor)
    if near.count == 0:
        return np.zeros(len(sources), dtype=np.int64)
    linked = reading.sources.linked(branch.walk.edge_type)
    distinct = branch.walk.edge_var is None
    if not branch.tests and not branch.branches:
        return walk.fanout(linked, sources, branch.direction, distinct=distinct)
    if 2 * len(sources) >= near.live_count:
        return apart(linked.topology.edge_count, lambda: _by_edges(reading, branch, linked, sources, known))
    weights = np.zeros(len(sources), dtype=np.int64)
    fanout = walk.fanout(linked, sources, branch.direction, distinct=distinct)
    for begin, end in pieces(fanout, STEPS_AT_ONCE):
        reading.request.check()
        ways = partial(_by_hop, reading, branch, linked, sources[begin:end], known)
        weights[begin:end] = apart(int(fanout[begin:end].sum()), ways)
    return weights


def _by_edges(reading: Reading, branch: Branch, linked: Linked, sources: Positions, known: Known) -> Weights:
    """The ways from most of all rows: those of every node are found at once."""
    every, distinct = _of_all(reading, branch, known), branch.walk.edge_var is None
    per_row = walk.weights(linked, every, branch.direction, distinct=distinct)
    return np.where(sources >= 0, per_row[sources], 0)


def _by_hop(reading: Reading, branch: Branch, linked: Linked, sources: Positions, known: Known) -> Weights:
    rows, targets = walk.hop(linked, sources, branch.direction, distinct=branch.walk.edge_var is None)
    return _summed(rows, _of(reading, branch, targets, known), len(sources))


def _of_all(reading: Reading, branch: Branch, known: Known) -> Weights:
    """The weight of every row at the far end."""
    rows = reading.rows(branch.far)
    every = rows.positions()
    dense = np.zeros(rows.count, dtype=np.int64)
    dense[every] = _at(reading, branch, every, known)
    return dense


def _of(reading: Reading, branch: Branch, targets: Positions, known: Known) -> Weights:
    met, back = np.unique(targets, return_inverse=True)
    return _at(reading, branch, met, known)[back]


def _at(reading: Reading, branch: Branch, positions: Positions, known: Known) -> Weights:
    mask = known(branch.far) if branch.tests else None
    flags = reading.flags(branch.far, positions, branch.tests) if mask is None else mask[positions]
    weights = flags.astype(np.int64)
    for inner in branch.branches:
        weights = products(weights, weights_of(reading, inner, positions, known))
    return weights


def _summed(rows: Positions, weights: Weights, length: int) -> Weights:
    """The weights of each row added up; rows come in ascending order."""
    ends = np.searchsorted(rows, np.arange(length + 1))

    def by_row(numbers: Weights) -> Weights:
        # Where the sum of all wraps around, the difference of two such sums wraps back.
        upto = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(numbers)])
        differences: Weights = upto[ends[1:]] - upto[ends[:-1]]
        return differences

    return sums(weights, by_row)


def weighed(reading: Reading, frame: Frame, branch: Branch, known: Known) -> Frame:
    """The rows that lead into the branch, each standing for as many as there are ways."""
    weights = weights_of(reading, branch, frame.variables[branch.anchor], known)
    leading = np.flatnonzero(weights)
    return frame.take(leading).weighted(weights[leading])


# --- equal rows ----------------------------------------------------------------------------------


def merged(frame: Frame, needed: Iterable[str]) -> Frame:
    """One row for all that differ only in variables nobody needs any more, with their weights added up."""
    kept = frame.keeping(needed)
    if (
        frame.ranks is not None
        or len(kept.variables) == len(frame.variables)
        or frame.length < _WORTH_MERGING
    ):
        return frame
    key = _keys(kept)
    if key is None:
        return kept
    order = np.argsort(key, kind="stable")
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    weights = np.ones(frame.length, dtype=np.int64) if frame.weights is None else frame.weights
    added = sums(weights[order], lambda numbers: np.add.reduceat(numbers, first))
    return replace(kept.take(order[first]), weights=added)


def _keys(frame: Frame) -> Positions | None:
    """A number for each row that is equal for equal rows, unless there are too many kinds of row."""
    key, space = np.zeros(frame.length, dtype=np.int64), 1
    for positions in frame.variables.values():
        size = int(positions.max(initial=NO_ROW)) + 2
        space *= size
        if space > _KEY_SPACE:
            return None
        key = key * size + positions + 1
    return key
