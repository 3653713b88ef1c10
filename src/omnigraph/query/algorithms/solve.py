"""From a request to values: a moment is pinned, and somebody carries the algorithm out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from omnigraph.engine.opened import AtBranch, OpenGraph
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import HistoricalVersionReclaimed, StorageFailure
from omnigraph.lang.types import STRING
from omnigraph.progress import stage
from omnigraph.query.algorithms.algorithms import Algorithm, Values
from omnigraph.query.algorithms.local import LocalGraph
from omnigraph.query.algorithms.numbering import Numbering
from omnigraph.query.algorithms.outcome import Outcome
from omnigraph.query.algorithms.request import AlgorithmRequest
from omnigraph.query.algorithms.selection import Selection, require_weight, selection_of
from omnigraph.query.algorithms.writing import base_of, write_values
from omnigraph.query.memory import shared_memory
from omnigraph.query.sources import Sources
from omnigraph.query.topology.blocks import Damaged

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
        except Damaged:
            shared_memory().forget_graph(self.graph.root.uri)
            return self._solved(algorithm, snapshot, selection, saved=False)

    def _solved(
        self, algorithm: Algorithm, snapshot: Snapshot, selection: Selection, *, saved: bool
    ) -> Solved:
        catalog = self.graph.catalog_at(snapshot)
        sources = Sources(self.graph, snapshot, catalog, shared_memory(), saved=saved)
        try:
            chosen = LocalGraph(sources, selection)
            edges = chosen.edges(algorithm.arrangement)
        except StorageFailure as failure:
            raise sources.explained(failure) from failure
        finally:
            sources.settle()
        return chosen.nodes, algorithm.run(edges, chosen.nodes)


@dataclass(frozen=True, slots=True)
class Opened:
    """A graph that may be read, and written if it is not open for reading only."""

    reading: Callable[[], OpenGraph]
    writing: Callable[[], OpenGraph]


ChooseSolver = Callable[[OpenGraph, Snapshot, str], Solver]


def run(opened: Opened, algorithm: Algorithm, request: AlgorithmRequest, choose: ChooseSolver) -> Outcome:
    """The values of all nodes, written to a property as well where that is asked for."""
    graph = opened.reading()
    destination = request.destination(graph.schema().catalog, algorithm.type)
    if destination is not None:
        base_of(opened.writing(), destination)  # a branch that is not there is told at once
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
) -> Outcome:
    target = request.target
    snapshot = graph.snapshot(target)
    selection = selection_of(graph.catalog_at(snapshot), request.nodes, request.edges)
    if algorithm.arrangement.weight is not None:
        require_weight(selection.edges, algorithm.arrangement.weight)
    solver = choose(graph, snapshot, request.engine)
    # How many rounds it takes nobody knows.
    with stage(algorithm.name.replace("_", " "), tasks=None):
        nodes, values = solver.solve(algorithm, snapshot, selection)
    live = isinstance(target, AtBranch)
    return Outcome(
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
