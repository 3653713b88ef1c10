"""The algorithms: vectors over all nodes here, edges wherever they are.

Each asks edges, round after round, what arrives at the nodes. It knows neither tables nor who does the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.arguments import require_number, require_whole
from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import BadRequest, InvalidValue
from omnigraph.lang.types import F64, I64, ValueType
from omnigraph.query.algorithms.edge_block import (
    Arrangement,
    Block,
    Commonest,
    Edges,
    Flows,
    Least,
    Numbers,
    Part,
    Sums,
    Triangles,
    WalkDirection,
    count_arrivals,
    count_departures,
    list_outflow,
)
from omnigraph.query.algorithms.local_graph import Numbering
from omnigraph.query.exact_sums import LARGEST_PART, Floats, sums_by_group

WAYS: tuple[WalkDirection, ...] = ("out", "in", "both")


@dataclass(frozen=True, slots=True)
class Values:
    """A value for each node by its number, and how many rounds it took."""

    column: pa.Array
    rounds: int = 1
    converged: bool = True
    """Whether another round would have changed nothing, or less than what counts."""


class Algorithm(Protocol):
    """Something to find out about every node."""

    @property
    def name(self) -> str:
        """What users call it."""
        ...

    @property
    def arrangement(self) -> Arrangement:
        """How it needs the edges."""
        ...

    @property
    def type(self) -> ValueType:
        """The type of its values."""
        ...

    def run(self, edges: Edges, nodes: Numbering) -> Values:
        """The value of each node."""
        ...


@dataclass(frozen=True, slots=True)
class PageRank:
    """The probability that a random walk is at a node, restarting anywhere now and then.

    At a node without edges to take the walk restarts as well. Parallel edges count each, or as much as their
    weight: an edge of weight 0 is never taken.
    """

    damping: float = 0.85
    tolerance: float = 1e-9
    max_iterations: int = 100
    way: WalkDirection = "out"
    weight: str | None = None

    name = "pagerank"
    type = F64

    def __post_init__(self) -> None:
        require_number("damping", self.damping)
        require_number("tolerance", self.tolerance)
        if not 0 <= self.damping < 1:
            raise InvalidValue(f"damping must be at least 0 and less than 1, got {self.damping}")
        if not self.tolerance > 0:
            raise InvalidValue(f"tolerance must be more than 0, got {self.tolerance}")
        _require_rounds(self.max_iterations)
        require_way(self.way)

    @property
    def arrangement(self) -> Arrangement:
        """The edges the way they are walked."""
        return Arrangement(self.way, weight=self.weight)

    def run(self, edges: Edges, nodes: Numbering) -> Values:
        """Round after round, until all changes together are less than the tolerance."""
        count = edges.count
        if count == 0:
            return Values(pa.array([], pa.float64()), 0)
        leaving = _count_leaving(edges) if self.weight is None else _sum_outflow(edges, self.weight)
        stuck = leaving == 0
        share = np.divide(1.0, leaving, out=np.zeros(count), where=~stuck)
        rank, change, rounds = np.full(count, 1 / count), np.inf, 0
        while change >= self.tolerance and rounds < self.max_iterations:
            before, rounds = rank, rounds + 1
            passed = Sums(before * share) if self.weight is None else Flows(before, leaving)
            arrived = _sum_arrivals(edges, passed)
            rank = (1 - self.damping) / count + self.damping * (arrived + before[stuck].sum() / count)
            change = float(np.abs(rank - before).sum())
        return Values(pa.array(rank), rounds, change < self.tolerance)


def _count_leaving(edges: Edges) -> Floats:
    leaving = np.zeros(edges.count)
    for some, counts in edges.parts("counting edges", count_departures):
        leaving[some] += counts
    return leaving


def _sum_outflow(edges: Edges, weight: str) -> Floats:
    """The sum of the weights that leave each node, the same however edges are distributed over blocks."""
    found = list(edges.parts("adding weights", list_outflow))
    nodes = np.concatenate([np.empty(0, dtype=np.int64), *(some for some, _ in found)])
    parts = np.concatenate([np.empty(0), *(values for _, values in found)])
    if not np.isfinite(parts).all():
        raise BadRequest(
            f"a '{weight}' is {LARGEST_PART:.0e} or more, too much to share a rank by",
            remedy="choose another property, or leave the weight out",
        )
    return sums_by_group(nodes, edges.count, parts).totals()[0]


def _sum_arrivals(edges: Edges, passed: Sums | Flows) -> Floats:
    arrived = np.zeros(edges.count)
    for some, sums in edges.parts("passing on ranks", passed):
        arrived[some] = sums
    return arrived


@dataclass(frozen=True, slots=True)
class ConnectedComponents:
    """Parts of the graph that no edge joins, either way; numbered from 0 by their first node."""

    name = "connected_components"
    arrangement = Arrangement("both")
    type = I64

    def run(self, edges: Edges, nodes: Numbering) -> Values:
        """Every node points to a smaller one of its component, and in the end all to the smallest.

        A node hands what it heard on to where it points, and pointers are followed to their end each round,
        so that the rounds grow with the logarithm of the longest way.
        """
        points, rounds = np.arange(edges.count), 0
        while True:
            heard = points.copy()
            for some, least in edges.parts("joining components", Least(points)):
                heard[some] = np.minimum(heard[some], least)
            rounds += 1
            if np.array_equal(heard, points):
                return Values(pa.array(_renumber_labels(points)), rounds)
            np.minimum.at(heard, points, heard.copy())
            points = _follow_pointers(heard)


def _follow_pointers(points: Numbers) -> Numbers:
    while True:
        further = points[points]
        if np.array_equal(further, points):
            return points
        points = further


@dataclass(frozen=True, slots=True)
class LabelPropagation:
    """Communities: every node takes the label that most of its neighbours have, the smallest of several.

    All nodes change at once, and edges count both ways and each. Communities are numbered from 0 by their
    first node.
    """

    max_iterations: int = 10

    name = "label_propagation"
    arrangement = Arrangement("both")
    type = I64

    def __post_init__(self) -> None:
        _require_rounds(self.max_iterations)

    def run(self, edges: Edges, nodes: Numbering) -> Values:
        """Round after round, until no label changes."""
        labels, rounds, converged = np.arange(edges.count), 0, False
        while not converged and rounds < self.max_iterations:
            before, labels, rounds = labels, labels.copy(), rounds + 1
            for some, commonest in edges.parts("passing on labels", Commonest(before)):
                labels[some] = commonest
            converged = np.array_equal(before, labels)
        return Values(pa.array(_renumber_labels(labels)), rounds, converged)


def _renumber_labels(labels: Numbers) -> Numbers:
    """Labels as numbers from 0 on, in the order in which they are met."""
    _, first, places = np.unique(labels, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return np.asarray(number[places])


@dataclass(frozen=True, slots=True)
class ShortestPaths:
    """How far each node is from the nearest of some nodes: in edges, or in the sum of their weights.

    Against the edges (`in`) it is how far each node is on its way to the nearest of them. What is not
    reached has no value. A distance beyond the range of floats is the largest float.
    """

    sources: tuple[str, ...]
    way: WalkDirection = "out"
    weight: str | None = None

    name = "shortest_paths"

    def __post_init__(self) -> None:
        if not self.sources:
            raise InvalidValue(
                "shortest paths need a node to begin at", remedy="name one or more by their ids"
            )
        require_way(self.way)

    @property
    def arrangement(self) -> Arrangement:
        """The edges the way they are walked."""
        return Arrangement(self.way, weight=self.weight)

    @property
    def type(self) -> ValueType:
        """A number of edges, or a sum of weights."""
        return (I64 if self.weight is None else F64).with_nullable()

    def run(self, edges: Edges, nodes: Numbering) -> Values:
        """From the nodes that came nearer in the last round, on to their neighbours."""
        far = np.full(edges.count, np.inf)
        changed = np.unique(np.array([nodes.found(source) for source in self.sources], dtype=np.int64))
        far[changed] = 0.0
        rounds = 0
        while len(changed):
            nearer = [
                _find_nearer(far, some, least)
                for some, least in edges.parts("walking", Least(far, step=1, changed=changed))
            ]
            for some, least in nearer:
                far[some] = least
            changed = np.concatenate([np.empty(0, dtype=np.int64), *(some for some, _ in nearer)])
            rounds += 1
        missing = np.isinf(far)
        if self.weight is not None:
            return Values(pa.array(far, mask=missing), rounds)
        return Values(pa.array(np.where(missing, 0, far).astype(np.int64), mask=missing), rounds)


def _find_nearer(
    far: NDArray[np.float64], some: Numbers, least: NDArray[np.float64]
) -> tuple[Numbers, NDArray[np.float64]]:
    better = np.flatnonzero(least < far[some])
    return some[better], least[better]


@dataclass(frozen=True, slots=True)
class TriangleCount:
    """In how many triangles each node is; which way edges lead, parallel edges and loops do not matter."""

    name = "triangle_count"
    arrangement = Arrangement("both", distinct=True, corners=True)
    type = I64

    def run(self, edges: Edges, nodes: Numbering) -> Values:
        """Corner by corner."""
        return Values(pa.array(_sum_parts(edges, "finding triangles", Triangles(edges.corners))))


@dataclass(frozen=True, slots=True)
class Degree:
    """How many edges leave each node (`out`), arrive at it (`in`), or either; a loop then counts once."""

    way: WalkDirection = "both"
    distinct: bool = False
    """Whether neighbours are counted instead of edges."""

    name = "degree"
    type = I64

    def __post_init__(self) -> None:
        require_way(self.way)

    @property
    def arrangement(self) -> Arrangement:
        """The edges so that those to be counted arrive."""
        turned: dict[WalkDirection, WalkDirection] = {"out": "in", "in": "out", "both": "both"}
        return Arrangement(turned[self.way], self.distinct)

    def run(self, edges: Edges, nodes: Numbering) -> Values:
        """One look at each edge."""
        return Values(pa.array(_sum_parts(edges, "counting edges", count_arrivals)))


def _sum_parts(edges: Edges, stage: str, task: Callable[[Block], Part]) -> Numbers:
    total = np.zeros(edges.count, dtype=np.int64)
    for some, counts in edges.parts(stage, task):
        total[some] += counts
    return total


def require_way(way: str) -> None:
    """Refuse a word that is no direction."""
    if way not in WAYS:
        raise InvalidValue(f"'{way}' is not a direction", remedy=f"choose one of: {', '.join(WAYS)}")


def _require_rounds(most: int) -> None:
    require_whole("max_iterations", most, 1)


def names_of(given: object) -> tuple[str, ...]:
    """One or several nodes."""
    if isinstance(given, str):
        return (given,)
    names: list[object] = [*given] if isinstance(given, Iterable) else [given]
    found = tuple(name for name in names if isinstance(name, str))
    if len(found) < len(names):
        raise InvalidValue(
            f"shortest paths begin at nodes, got {given!r}", remedy="name one or more of them by their ids"
        )
    return found
