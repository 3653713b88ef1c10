"""From a request to values: pin a snapshot, choose a solver and run the algorithm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.branches.manage import create_branch
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.load.loader import load
from omnigraph.engine.load.request import LoadRequest
from omnigraph.engine.load.spool import PassedRows
from omnigraph.engine.tasks.runner import select_engine
from omnigraph.engine.write.transaction import Author, ReadTables
from omnigraph.errors import BadRequest, HistoricalVersionReclaimed, ReadSetChanged, StorageFailure
from omnigraph.lang.types import STRING
from omnigraph.progress import stage
from omnigraph.query.algorithms.algorithm_request import (
    AlgorithmRequest,
    AlgorithmResult,
    Destination,
    Selection,
    WrittenProperty,
    require_weight,
    selection_of,
)
from omnigraph.query.algorithms.algorithms import Algorithm, Values
from omnigraph.query.algorithms.local_graph import LocalGraph, Numbering
from omnigraph.query.read_cache import shared_cache
from omnigraph.query.sources import SnapshotSources
from omnigraph.query.topology.file_blocks import DamagedFile
from omnigraph.storage.scratch import TemporaryFolder, write_rows

_ATTEMPTS = 5
_BATCH_ROWS = 16_384


def write_values(graph: OpenGraph, values: pa.Table, to: Destination, engine: str) -> WrittenProperty:
    """Give the nodes of a branch their values; nodes that are not among these stay as they are.

    A load replaces rows whole, so it takes effect only while their table is the one they were read from;
    when another writer changed it, they are read again.
    """
    wanted = values.filter(pc.equal(values.column("type"), to.type)).combine_chunks()
    for attempt in range(_ATTEMPTS):
        try:
            return _write_values(graph, wanted, to, engine)
        except ReadSetChanged:
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def _write_values(graph: OpenGraph, values: pa.Table, to: Destination, engine: str) -> WrittenProperty:
    snapshot = base_of(graph, to)
    missing = snapshot.branch != to.branch
    with TemporaryFolder("values") as folder:
        file = folder / f"{to.type}.arrow"
        rows = _spool_batches(file, _find_changed_nodes(graph, snapshot, values, to))
        if rows == 0:
            if missing:
                create_branch(graph, to.branch, from_branch=snapshot.branch, actor=to.actor)
            return WrittenProperty(to.type, to.property, to.branch, 0, None, missing)
        key = table_key("node", to.type)
        read = ReadTables(None if missing else snapshot.incarnation, {key: snapshot.entries[key]})
        done = load(
            graph,
            LoadRequest((PassedRows(str(file), to.type),), Mode.MERGE),
            Author(to.branch, to.actor, if_tables=read, message=to.message),
            from_=to.from_,
            engine=partial(select_engine, engine),
        )
    return WrittenProperty(to.type, to.property, to.branch, rows, done.commit, done.branch_created)


def base_of(graph: OpenGraph, to: Destination) -> Snapshot:
    """The branch as it is now, or the one that it is to be made from."""
    missing = to.from_ is not None and to.branch not in graph.branch_names()
    return graph.snapshot(AtBranch(parse_branch_name(str(to.from_)) if missing else to.branch))


def _spool_batches(file: Path, batches: Iterator[pa.RecordBatch]) -> int:
    first = next(batches)
    return write_rows(file, first.schema, chain((first,), batches))


def _find_changed_nodes(
    graph: OpenGraph, snapshot: Snapshot, values: pa.Table, to: Destination
) -> Iterator[pa.RecordBatch]:
    """The nodes that get another value, whole; first an empty batch with the schema."""
    table = open_table(graph, snapshot, table_key("node", to.type))
    if to.property not in table.schema.names:
        raise BadRequest(
            f"'{to.type}' has no property '{to.property}' on branch '{to.branch}'",
            remedy="take over the schema of main there first",
        )
    kind = table.schema.field(to.property).type
    cast = _to_stored_type(values.column("value"), kind, to)
    ids = values.column(ID).combine_chunks()
    begun = False
    for batch in table.batches(table.schema.names, batch_size=_BATCH_ROWS, blob_bytes=True):
        if not begun:
            begun = True
            yield batch.slice(0, 0)
        yield _with_values(batch, ids, cast, to.property)
    if not begun:
        yield pa.RecordBatch.from_pylist([], schema=table.schema)


def _to_stored_type(values: pa.ChunkedArray, kind: pa.DataType, to: Destination) -> pa.Array:
    try:
        return values.combine_chunks().cast(kind)
    except pa.ArrowInvalid as failure:
        raise BadRequest(
            f"a value does not fit '{to.type}.{to.property}', which is {kind}",
            remedy="choose a property with a wider type",
        ) from failure


def _with_values(batch: pa.RecordBatch, ids: pa.Array, values: pa.Array, name: str) -> pa.RecordBatch:
    places = pc.index_in(batch.column(ID), value_set=ids.cast(batch.column(ID).type))
    known = places.is_valid()
    new = values.take(places)
    old = batch.column(name)
    same = pc.or_(pc.equal(new, old).fill_null(False), pc.and_(new.is_null(), old.is_null()))
    at = batch.schema.get_field_index(name)
    chosen = np.flatnonzero(pc.and_not(known, same).to_numpy(zero_copy_only=False))
    return batch.set_column(at, batch.schema.field(name), new).take(pa.array(chosen))


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
            return self._solve_on_topologies(algorithm, snapshot, selection, saved=True)
        except DamagedFile:
            shared_cache().forget_graph(self.graph.root.uri)
            return self._solve_on_topologies(algorithm, snapshot, selection, saved=False)

    def _solve_on_topologies(
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


def run_algorithm(
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
        found = _compute_values(graph, algorithm, request, choose)
    except HistoricalVersionReclaimed:
        if not isinstance(request.target, AtBranch):
            raise
        # The branch moved on and what it showed was cleaned up meanwhile.
        found = _compute_values(graph, algorithm, request, choose)
    if destination is None:
        return found
    # However many edges there are, the nodes may be few: a load decides for itself.
    engine = "local" if request.engine == "local" else "auto"
    written = write_values(opened.writing(), found.table, destination, engine)
    return replace(found, written=written)


def _compute_values(
    graph: OpenGraph, algorithm: Algorithm, request: AlgorithmRequest, choose: ChooseSolver
) -> AlgorithmResult:
    target = request.target
    snapshot = graph.snapshot(target)
    selection = selection_of(graph.catalog_at(snapshot), request.nodes, request.edges, request.where)
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
