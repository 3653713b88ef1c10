"""From a request to values: pin a snapshot, choose a solver and run the algorithm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.errors import HistoricalVersionReclaimed, StorageFailure
from omnigraph.lang.types import STRING
from omnigraph.progress import stage
from omnigraph.query.algorithms.algorithm_request import AlgorithmRequest
from omnigraph.query.algorithms.algorithms import Algorithm, Values
from omnigraph.query.algorithms.local_graph import LocalGraph
from omnigraph.query.algorithms.node_numbering import Numbering
from omnigraph.query.algorithms.outcome import AlgorithmResult
from omnigraph.query.algorithms.selection import Selection, require_weight, selection_of
from omnigraph.query.algorithms.write_values import base_of, write_values
from omnigraph.query.read_cache import shared_cache
from omnigraph.query.sources import SnapshotSources
from omnigraph.query.topology.file_blocks import DamagedFile

Solved = tuple[Numbering, Values]


class Solver(Protocol):
    """Carries out an algorithm on a part of a snapshot."""

    @property
    def name(self) -> str:
        """What a receipt calls it."""
        ...

    @property
    def why(self) -> str:
        """Why it was chosen."""
        ...

    def solve(self, algorithm: Algorithm, snapshot: Snapshot, selection: Selection) -> Solved:
        """The nodes, and a value for each."""
        ...


@dataclass(frozen=True, slots=True)
class LocalSolver:
    """This process."""

    graph: OpenGraph
    why: str
    name = "local"

    def solve(self, algorithm: Algorithm, snapshot: Snapshot, selection: Selection) -> Solved:
        """On topologies of the memory that reads share."""
        try:
            return self._solved(algorithm, snapshot, selection, saved=True)
        except DamagedFile:
            shared_cache().forget_graph(self.graph.root.uri)
            return self._solved(algorithm, snapshot, selection, saved=False)

    def _solved(
        self, algorithm: Algorithm, snapshot: Snapshot, selection: Selection, *, saved: bool
    ) -> Solved:
        catalog = self.graph.catalog_at(snapshot)
        sources = SnapshotSources(self.graph, snapshot, catalog, shared_cache(), saved=saved)
        try:
            chosen = LocalGraph(sources, selection)
            edges = chosen.edges(algorithm.arrangement)
        except StorageFailure as failure:
            raise sources.explain_failure(failure) from failure
        finally:
            sources.settle()
        return chosen.nodes, algorithm.run(edges, chosen.nodes)


@dataclass(frozen=True, slots=True)
class Opened:
    """A graph that may be read, and written if it is not open for reading only."""

    reading: Callable[[], OpenGraph]
    writing: Callable[[], OpenGraph]


ChooseSolver = Callable[[OpenGraph, Snapshot, str], Solver]


def run(
    opened: Opened, algorithm: Algorithm, request: AlgorithmRequest, choose: ChooseSolver
) -> AlgorithmResult:
    """The values of all nodes, written to a property as well where that is asked for."""
    graph = opened.reading()
    destination = request.destination(graph.schema().catalog, algorithm.type)
    if destination is not None:
        # Report a denial and a missing branch before the work.
        opened.writing().permissions.require("change", branch=destination.branch, actor=destination.actor)
        base_of(opened.writing(), destination)
    try:
        found = _found(graph, algorithm, request, choose)
    except HistoricalVersionReclaimed:
        if not isinstance(request.target, AtBranch):
            raise
        # The branch moved on and what it showed was cleaned up meanwhile.
        found = _found(graph, algorithm, request, choose)
    if destination is None:
        return found
    # However many edges there are, the nodes may be few: a load decides for itself.
    engine = "local" if request.engine == "local" else "auto"
    written = write_values(opened.writing(), found.table, destination, engine)
    return replace(found, written=written)


def _found(
    graph: OpenGraph, algorithm: Algorithm, request: AlgorithmRequest, choose: ChooseSolver
) -> AlgorithmResult:
    target = request.target
    snapshot = graph.snapshot(target)
    selection = selection_of(graph.catalog_at(snapshot), request.nodes, request.edges)
    if algorithm.arrangement.weight is not None:
        require_weight(selection.edges, algorithm.arrangement.weight)
    solver = choose(graph, snapshot, request.engine)
    # The number of rounds is not known beforehand.
    with stage(algorithm.name.replace("_", " "), tasks=None):
        nodes, values = solver.solve(algorithm, snapshot, selection)
    live = isinstance(target, AtBranch)
    return AlgorithmResult(
        nodes.table(values.column),
        (STRING, STRING, algorithm.type),
        algorithm.name,
        snapshot.branch if live else None,
        None if live else snapshot.id,
        snapshot.commit.id if snapshot.commit else None,
        values.rounds,
        values.converged,
        solver.name,
        solver.why,
    )
