"""Count the branches of a pattern that are not returned, as weights of the rows they start from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.lang.query.terms import Predicate
from omnigraph.query.context import QueryContext
from omnigraph.query.frame import NO_ROW, Frame, Positions, checked_sums, multiply_counts
from omnigraph.query.interrupt import run_in_worker
from omnigraph.query.pattern import Pattern
from omnigraph.query.topology import walk
from omnigraph.query.topology.adjacency import split_runs
from omnigraph.query.topology.linked_topology import LinkedTopology

STEPS_AT_ONCE = 4_000_000
"""About how many edges one batch walks."""
FEW = 64
"""So few walks are one batch, whatever they cost."""
_DEEP = 4  # hops after which a walk is assumed to meet every edge


def batch_walks(
    linked: LinkedTopology, near: Positions, direction: EdgeDirection, maximum: int
) -> Iterator[Positions]:
    """Yield rows to walk from together, at least one batch; the rows of a node are adjacent."""
    if len(near) > FEW:
        order = np.argsort(near, kind="stable")
        parts = list(split_runs(_bound_costs(linked, direction, maximum)[near[order]], STEPS_AT_ONCE))
        if len(parts) > 1:
            yield from (order[begin:end] for begin, end in parts)
            return
    yield np.arange(len(near))


def _bound_costs(linked: LinkedTopology, direction: EdgeDirection, maximum: int) -> NDArray[np.int64]:
    """Bound how many edges the walk from each position meets; the last entry is that of NO_ROW."""
    edges = float(2 * linked.topology.edge_count)
    walks = total = walk.sum_neighbours(linked, None, direction).astype(np.float64)
    for _ in range(1, min(maximum, _DEEP) if linked.shared else 1):
        walks = np.minimum(walk.sum_neighbours(linked, walks, direction), edges)
        total = total + walks
    if maximum > _DEEP and linked.shared:
        total = np.where(walks > 0, edges, total)
    return np.append(np.minimum(total, edges), 0).astype(np.int64)


Weights = NDArray[np.int64]
Known = Callable[[str], NDArray[np.bool_] | None]
"""For each position of a variable whether it passes its own tests; None where that is not known yet."""

REVERSED: dict[EdgeDirection, EdgeDirection] = {"out": "in", "in": "out", "both": "both"}
_WORTH_MERGING = 4096
_KEY_SPACE = 2**62


@dataclass(frozen=True, slots=True)
class CountedBranch:
    """A walk to a variable that is only counted, with all further branches from that variable."""

    anchor: str
    far: str
    walk: p.Expand
    tests: tuple[Predicate, ...]
    branches: tuple[CountedBranch, ...]

    @property
    def direction(self) -> EdgeDirection:
        """Seen from the anchor."""
        return self.walk.direction if self.walk.source == self.anchor else REVERSED[self.walk.direction]


@dataclass(frozen=True, slots=True)
class PatternSplit:
    """A pattern split in two: the branches that are only counted, and the remaining walks."""

    branches: tuple[CountedBranch, ...]
    walks: tuple[p.Expand, ...]
    hidden: frozenset[str]
    """The variables of the counted branches."""


def split_pattern(pattern: Pattern, asked: frozenset[str], bound: frozenset[str]) -> PatternSplit:
    """Split off the branches that hold neither a returned (`asked`) nor a bound variable."""
    return pattern.once(("cut", asked, bound), lambda: _split_pattern(pattern, asked, bound))


def _split_pattern(pattern: Pattern, asked: frozenset[str], bound: frozenset[str]) -> PatternSplit:
    branches = find_branches(pattern, asked, bound)
    counted = {id(walk) for branch in branches for walk in _list_walks(branch)}
    walks = tuple(step for step in pattern.walks if id(step) not in counted)
    return PatternSplit(
        tuple(branches), walks, frozenset(var for branch in branches for var in _list_hidden(branch))
    )


def _list_walks(branch: CountedBranch) -> list[p.Expand]:
    return [branch.walk, *(walk for inner in branch.branches for walk in _list_walks(inner))]


def _list_hidden(branch: CountedBranch) -> list[str]:
    return [branch.far, *(var for inner in branch.branches for var in _list_hidden(inner))]


def find_branches(pattern: Pattern, asked: frozenset[str], bound: Iterable[str]) -> list[CountedBranch]:
    """Return the branches without returned or bound variables, found from the leaves inwards."""
    walks = list(pattern.walks)
    fixed = set(asked) | set(bound) | _entangled_variables(pattern)
    hanging: dict[str, list[CountedBranch]] = {}
    while (found := _find_leaf(walks, fixed)) is not None:
        leaf, far = found
        walks.remove(leaf)
        anchor = leaf.source if leaf.target == far else leaf.target
        branch = CountedBranch(anchor, far, leaf, pattern.own_tests(far), tuple(hanging.pop(far, ())))
        hanging.setdefault(anchor, []).append(branch)
    return [branch for held in hanging.values() for branch in held]


def _entangled_variables(pattern: Pattern) -> set[str]:
    """Variables that a test compares with others, and edges that are tested at all."""
    edges = {walk.edge_var for walk in pattern.walks}
    met = [pattern.variables_of(test) for test in pattern.tests]
    return {var for names in met for var in names if len(names) > 1 or var in edges}


def _find_leaf(walks: list[p.Expand], fixed: set[str]) -> tuple[p.Expand, str] | None:
    for candidate in walks:
        if candidate.maximum > 1 or candidate.edge_var in fixed or candidate.source == candidate.target:
            continue
        for far in (candidate.target, candidate.source):
            if far not in fixed and not any(far in (o.source, o.target) for o in walks if o is not candidate):
                return candidate, far
    return None


# --- weights -------------------------------------------------------------------------------------


def count_ways(context: QueryContext, branch: CountedBranch, sources: Positions, known: Known) -> Weights:
    """Return how many matches of the branch each row has."""
    near = context.rows(branch.anchor)
    if near.count == 0:
        return np.zeros(len(sources), dtype=np.int64)
    linked = context.sources.linked(branch.walk.edge_type)
    distinct = branch.walk.edge_var is None
    if not branch.tests and not branch.branches:
        return walk.count_hop_rows(linked, sources, branch.direction, distinct=distinct)
    if 2 * len(sources) >= near.live_count:
        return run_in_worker(
            linked.topology.edge_count, lambda: _count_by_edges(context, branch, linked, sources, known)
        )
    weights = np.zeros(len(sources), dtype=np.int64)
    fanout = walk.count_hop_rows(linked, sources, branch.direction, distinct=distinct)
    for begin, end in split_runs(fanout, STEPS_AT_ONCE):
        context.request.check()
        ways = partial(_count_by_hop, context, branch, linked, sources[begin:end], known)
        weights[begin:end] = run_in_worker(int(fanout[begin:end].sum()), ways)
    return weights


def _count_by_edges(
    context: QueryContext, branch: CountedBranch, linked: LinkedTopology, sources: Positions, known: Known
) -> Weights:
    """Count the matches of every node at once, for when most nodes are asked for."""
    every, distinct = _weights_of_all(context, branch, known), branch.walk.edge_var is None
    per_row = walk.sum_neighbours(linked, every, branch.direction, distinct=distinct)
    return np.where(sources >= 0, per_row[sources], 0)


def _count_by_hop(
    context: QueryContext, branch: CountedBranch, linked: LinkedTopology, sources: Positions, known: Known
) -> Weights:
    rows, targets = walk.hop(linked, sources, branch.direction, distinct=branch.walk.edge_var is None)
    return _sum_by_row(rows, _weights_of_targets(context, branch, targets, known), len(sources))


def _weights_of_all(context: QueryContext, branch: CountedBranch, known: Known) -> Weights:
    """The weight of every row at the far end."""
    rows = context.rows(branch.far)
    every = rows.positions()
    dense = np.zeros(rows.count, dtype=np.int64)
    dense[every] = _weights_at(context, branch, every, known)
    return dense


def _weights_of_targets(
    context: QueryContext, branch: CountedBranch, targets: Positions, known: Known
) -> Weights:
    met, back = np.unique(targets, return_inverse=True)
    return _weights_at(context, branch, met, known)[back]


def _weights_at(context: QueryContext, branch: CountedBranch, positions: Positions, known: Known) -> Weights:
    mask = known(branch.far) if branch.tests else None
    flags = context.test_positions(branch.far, positions, branch.tests) if mask is None else mask[positions]
    weights = flags.astype(np.int64)
    for inner in branch.branches:
        weights = multiply_counts(weights, count_ways(context, inner, positions, known))
    return weights


def _sum_by_row(rows: Positions, weights: Weights, length: int) -> Weights:
    """Return the sum of weights by row; rows come in ascending order."""
    ends = np.searchsorted(rows, np.arange(length + 1))

    def by_row(numbers: Weights) -> Weights:
        # Where the sum of all wraps around, the difference of two such sums wraps back.
        upto = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(numbers)])
        differences: Weights = upto[ends[1:]] - upto[ends[:-1]]
        return differences

    return checked_sums(weights, by_row)


def apply_weights(context: QueryContext, frame: Frame, branch: CountedBranch, known: Known) -> Frame:
    """Return the rows with a match of the branch, each weighted by the number of its matches."""
    weights = count_ways(context, branch, frame.variables[branch.anchor], known)
    leading = np.flatnonzero(weights)
    return frame.take(leading).multiply_weights(weights[leading])


# --- equal rows ----------------------------------------------------------------------------------


def merge_equal_rows(frame: Frame, needed: Iterable[str]) -> Frame:
    """Merge rows that differ only in variables no longer needed, adding up their weights."""
    kept = frame.keep_only(needed)
    if (
        frame.ranks is not None
        or len(kept.variables) == len(frame.variables)
        or frame.length < _WORTH_MERGING
    ):
        return frame
    key = _number_rows(kept)
    if key is None:
        return kept
    order = np.argsort(key, kind="stable")
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    weights = np.ones(frame.length, dtype=np.int64) if frame.weights is None else frame.weights
    added = checked_sums(weights[order], lambda numbers: np.add.reduceat(numbers, first))
    return replace(kept.take(order[first]), weights=added)


def _number_rows(frame: Frame) -> Positions | None:
    """Return a number for each row that is equal for equal rows; None when the numbers do not fit."""
    key, space = np.zeros(frame.length, dtype=np.int64), 1
    for positions in frame.variables.values():
        size = int(positions.max(initial=NO_ROW)) + 2
        space *= size
        if space > _KEY_SPACE:
            return None
        key = key * size + positions + 1
    return key
