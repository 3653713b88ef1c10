"""The algorithms as users call them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, Unpack

from omnigraph.arguments import check_arguments
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.errors import BadRequest
from omnigraph.query.algorithms.algorithm_request import AlgorithmOptions, AlgorithmRequest, AlgorithmResult
from omnigraph.query.algorithms.algorithms import (
    Algorithm,
    ConnectedComponents,
    Degree,
    LabelPropagation,
    PageRank,
    ShortestPaths,
    TriangleCount,
    names_of,
)
from omnigraph.query.algorithms.edge_block import WalkDirection
from omnigraph.query.algorithms.solver import ChooseSolver, LocalSolver, Opened, Solver, run_algorithm
from omnigraph.query.engine_choice import choose_by_size, find_spark, snapshot_bytes

Answer = TypeVar("Answer")


@check_arguments
class AlgorithmCalls(Generic[Answer]):
    """Every algorithm takes what `How` names.

    `nodes` and `edges` are the types that count, and `where` says which of their rows, by comparisons:
    `{"Person": "age >= 30", "Knows": "since > 2020"}`. `branch`, `commit`, `version` and `time` are the
    moment. `write_to`, such as `Person.rank`, is a property that gets the values, on the branch `onto`, or
    else on the one that was read; `from_` makes that branch where it is missing.
    """

    def pagerank(
        self,
        *,
        damping: float = 0.85,
        tolerance: float = 1e-9,
        max_iterations: int = 100,
        direction: WalkDirection = "out",
        weight: str | None = None,
        **how: Unpack[AlgorithmOptions],
    ) -> Answer:
        """How important each node is by the edges that lead to it; all together are 1.

        With a `weight` a walk takes each edge as often as that property of it says. `direction="in"` walks
        against the edges.
        """
        ranking = PageRank(damping, tolerance, max_iterations, direction, weight)
        return self._run(ranking, AlgorithmRequest(**how))

    def connected_components(self, **how: Unpack[AlgorithmOptions]) -> Answer:
        """Which nodes hang together, whichever way edges lead: the number of each node's component."""
        return self._run(ConnectedComponents(), AlgorithmRequest(**how))

    def label_propagation(self, *, max_iterations: int = 10, **how: Unpack[AlgorithmOptions]) -> Answer:
        """Which nodes are close to each other: the number of each node's community."""
        return self._run(LabelPropagation(max_iterations), AlgorithmRequest(**how))

    def shortest_paths(
        self,
        sources: str | Iterable[str],
        *,
        direction: WalkDirection = "out",
        weight: str | None = None,
        **how: Unpack[AlgorithmOptions],
    ) -> Answer:
        """How far each node is from the nearest source, in edges or in the sum of their property `weight`.

        With `direction="in"` it is how far each node has to go to the nearest of them. Sources are ids, or
        `Type:id` where several types have the same.
        """
        return self._run(ShortestPaths(names_of(sources), direction, weight), AlgorithmRequest(**how))

    def triangle_count(self, **how: Unpack[AlgorithmOptions]) -> Answer:
        """In how many triangles each node is."""
        return self._run(TriangleCount(), AlgorithmRequest(**how))

    def degree(
        self, *, direction: WalkDirection = "both", distinct: bool = False, **how: Unpack[AlgorithmOptions]
    ) -> Answer:
        """How many edges each node has, or with `distinct` how many neighbours."""
        return self._run(Degree(direction, distinct), AlgorithmRequest(**how))

    def _run(self, algorithm: Algorithm, request: AlgorithmRequest) -> Answer:
        raise NotImplementedError


class Algorithms(AlgorithmCalls[AlgorithmResult]):
    """What `graph.algorithms` gives: results as Arrow, computed in this process or on Spark."""

    def __init__(
        self, reading: Callable[[], OpenGraph], writing: Callable[[], OpenGraph], spark: Callable[[], Any]
    ) -> None:
        self._reading = reading
        self._writing = writing
        self._spark = spark

    def __repr__(self) -> str:
        return f"<Algorithms of '{self._reading().root.uri}'>"

    def run_on(
        self, choose: ChooseSolver, algorithm: Algorithm, request: AlgorithmRequest
    ) -> AlgorithmResult:
        """Return the outcome of an algorithm run by a chosen solver."""
        return run_algorithm(Opened(self._reading, self._writing), algorithm, request, choose)

    def _run(self, algorithm: Algorithm, request: AlgorithmRequest) -> AlgorithmResult:
        return self.run_on(self._choose_solver, algorithm, request)

    def _choose_solver(self, graph: OpenGraph, snapshot: Snapshot, engine: str) -> Solver:
        if engine == "local":
            return LocalSolver(graph, "it was asked for")
        if engine == "spark":
            return self._on_spark("it was asked for")
        if engine != "auto":
            raise BadRequest(f"there is no engine '{engine}'", remedy="choose one of: auto, local, spark")
        chosen = choose_by_size(snapshot_bytes(snapshot), find_spark)
        return LocalSolver(graph, chosen.why) if chosen.engine == "local" else self._on_spark(chosen.why)

    def _on_spark(self, why: str) -> Solver:
        solver: Solver = self._spark().algorithms.solver(why)
        return solver
