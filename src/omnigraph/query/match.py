"""Carry out a pattern: start where there is least, then walk where there is least to come.

When rows are only counted, what nobody asks for is not written out: see `weigh.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from omnigraph.engine.columns import ID
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.explain import show_predicate
from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.query.cold import cold_hop, goes_cold
from omnigraph.query.frame import Frame, Positions, all_rows, concatenated
from omnigraph.query.interrupt import apart
from omnigraph.query.keyed import Keyed, keyed
from omnigraph.query.pattern import Pattern
from omnigraph.query.reading import Reading
from omnigraph.query.scan import Candidates, candidates
from omnigraph.query.topology import walk
from omnigraph.query.topology.linked import Linked
from omnigraph.query.topology.spread import pieces
from omnigraph.query.topology.topology import State
from omnigraph.query.turns import FEW, turns
from omnigraph.query.weigh import REVERSED, Branch, cut, merged, weighed

_DEEP = 16  # hops beyond which a guess of the rows to come says nothing
_VERY_FEW = 256
"""One candidate in so many nodes of another table."""
_SMALL = 4096
"""Fewer nodes are looked through in no time."""
ROWS_AT_ONCE = 1 << 17
"""About so many rows a hop makes at a time: what they need on the way is small beside a large result."""
_ADJACENT: dict[State, str] = {
    "in memory": "adjacency in memory",
    "stored": "adjacency read from its file",
    "to be sorted": "edges sorted first",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The variables the reader of the rows needs; the others are dropped once nothing here needs them."""

    variables: frozenset[str]
    counted: bool = True
    """Whether one row may stand for many, with a weight; else each is written out."""


@dataclass(frozen=True, slots=True)
class _Ends:
    """A walk as it is carried out: from an end that is bound."""

    near: str
    far: str
    direction: EdgeDirection


