"""Run a compiled read on a target: pin it, run the plan, hand over the result."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from omnigraph.embed.embedder import Embedder
from omnigraph.embed.query import EmbeddedProperty, embed_query
from omnigraph.engine.opened import AtBranch, OpenGraph, Target
from omnigraph.engine.snapshot import Snapshot
from omnigraph.errors import OmnigraphError, QueryError, ResourceLimitExceeded, StorageFailure
from omnigraph.lang.values import Stored
from omnigraph.query.explain import Explained
from omnigraph.query.interrupt import Asking, promptly
from omnigraph.query.memory import Memory, shared_memory
from omnigraph.query.point import Point
from omnigraph.query.prepared import Prepared
from omnigraph.query.reading import Reading
from omnigraph.query.request import Limits, Request
from omnigraph.query.result import OneRow, Result
from omnigraph.query.run import Runner
from omnigraph.query.search.scores import Scores
from omnigraph.query.sources import Sources, known_rows
from omnigraph.query.topology.blocks import Damaged

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pinned:
    """What a read was asked of, and the snapshot that this means."""

    target: Target
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one graph; what it learns stays in memory for the next read."""

    graph: OpenGraph
    embedder: Embedder | None = None
    memory: Memory = field(default_factory=shared_memory)

    def read(
        self, query: Prepared, parameters: Mapping[str, Stored], pinned: Pinned, limits: Limits
    ) -> Result:
        """The rows of a query."""
        found = self._found(query, Request(parameters, _now(), limits), pinned)
        live = isinstance(pinned.target, AtBranch)
        commit = pinned.snapshot.commit
        return Result(
            found,
            query.types,
            query.name,
            pinned.snapshot.branch if live else None,
            None if live else pinned.snapshot.id,
            commit.id if commit else None,
        )

    def stream(
        self,
        query: Prepared,
        parameters: Mapping[str, Stored],
        pinned: Pinned,
        limits: Limits,
        size: int,
    ) -> pa.RecordBatchReader:
        """The rows of a query in batches, fetched as they are asked for."""
        request = Request(parameters, _now(), limits)
        return pa.RecordBatchReader.from_batches(query.schema, self._streamed(query, request, pinned, size))

    def _streamed(
        self, query: Prepared, request: Request, pinned: Pinned, size: int
    ) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches(query, request, self._sources(pinned), size)
        except Damaged:
            # All of a file that a query needs is read before the first batch is handed over: none was.
            yield from self._batches(query, request, self._without_files(pinned), size)

    def _batches(
        self, query: Prepared, request: Request, sources: Sources, size: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        asking = Asking(request, sources.settle)
        found = promptly(self._runner(query, request, sources).batches(query.plan, size), asking)
        try:
            yield from _limited(found, query, request)
        except StorageFailure as failure:
            raise sources.explained(failure) from failure
        except (pa.ArrowInvalid, pa.ArrowCapacityError) as failure:
            if "overflow" not in str(failure) and not isinstance(failure, pa.ArrowCapacityError):
                raise
            raise QueryError(
                f"the texts that one step of query '{query.name}' looks at come to more than 2 GiB",
                remedy="filter before, or ask for less at a time",
            ) from failure
        finally:
            asking.settle()

    def explain(
        self, query: Prepared, parameters: Mapping[str, Stored], pinned: Pinned, limits: Limits
    ) -> Explained:
        """What running a query does, step by step; it is run for that."""
        request = Request(parameters, _now(), limits, steps=[])
        begun = time.perf_counter()
        found = self._found(query, request, pinned)
        elapsed = (time.perf_counter() - begun) * 1000
        return Explained(query.name, tuple(request.steps or ()), len(found), elapsed)

    def _found(self, query: Prepared, request: Request, pinned: Pinned) -> pa.Table | OneRow:
        found = None if query.point is None else self._at_once(query.point, request, pinned)
        return self._run(query, request, pinned) if found is None else found

    def _at_once(self, point: Point, request: Request, pinned: Pinned) -> OneRow | None:
        """What a look into memory tells; None when it takes more than that."""
        if request.limits.rows == 0:
            return None  # too many rows are told elsewhere
        with request.step("Lookup", point.shown) as step:
            rows = known_rows(self.graph, pinned.snapshot, self.memory, point.table)
            found = None if rows is None else point.found(rows, request.bindings)
            step.rows, step.how = 0 if found is None else len(found), "in memory, by key"
        if found is None and request.steps is not None:
            request.steps.clear()
        return found

    def _run(self, query: Prepared, request: Request, pinned: Pinned) -> pa.Table:
        try:
            batches = list(self._batches(query, request, self._sources(pinned)))
        except Damaged:
            if request.steps is not None:
                request.steps.clear()
            batches = list(self._batches(query, request, self._without_files(pinned)))
        # Nothing has a name of its own in a result that says there is nothing.
        return pa.Table.from_batches(batches, batches[0].schema if batches else query.schema)

    def _sources(self, pinned: Pinned, *, saved: bool = True) -> Sources:
        snapshot = pinned.snapshot
        catalog = self.graph.catalog_at(snapshot)
        return Sources(self.graph, snapshot, catalog, self.memory, saved=saved)

    def _without_files(self, pinned: Pinned) -> Sources:
        """The same tables anew, after a file of sorted edges turned out to be damaged."""
        self.memory.forget_graph(self.graph.root.uri)
        return self._sources(pinned, saved=False)

    def _runner(self, query: Prepared, request: Request, sources: Sources) -> Runner:
        scores = Scores(request, sources.catalog, self.memory, self._embedded)
        return Runner(Reading(request, sources, scores, query.tables, query.outline))

    def _embedded(self, declared: EmbeddedProperty, text: str) -> Sequence[float]:
        vector = embed_query(self.embedder, text, declared)
        return [float(number) for number in vector]


def keep_topologies(graph: OpenGraph, branch: str) -> None:
    """Prepare the files that make the first walk of a new process fast."""
    try:
        snapshot = graph.snapshot(AtBranch(branch))
        # What this process has in memory may be numbered in its own way: nothing of it is used.
        Sources(graph, snapshot, graph.catalog_at(snapshot), Memory(0)).keep_topologies()
    except OmnigraphError as failure:
        # What it was asked for is done; a derived file must not make that a failure.
        _log.warning("the sorted edges of branch '%s' were not kept: %s", branch, failure)


def _limited(
    batches: Iterator[pa.RecordBatch], query: Prepared, request: Request
) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        _check_rows(rows, query, request.limits)
        yield batch


def _check_rows(rows: int, query: Prepared, limits: Limits) -> None:
    if limits.rows is not None and rows > limits.rows:
        raise ResourceLimitExceeded(
            f"rows of query '{query.name}'",
            limit=limits.rows,
            actual=rows,
            remedy="add a `limit` to the query, or allow more rows",
        )


def _now() -> int:
    return time.time_ns() // 1_000_000
