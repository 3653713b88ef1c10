"""Match a pattern: start at the variable with the fewest candidates, then take the walk with the fewest rows.

When rows are only counted, branches that are not returned stay weights: see `counted_branches.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import ID
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.explain import show_predicate
from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.context import QueryContext
from omnigraph.query.counted_branches import (
    FEW,
    REVERSED,
    CountedBranch,
    apply_weights,
    batch_walks,
    merge_equal_rows,
    split_pattern,
)
from omnigraph.query.frame import Frame, Positions, all_rows, concat_frames
from omnigraph.query.index_hop import hop_by_index, should_use_index
from omnigraph.query.interrupt import run_in_worker
from omnigraph.query.key_lookup import KeyLookup, find_key_lookup
from omnigraph.query.pattern import Pattern
from omnigraph.query.scan import Candidates, find_candidates
from omnigraph.query.topology import walk
from omnigraph.query.topology.adjacency import split_runs
from omnigraph.query.topology.linked_topology import LinkedTopology
from omnigraph.query.topology.topology import State

_DEEP = 16  # hops beyond which a guess of the rows to come says nothing
_VERY_FEW = 256
"""One candidate in so many nodes of another table."""
_SMALL = 4096
"""Testing fewer nodes costs next to nothing."""
ROWS_AT_ONCE = 1 << 17
"""About as many rows a hop makes at a time, so that temporary arrays stay small beside a large result."""
_ADJACENT: dict[State, str] = {
    "in memory": "adjacency in memory",
    "stored": "adjacency read from its file",
    "to be sorted": "edges sorted first",
}


@dataclass(frozen=True, slots=True)
class WantedVariables:
    """The variables the caller needs; the others are dropped once no walk or test needs them."""

    variables: frozenset[str]
    counted: bool = True
    """Whether one row with a weight may stand for many equal rows."""


@dataclass(frozen=True, slots=True)
class _Ends:
    """A walk in the direction it is done: from an end that is bound."""

    near: str
    far: str
    direction: EdgeDirection


class Matcher:
    """Matches one pattern; with `wanted` None, every variable and every row is returned."""

    def __init__(self, context: QueryContext, pattern: Pattern, wanted: WantedVariables | None) -> None:
        self._context = context
        self._pattern = pattern
        self._wanted = wanted
        self._walks = list(pattern.walks)
        self._tests = list(pattern.tests)
        self._branches: list[CountedBranch] = []
        self._key_lookups: dict[str, KeyLookup | None] = {}
        self._candidates: dict[str, Candidates] = {}
        self._masks: dict[str, NDArray[np.bool_]] = {}

    def run(self, base: Frame | None) -> Frame:
        """Return the rows of the pattern; `base` are the rows to start from, unless it starts with a scan."""
        frame = self._start_rows(base)
        while self._walks:
            frame = self._reduce_rows(self._walk_step(frame, self._choose_walk(frame)))
        return frame

    def parts(self, base: Frame | None, *, collected: bool) -> Iterator[Frame]:
        """Yield the same rows in parts, at least one: the last walk runs as its parts are asked for.

        Limits on rows in flight apply to all parts together when the caller keeps them (`collected`).
        """
        frame = self._start_rows(base)
        while len(self._walks) > 1:
            frame = self._reduce_rows(self._walk_step(frame, self._choose_walk(frame)))
        if not self._walks:
            yield frame
            return
        step = self._choose_walk(frame)
        ends = self._choose_ends(step, frame)
        if ends.far in frame.variables or self._context.request.steps is not None:
            yield self._reduce_rows(self._walk_step(frame, step))  # a step that is recorded is done in one go
            return
        cold = self._hop_by_index(frame, step, ends)
        tests = self._tests
        for part in self._expand_step(frame, step, ends, collected=collected) if cold is None else [cold]:
            yield self._reduce_rows(part)
            self._tests = tests

    def _start_rows(self, base: Frame | None) -> Frame:
        frame = self._start_at(self._choose_root()) if base is None else base
        self._split_off_branches(frame)
        return self._reduce_rows(frame)

    # --- where to start ----------------------------------------------------------------------------

    def _choose_root(self) -> str:
        """Return the variable to start from: the one with the fewest candidates, else the cheapest."""
        base = self._pattern.base
        assert isinstance(base, p.Scan)
        if not self._walks or not self._pattern.is_free:
            return base.var
        nodes = list(dict.fromkeys([base.var, *self._pattern.ends]))
        for var in nodes:
            if self._key_lookup(var) is not None:
                return var
        best = self._fewest_candidates(nodes)
        if best is not None and 4 * self._candidates[best].count <= self._context.rows(best).live_count:
            return best
        return self._unfiltered_root(nodes)

    def _fewest_candidates(self, nodes: list[str]) -> str | None:
        """Return the filtered variable with the fewest candidates; of equal ones that with the least fan-out.

        When one variable has very few candidates, large tables are not searched for candidates of others:
        testing the rows reached from the few is cheaper.
        """
        filtered = [var for var in nodes if self._pattern.own_tests(var)]
        fewest = math.inf
        for var in sorted(filtered, key=lambda var: self._context.rows(var).live_count):
            if self._context.rows(var).live_count < max(_SMALL, fewest * _VERY_FEW):
                self._candidates[var] = self._find_candidates(var)
                fewest = min(fewest, self._candidates[var].count)
        return min(
            self._candidates, key=lambda var: (self._candidates[var].count, self._fan_out(var)), default=None
        )

    def _fan_out(self, var: str) -> float:
        """Estimate how many rows the cheapest walk from a variable makes of one row."""
        rows = max(1, self._context.rows(var).live_count)
        edges = [
            self._context.sources.edges(step.edge_type).live_count
            for step in self._pattern.walks
            if var in (step.source, step.target)
        ]
        return min(edges, default=0) / rows

    def _unfiltered_root(self, nodes: list[str]) -> str:
        if self._wanted is None or not self._wanted.counted:
            return nodes[0]
        # Returned variables are needed anyway; else the middle of the pattern has most branches.
        asked = [var for var in nodes if var in self._wanted.variables]
        return max(asked or nodes, key=self._pattern.ends.count)

    def _start_at(self, var: str) -> Frame:
        found = self._candidates.get(var) or self._find_candidates(var)
        self._drop_own_tests(var)
        return all_rows(var, found.positions)

    def _find_candidates(self, var: str) -> Candidates:
        with self._context.request.step("Scan", lambda: f"${var}: {self._context.tables[var]}") as step:
            tests, named = self._pattern.own_tests(var), self._key_lookup(var)
            if named is not None:
                self._learn_ids(var)
            met = 0 if named or not tests else self._context.rows(var).count
            found = run_in_worker(met, lambda: find_candidates(self._context, var, tests, named))
            step.rows, step.how = found.count, found.how
        return found

    def _key_lookup(self, var: str) -> KeyLookup | None:
        """Return the ids of a variable's candidates, where a test names them by key."""
        if var not in self._key_lookups:
            context = self._context
            named = self._pattern.own_tests(var) and self._pattern.find_key_tests(var, context.key(var))
            self._key_lookups[var] = find_key_lookup(named, context.bindings) if named else None
        return self._key_lookups[var]

    def _learn_ids(self, var: str) -> None:
        """Take the ids of a variable's type from a topology file that has them, instead of its table."""
        if self._context.rows(var).is_cached(ID):
            return
        for step in self._pattern.walks:
            if var in (step.source, step.target):
                self._context.sources.learn_ids(step.edge_type)

    def _drop_own_tests(self, var: str) -> None:
        variables_of = self._pattern.variables_of
        self._tests = [test for test in self._tests if variables_of(test) != {var}]

    # --- where to go next --------------------------------------------------------------------------

    def _choose_walk(self, frame: Frame) -> p.Expand:
        """Remove and return the next walk: one with both ends bound, else the one with the fewest rows."""
        bound = frame.variables
        ready = [
            step
            for step in self._walks
            if step.source in bound or (step.target in bound and step.minimum == 1)
        ]
        best = min(ready, key=lambda step: self._estimate_growth(step, frame))
        self._walks.remove(best)
        return best

    def _estimate_growth(self, step: p.Expand, frame: Frame) -> float:
        ends = self._choose_ends(step, frame)
        if ends.far in frame.variables:
            return -1.0
        edges = self._context.sources.edges(step.edge_type).live_count
        fan_out = edges / max(1, self._context.rows(ends.near).live_count)
        known = self._candidates.get(ends.far)
        share = 1.0 if known is None else known.count / max(1, known.total)
        return float(fan_out ** min(step.maximum, _DEEP) * share)

    def _choose_ends(self, step: p.Expand, frame: Frame) -> _Ends:
        if step.source in frame.variables:
            return _Ends(step.source, step.target, step.direction)
        return _Ends(step.target, step.source, REVERSED[step.direction])

    # --- one walk ----------------------------------------------------------------------------------

    def _walk_step(self, frame: Frame, step: p.Expand) -> Frame:
        ends = self._choose_ends(step, frame)
        with self._context.request.step("Expand", lambda: _show_walk(step, ends)) as noted:
            if ends.far in frame.variables:
                noted.how = "both ends known"
                grown = run_in_worker(
                    frame.length * step.maximum, lambda: self._keep_linked_rows(frame, step, ends)
                )
            else:
                cold = self._hop_by_index(frame, step, ends)
                noted.how = self._describe_adjacency(step, ends) if cold is None else "indexes of its ends"
                grown = self._expand_all(frame, step, ends) if cold is None else cold
            noted.rows = grown.length
        return grown

    def _keep_linked_rows(self, frame: Frame, step: p.Expand, ends: _Ends) -> Frame:
        """Keep the rows whose two ends are linked."""
        linked = self._context.sources.linked(step.edge_type)
        near, far = frame.variables[ends.near], frame.variables[ends.far]
        if step.edge_var is not None:
            rows, edges = walk.edges_between(linked, near, far, ends.direction)
            return self._take_rows(frame, rows).bind(step.edge_var, edges)
        if step.maximum == 1:
            return frame.filter(walk.are_connected(linked, near, far, ends.direction))
        met = np.zeros(frame.length, dtype=np.bool_)
        for rows in batch_walks(linked, near, ends.direction, step.maximum):
            self._context.request.check()
            met[rows] = walk.are_connected(
                linked, near[rows], far[rows], ends.direction, step.minimum, step.maximum
            )
        return frame.filter(met)

    def _hop_by_index(self, frame: Frame, step: p.Expand, ends: _Ends) -> Frame | None:
        """Hop through the indexes on disk; None where reading all edges is less work."""
        near = frame.variables[ends.near]
        named = step.edge_var is not None
        if step.maximum > 1 or not should_use_index(
            self._context, step.edge_type, near, ends.direction, named=named
        ):
            return None
        found = hop_by_index(self._context, step.edge_type, ends.near, ends.far, near, ends.direction)
        if step.edge_var is None:
            found = found.distinct()
            rows, targets = self._keep_candidates(ends.far, found.rows, found.targets)
            return self._take_rows(frame, rows).bind(ends.far, targets)
        # Where an edge stands in its table is looked up only for a query that asks for edges.
        edges = self._context.rows(step.edge_var).positions_of(found.edges)
        rows, targets, edges = self._keep_candidates(ends.far, found.rows, found.targets, edges)
        return self._take_rows(frame, rows).bind(ends.far, targets).bind(step.edge_var, edges)

    def _describe_adjacency(self, step: p.Expand, ends: _Ends) -> str:
        """Return where a walk gets its adjacency from, for `explain`."""
        topology = self._context.sources.topology(step.edge_type)
        distinct = step.edge_var is None
        state: State = (
            "to be sorted" if topology is None else topology.state(ends.direction, distinct=distinct)
        )
        return _ADJACENT[state]

    def _expand_step(
        self, frame: Frame, step: p.Expand, ends: _Ends, *, collected: bool = True
    ) -> Iterator[Frame]:
        """Yield a row for each node that is reached, in parts, at least one."""
        linked = self._context.sources.linked(step.edge_type)
        self._look_ahead(linked, frame, step, ends)
        kept, width = 0, _count_variables(frame, step)
        # Variables no longer needed are dropped; where rows are counted, they say what to merge.
        wanted = self._wanted
        carried = (
            frame if wanted is None or wanted.counted else frame.keep_only(self._needed_variables(wanted))
        )
        for part in self._walk_parts(linked, frame, step, ends, collected=collected):
            rows, targets, *edges = self._keep_candidates(ends.far, *part)
            kept = kept + len(rows) if collected else len(rows)
            self._context.request.check(kept, width)
            grown = carried.take(rows).bind(ends.far, targets)
            yield grown if step.edge_var is None else grown.bind(step.edge_var, edges[0])

    def _expand_all(self, frame: Frame, step: p.Expand, ends: _Ends) -> Frame:
        coming = frame.length * (1 + self._estimate_growth(step, frame))
        return run_in_worker(coming, lambda: concat_frames(list(self._expand_step(frame, step, ends))))

    def _look_ahead(self, linked: LinkedTopology, frame: Frame, step: p.Expand, ends: _Ends) -> None:
        """Find the candidates of the far end beforehand, where that is less work than testing each row."""
        if ends.far in self._candidates or not self._pattern.own_tests(ends.far):
            return
        if step.maximum == 1:
            fanout = walk.count_hop_rows(linked, frame.variables[ends.near], ends.direction, distinct=False)
            coming = float(fanout.sum())
        else:
            coming = frame.length * self._estimate_growth(step, frame)
        if 4 * coming > self._context.rows(ends.far).live_count:
            self._candidates[ends.far] = self._find_candidates(ends.far)

    def _walk_parts(
        self, linked: LinkedTopology, frame: Frame, step: p.Expand, ends: _Ends, *, collected: bool
    ) -> Iterator[tuple[Positions, ...]]:
        """Yield incoming row, node reached and, where the edge is named, the edge; in parts, at least one."""
        near = frame.variables[ends.near]
        if step.maximum > 1:
            size = 0 if len(near) <= FEW else linked.topology.edge_count
            taken = run_in_worker(size, lambda: list(batch_walks(linked, near, ends.direction, step.maximum)))
            for rows in taken:
                coming = len(rows) * self._estimate_growth(step, frame)
                begins = near[rows]
                found, targets = run_in_worker(
                    coming,
                    partial(walk.find_reached, linked, begins, ends.direction, step.minimum, step.maximum),
                )
                yield rows[found], targets
            return
        named = step.edge_var is not None
        # Everything from files is read before the first part is yielded.
        hop = walk.begin_hop(linked, near, ends.direction, named=named)
        if collected and self._context.request.is_too_much(
            int(hop.fanout.sum()), _count_variables(frame, step)
        ):
            size = linked.topology.edge_count
            reached = run_in_worker(
                size, lambda: self._count_hop_rows(linked, near, hop.fanout, ends, not named)
            )
            self._context.request.check(reached, _count_variables(frame, step))
        for begin, end in list(split_runs(hop.fanout, ROWS_AT_ONCE)) or [(0, 0)]:
            yield hop.part(begin, end)

    def _count_hop_rows(
        self, linked: LinkedTopology, near: Positions, fanout: Positions, ends: _Ends, distinct: bool
    ) -> int:
        """Return how many rows a hop will leave, without making them."""
        known = self._candidates.get(ends.far)
        if known is None:
            return int(fanout.sum())
        wanted = self._candidate_mask(ends.far, known).astype(np.int64)
        per_node = walk.sum_neighbours(linked, wanted, ends.direction, distinct=distinct)
        return int(per_node[near[near >= 0]].sum())

    def _take_rows(self, frame: Frame, rows: Positions) -> Frame:
        self._context.request.check(len(rows), len(frame.variables))
        return frame.take(rows)

    def _keep_candidates(self, var: str, *columns: Positions) -> tuple[Positions, ...]:
        """Keep the rows that reach candidates of the variable, where these are known; targets come second."""
        known = self._candidates.get(var)
        if known is None:
            return columns
        self._drop_own_tests(var)
        keep = self._candidate_mask(var, known)[columns[1]]
        return tuple(column[keep] for column in columns)

    def _known_mask(self, var: str) -> NDArray[np.bool_] | None:
        known = self._candidates.get(var)
        return None if known is None else self._candidate_mask(var, known)

    def _candidate_mask(self, var: str, known: Candidates) -> NDArray[np.bool_]:
        if var not in self._masks:
            self._masks[var] = known.mask()
        return self._masks[var]

    # --- tests and weights -------------------------------------------------------------------------

    def _reduce_rows(self, frame: Frame) -> Frame:
        """Apply every test, weight and merge whose variables are bound by now."""
        return run_in_worker(
            frame.length, lambda: self._drop_unused_variables(self._apply_weights(self._apply_tests(frame)))
        )

    def _apply_tests(self, frame: Frame) -> Frame:
        if not self._tests:
            return frame
        bound, variables_of = frame.variables.keys(), self._pattern.variables_of
        ready = tuple(test for test in self._tests if variables_of(test) <= bound)
        if not ready:
            return frame
        self._tests = [test for test in self._tests if not variables_of(test) <= bound]
        with self._context.request.step("Filter", lambda: " and ".join(map(show_predicate, ready))) as step:
            passed = self._context.filter(frame, ready)
            step.rows = passed.length
        return passed

    def _split_off_branches(self, frame: Frame) -> None:
        """Take the branches that are only counted out of the walks."""
        if self._wanted is None or not self._wanted.counted or frame.ranks is not None:
            return
        found = split_pattern(self._pattern, self._wanted.variables, frozenset(frame.variables))
        self._branches = list(found.branches)
        self._walks = list(found.walks)
        self._tests = [test for test in self._tests if not self._pattern.variables_of(test) & found.hidden]

    def _apply_weights(self, frame: Frame) -> Frame:
        for branch in [branch for branch in self._branches if branch.anchor in frame.variables]:
            self._branches.remove(branch)
            with self._context.request.step("Count", partial(_show_branch, branch)) as step:
                frame = apply_weights(self._context, frame, branch, self._known_mask)
                step.rows = frame.length
        return frame

    def _drop_unused_variables(self, frame: Frame) -> Frame:
        if self._wanted is None:
            return frame
        needed = self._needed_variables(self._wanted)
        return merge_equal_rows(frame, needed) if self._wanted.counted else frame.keep_only(needed)

    def _needed_variables(self, wanted: WantedVariables) -> frozenset[str]:
        """Return the variables that a later step or the caller still needs."""
        needed = wanted.variables
        for step in self._walks:
            needed |= {step.source, step.target}
        for test in self._tests:
            needed |= self._pattern.variables_of(test)
        for branch in self._branches:
            needed |= {branch.anchor}
        return needed


def _count_variables(frame: Frame, step: p.Expand) -> int:
    """Return how many variables a row has after a walk."""
    return len(frame.variables) + (1 if step.edge_var is None else 2)


def _show_walk(step: p.Expand, ends: _Ends) -> str:
    before, after = {"out": ("-[", "]->"), "in": ("<-[", "]-"), "both": ("-[", "]-")}[ends.direction]
    hops = "" if (step.minimum, step.maximum) == (1, 1) else f"{{{step.minimum},{step.maximum}}}"
    edge = f"${step.edge_var}: {step.edge_type}" if step.edge_var else step.edge_type
    return f"${ends.near} {before}{edge}{hops}{after} ${ends.far}"


def _show_branch(branch: CountedBranch) -> str:
    ends = _Ends(branch.anchor, branch.far, branch.direction)
    return ", ".join([_show_walk(branch.walk, ends), *map(_show_branch, branch.branches)])