class Matcher:
    """One pattern being matched; `wanted` is None when every variable and every row is to be written out."""

    def __init__(self, reading: Reading, pattern: Pattern, wanted: Wanted | None) -> None:
        self._reading = reading
        self._pattern = pattern
        self._wanted = wanted
        self._walks = list(pattern.walks)
        self._tests = list(pattern.tests)
        self._branches: list[Branch] = []
        self._keyed: dict[str, Keyed | None] = {}
        self._known: dict[str, Candidates] = {}
        self._masks: dict[str, NDArray[np.bool_]] = {}

    def run(self, base: Frame | None) -> Frame:
        """The rows of the pattern; `base` is given when it does not begin with a scan."""
        frame = self._begun(base)
        while self._walks:
            frame = self._settled(self._walked(frame, self._next_walk(frame)))
        return frame

    def parts(self, base: Frame | None, *, piled: bool) -> Iterator[Frame]:
        """The same rows one part after the other, at least one part: those of the last walk are made
        when they are asked for. Unless they are `piled` up, there may be any number of them.
        """
        frame = self._begun(base)
        while len(self._walks) > 1:
            frame = self._settled(self._walked(frame, self._next_walk(frame)))
        if not self._walks:
            yield frame
            return
        step = self._next_walk(frame)
        ends = self._ends_of(step, frame)
        if ends.far in frame.variables or self._reading.request.steps is not None:
            yield self._settled(self._walked(frame, step))  # a step that is noted is done at once
            return
        cold = self._cold(frame, step, ends)
        tests = self._tests
        for part in self._grown(frame, step, ends, piled=piled) if cold is None else [cold]:
            yield self._settled(part)
            self._tests = tests

    def _begun(self, base: Frame | None) -> Frame:
        frame = self._started(self._root()) if base is None else base
        self._cut_branches(frame)
        return self._settled(frame)

    # --- where to start ----------------------------------------------------------------------------

    def _root(self) -> str:
        """The variable with the fewest candidates; where nothing is filtered, the one that saves most."""
        base = self._pattern.base
        assert isinstance(base, p.Scan)
        if not self._walks or not self._pattern.is_free:
            return base.var
        nodes = list(dict.fromkeys([base.var, *self._pattern.ends]))
        for var in nodes:
            if self._by_key(var) is not None:
                return var
        best = self._fewest(nodes)
        if best is not None and 4 * self._known[best].count <= self._reading.rows(best).live_count:
            return best
        return self._natural_root(nodes)

    def _fewest(self, nodes: list[str]) -> str | None:
        """The filtered variable with the fewest candidates, or of as many those that lead to least.

        Beside very few of one, all of a large table are not looked through: the rows that come of the few
        are tested when they are met.
        """
        filtered = [var for var in nodes if self._pattern.own_tests(var)]
        fewest = math.inf
        for var in sorted(filtered, key=lambda var: self._reading.rows(var).live_count):
            if self._reading.rows(var).live_count < max(_SMALL, fewest * _VERY_FEW):
                self._known[var] = self._looked_up(var)
                fewest = min(fewest, self._known[var].count)
        return min(self._known, key=lambda var: (self._known[var].count, self._fan_out(var)), default=None)

    def _fan_out(self, var: str) -> float:
        """About how many rows the least walk from a variable makes of one."""
        rows = max(1, self._reading.rows(var).live_count)
        edges = [
            self._reading.sources.edges(step.edge_type).live_count
            for step in self._pattern.walks
            if var in (step.source, step.target)
        ]
        return min(edges, default=0) / rows

    def _natural_root(self, nodes: list[str]) -> str:
        if self._wanted is None or not self._wanted.counted:
            return nodes[0]
        # What is asked for is written out anyway; else the middle of the pattern has most branches.
        asked = [var for var in nodes if var in self._wanted.variables]
        return max(asked or nodes, key=self._pattern.ends.count)

    def _started(self, var: str) -> Frame:
        found = self._known.get(var) or self._looked_up(var)
        self._drop_own_tests(var)
        return all_rows(var, found.positions)

    def _looked_up(self, var: str) -> Candidates:
        with self._reading.request.step("Scan", lambda: f"${var}: {self._reading.tables[var]}") as step:
            tests, named = self._pattern.own_tests(var), self._by_key(var)
            if named is not None:
                self._learn_ids(var)
            met = 0 if named or not tests else self._reading.rows(var).count
            found = apart(met, lambda: candidates(self._reading, var, tests, named))
            step.rows, step.how = found.count, found.how
        return found

    def _by_key(self, var: str) -> Keyed | None:
        """The ids of the nodes that a variable can be, where a test names them."""
        if var not in self._keyed:
            reading = self._reading
            named = self._pattern.own_tests(var) and self._pattern.key_tests(var, reading.key(var))
            self._keyed[var] = keyed(named, reading.bindings) if named else None
        return self._keyed[var]

    def _learn_ids(self, var: str) -> None:
        """Know the ids of a variable's type without its table, where the file of a walk from it has them."""
        if self._reading.rows(var).is_hot(ID):
            return
        for step in self._pattern.walks:
            if var in (step.source, step.target):
                self._reading.sources.learn_ids(step.edge_type)

    def _drop_own_tests(self, var: str) -> None:
        met = self._pattern.met
        self._tests = [test for test in self._tests if met(test) != {var}]

    # --- where to go next --------------------------------------------------------------------------

    def _next_walk(self, frame: Frame) -> p.Expand:
        """Tests of two bound ends first, then the walk with the fewest rows to come."""
        bound = frame.variables
        ready = [
            step
            for step in self._walks
            if step.source in bound or (step.target in bound and step.minimum == 1)
        ]
        best = min(ready, key=lambda step: self._growth(step, frame))
        self._walks.remove(best)
        return best

    def _growth(self, step: p.Expand, frame: Frame) -> float:
        ends = self._ends_of(step, frame)
        if ends.far in frame.variables:
            return -1.0
        edges = self._reading.sources.edges(step.edge_type).live_count
        fan_out = edges / max(1, self._reading.rows(ends.near).live_count)
        known = self._known.get(ends.far)
        share = 1.0 if known is None else known.count / max(1, known.total)
        return float(fan_out ** min(step.maximum, _DEEP) * share)

    def _ends_of(self, step: p.Expand, frame: Frame) -> _Ends:
        if step.source in frame.variables:
            return _Ends(step.source, step.target, step.direction)
        return _Ends(step.target, step.source, REVERSED[step.direction])

    # --- one walk ----------------------------------------------------------------------------------

    def _walked(self, frame: Frame, step: p.Expand) -> Frame:
        ends = self._ends_of(step, frame)
        with self._reading.request.step("Expand", lambda: _shown(step, ends)) as noted:
            if ends.far in frame.variables:
                noted.how = "both ends known"
                grown = apart(frame.length * step.maximum, lambda: self._closed(frame, step, ends))
            else:
                cold = self._cold(frame, step, ends)
                noted.how = self._adjacent(step, ends) if cold is None else "indexes of its ends"
                grown = self._all_grown(frame, step, ends) if cold is None else cold
            noted.rows = grown.length
        return grown

    def _closed(self, frame: Frame, step: p.Expand, ends: _Ends) -> Frame:
        """The rows whose two ends are linked."""
        linked = self._reading.sources.linked(step.edge_type)
        near, far = frame.variables[ends.near], frame.variables[ends.far]
        if step.edge_var is not None:
            rows, edges = walk.edges_between(linked, near, far, ends.direction)
            return self._taken(frame, rows).binding(step.edge_var, edges)
        if step.maximum == 1:
            return frame.filter(walk.connected(linked, near, far, ends.direction))
        met = np.zeros(frame.length, dtype=np.bool_)
        for rows in turns(linked, near, ends.direction, step.maximum):
            self._reading.request.check()
            met[rows] = walk.connected(
                linked, near[rows], far[rows], ends.direction, step.minimum, step.maximum
            )
        return frame.filter(met)

    def _cold(self, frame: Frame, step: p.Expand, ends: _Ends) -> Frame | None:
        """A hop through the indexes on disk, where that is less work than reading all edges."""
        near = frame.variables[ends.near]
        named = step.edge_var is not None
        if step.maximum > 1 or not goes_cold(
            self._reading, step.edge_type, near, ends.direction, named=named
        ):
            return None
        found = cold_hop(self._reading, step.edge_type, ends.near, ends.far, near, ends.direction)
        if step.edge_var is None:
            found = found.distinct()
            rows, targets = self._among(ends.far, found.rows, found.targets)
            return self._taken(frame, rows).binding(ends.far, targets)
        # Where an edge stands in its table is looked up only for a query that asks for edges.
        edges = self._reading.rows(step.edge_var).positions_of(found.edges)
        rows, targets, edges = self._among(ends.far, found.rows, found.targets, edges)
        return self._taken(frame, rows).binding(ends.far, targets).binding(step.edge_var, edges)

    def _adjacent(self, step: p.Expand, ends: _Ends) -> str:
        """Where the adjacency comes from that a walk is about to use."""
        topology = self._reading.sources.topology(step.edge_type)
        distinct = step.edge_var is None
        state: State = (
            "to be sorted" if topology is None else topology.state(ends.direction, distinct=distinct)
        )
        return _ADJACENT[state]

    def _grown(self, frame: Frame, step: p.Expand, ends: _Ends, *, piled: bool = True) -> Iterator[Frame]:
        """A row for each end that is reached, in parts, at least one."""
        linked = self._reading.sources.linked(step.edge_type)
        self._look_ahead(linked, frame, step, ends)
        kept, width = 0, _width(frame, step)
        # What nobody looks at any more is not written out; where rows are counted, it says what to merge.
        wanted = self._wanted
        carried = frame if wanted is None or wanted.counted else frame.keeping(self._needed(wanted))
        for part in self._steps(linked, frame, step, ends, piled=piled):
            rows, targets, *edges = self._among(ends.far, *part)
            kept = kept + len(rows) if piled else len(rows)
            self._reading.request.check(kept, width)
            grown = carried.take(rows).binding(ends.far, targets)
            yield grown if step.edge_var is None else grown.binding(step.edge_var, edges[0])

    def _all_grown(self, frame: Frame, step: p.Expand, ends: _Ends) -> Frame:
        coming = frame.length * (1 + self._growth(step, frame))
        return apart(coming, lambda: concatenated(list(self._grown(frame, step, ends))))

    def _look_ahead(self, linked: Linked, frame: Frame, step: p.Expand, ends: _Ends) -> None:
        """Find out which nodes are candidates where testing all of them is less than testing what comes."""
        if ends.far in self._known or not self._pattern.own_tests(ends.far):
            return
        if step.maximum == 1:
            fanout = walk.fanout(linked, frame.variables[ends.near], ends.direction, distinct=False)
            coming = float(fanout.sum())
        else:
            coming = frame.length * self._growth(step, frame)
        if 4 * coming > self._reading.rows(ends.far).live_count:
            self._known[ends.far] = self._looked_up(ends.far)

    def _steps(
        self, linked: Linked, frame: Frame, step: p.Expand, ends: _Ends, *, piled: bool
    ) -> Iterator[tuple[Positions, ...]]:
        """Incoming row, node reached and, where it has a name, edge of a walk; in parts, at least one."""
        near = frame.variables[ends.near]
        if step.maximum > 1:
            size = 0 if len(near) <= FEW else linked.topology.edge_count
            taken = apart(size, lambda: list(turns(linked, near, ends.direction, step.maximum)))
            for rows in taken:
                coming = len(rows) * self._growth(step, frame)
                begins = near[rows]
                found, targets = apart(
                    coming,
                    partial(walk.reach, linked, begins, ends.direction, step.minimum, step.maximum),
                )
                yield rows[found], targets
            return
        named = step.edge_var is not None
        # All that is read of files is read before the first part is handed over.
        hop = walk.begun(linked, near, ends.direction, named=named)
        if piled and self._reading.request.is_too_much(int(hop.fanout.sum()), _width(frame, step)):
            size = linked.topology.edge_count
            reached = apart(size, lambda: self._reached(linked, near, hop.fanout, ends, not named))
            self._reading.request.check(reached, _width(frame, step))
        for begin, end in list(pieces(hop.fanout, ROWS_AT_ONCE)) or [(0, 0)]:
            yield hop.part(begin, end)

    def _reached(
        self, linked: Linked, near: Positions, fanout: Positions, ends: _Ends, distinct: bool
    ) -> int:
        """How many rows a hop will leave, told without making them."""
        known = self._known.get(ends.far)
        if known is None:
            return int(fanout.sum())
        wanted = self._mask(ends.far, known).astype(np.int64)
        per_node = walk.weights(linked, wanted, ends.direction, distinct=distinct)
        return int(per_node[near[near >= 0]].sum())

    def _taken(self, frame: Frame, rows: Positions) -> Frame:
        self._reading.request.check(len(rows), len(frame.variables))
        return frame.take(rows)

    def _among(self, var: str, *columns: Positions) -> tuple[Positions, ...]:
        """Only what leads to candidates of the variable, where these are known; targets come second."""
        known = self._known.get(var)
        if known is None:
            return columns
        self._drop_own_tests(var)
        keep = self._mask(var, known)[columns[1]]
        return tuple(column[keep] for column in columns)

    def _known_mask(self, var: str) -> NDArray[np.bool_] | None:
        known = self._known.get(var)
        return None if known is None else self._mask(var, known)

    def _mask(self, var: str, known: Candidates) -> NDArray[np.bool_]:
        if var not in self._masks:
            self._masks[var] = known.mask()
        return self._masks[var]

    # --- tests and weights -------------------------------------------------------------------------

    def _settled(self, frame: Frame) -> Frame:
        """The rows after everything that can be decided about them by now."""
        return apart(frame.length, lambda: self._merged(self._weighed(self._tested(frame))))

    def _tested(self, frame: Frame) -> Frame:
        if not self._tests:
            return frame
        bound, met = frame.variables.keys(), self._pattern.met
        ready = tuple(test for test in self._tests if met(test) <= bound)
        if not ready:
            return frame
        self._tests = [test for test in self._tests if not met(test) <= bound]
        with self._reading.request.step("Filter", lambda: " and ".join(map(show_predicate, ready))) as step:
            passed = self._reading.passing(frame, ready)
            step.rows = passed.length
        return passed

    def _cut_branches(self, frame: Frame) -> None:
        """Leave the parts of the pattern that are only counted out of the walks."""
        if self._wanted is None or not self._wanted.counted or frame.ranks is not None:
            return
        found = cut(self._pattern, self._wanted.variables, frozenset(frame.variables))
        self._branches = list(found.branches)
        self._walks = list(found.walks)
        self._tests = [test for test in self._tests if not self._pattern.met(test) & found.hidden]

    def _weighed(self, frame: Frame) -> Frame:
        for branch in [branch for branch in self._branches if branch.anchor in frame.variables]:
            self._branches.remove(branch)
            with self._reading.request.step("Count", partial(_counted, branch)) as step:
                frame = weighed(self._reading, frame, branch, self._known_mask)
                step.rows = frame.length
        return frame

    def _merged(self, frame: Frame) -> Frame:
        if self._wanted is None:
            return frame
        needed = self._needed(self._wanted)
        return merged(frame, needed) if self._wanted.counted else frame.keeping(needed)

    def _needed(self, wanted: Wanted) -> frozenset[str]:
        """The variables that somebody still looks at."""
        needed = wanted.variables
        for step in self._walks:
            needed |= {step.source, step.target}
        for test in self._tests:
            needed |= self._pattern.met(test)
        for branch in self._branches:
            needed |= {branch.anchor}
        return needed


def _width(frame: Frame, step: p.Expand) -> int:
    """How many variables a row has after a walk."""
    return len(frame.variables) + (1 if step.edge_var is None else 2)


def _shown(step: p.Expand, ends: _Ends) -> str:
    before, after = {"out": ("-[", "]->"), "in": ("<-[", "]-"), "both": ("-[", "]-")}[ends.direction]
    hops = "" if (step.minimum, step.maximum) == (1, 1) else f"{{{step.minimum},{step.maximum}}}"
    edge = f"${step.edge_var}: {step.edge_type}" if step.edge_var else step.edge_type
    return f"${ends.near} {before}{edge}{hops}{after} ${ends.far}"


def _counted(branch: Branch) -> str:
    ends = _Ends(branch.anchor, branch.far, branch.direction)
    return ", ".join([_shown(branch.walk, ends), *map(_counted, branch.branches)])
