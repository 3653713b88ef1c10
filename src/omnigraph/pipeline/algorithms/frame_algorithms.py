"""The algorithms as `graph.spark()` has them: carried out by tasks, results as DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.errors import BadRequest
from omnigraph.graph import Graph
from omnigraph.pipeline.algorithms.spark_graph import SparkGraph
from omnigraph.query.algorithms.algorithm_request import AlgorithmRequest, Selection
from omnigraph.query.algorithms.algorithms import Algorithm
from omnigraph.query.algorithms.calls import AlgorithmCalls
from omnigraph.query.algorithms.solver import Solved, Solver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class SparkSolver:
    """Tasks of Spark."""

    graph: Graph
    spark: SparkSession
    why: str
    name = "spark"

    def solve(self, algorithm: Algorithm, snapshot: Snapshot, selection: Selection) -> Solved:
        """With vectors in this process and edges in tasks."""
        pinned = self.graph.at(version=snapshot.version, branch=snapshot.branch)
        chosen = SparkGraph(self.spark, self.graph.uri, pinned, selection)
        with chosen.arrange_edges(algorithm.arrangement) as edges:
            return chosen.nodes, algorithm.run(edges, chosen.nodes)


class FrameAlgorithms(AlgorithmCalls["DataFrame"]):
    """What `graph.spark().algorithms` gives: the columns `id`, `type` and `value` as a DataFrame."""

    def __init__(self, graph: Graph, spark: SparkSession) -> None:
        self._graph = graph
        self._spark = spark

    def solver(self, why: str) -> Solver:
        """What carries out algorithms for others."""
        return SparkSolver(self._graph, self._spark, why)

    def _run(self, algorithm: Algorithm, request: AlgorithmRequest) -> DataFrame:
        if request.engine not in ("auto", "spark"):
            raise BadRequest(
                f"DataFrames are made by Spark, not by '{request.engine}'", remedy="use `graph.algorithms`"
            )
        found = self._graph.algorithms.run_on(self._choose_solver, algorithm, request)
        return self._spark.createDataFrame(found.table)

    def _choose_solver(self, graph: OpenGraph, snapshot: Snapshot, engine: str) -> Solver:
        return self.solver("it was asked for")
