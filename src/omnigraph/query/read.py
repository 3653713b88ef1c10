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
from omnigraph.errors import OmnigraphError, ResourceLimitExceeded, StorageFailure
from omnigraph.lang.query.compile import CompiledRead
from omnigraph.lang.values import Stored, arrow_type
from omnigraph.query.explain import Explained
from omnigraph.query.memory import Memory, shared_memory
from omnigraph.query.pattern import tables_of
from omnigraph.query.reading import Reading
from omnigraph.query.request import Limits, Request
from omnigraph.query.result import Result
from omnigraph.query.run import Columns, Runner, outputs_of
from omnigraph.query.search.scores import Scores
from omnigraph.query.search.searches import Searches
from omnigraph.query.sources import Sources

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
        self, query: CompiledRead, parameters: Mapping[str, Stored], pinned: Pinned, limits: Limits
    ) -> Result:
        """The rows of a query."""
        found = self._run(query, Request(parameters, _now(), limits), pinned)
        _check_rows(found.length, query, limits)
        live = isinstance(pinned.target, AtBranch)
        commit = pinned.snapshot.commit
        return Result(
            found.table(),
            found.types,
            query.name,
            pinned.snapshot.branch if live else None,
            None if live else pinned.snapshot.id,
            commit.id if commit else None,
        )

    def stream(
        self,
        query: CompiledRead,
        parameters: Mapping[str, Stored],
        pinned: Pinned,
        limits: Limits,
        size: int,
    ) -> pa.RecordBatchReader:
        """The rows of a query in batches, fetched as they are asked for."""
        sources = self._sources(pinned)
        runner = self._runner(query, Request(parameters, _now(), limits), sources)
        outputs = outputs_of(query.plan)
        fields = [pa.field(output.name, arrow_type(output.term.type)) for output in outputs]
        return pa.RecordBatchReader.from_batches(
            pa.schema(fields), _limited(self._streamed(runner, query, sources, size), query, limits)
        )

    def _streamed(
        self, runner: Runner, query: CompiledRead, sources: Sources, size: int
    ) -> Iterator[pa.RecordBatch]:
        try:
            yield from runner.batches(query.plan, size)
        except StorageFailure as failure:
            raise sources.explained(failure) from failure
        finally:
            sources.settle()

    def explain(
        self, query: CompiledRead, parameters: Mapping[str, Stored], pinned: Pinned, limits: Limits
    ) -> Explained:
        """What running a query does, step by step; it is run for that."""
        request = Request(parameters, _now(), limits, steps=[])
        begun = time.perf_counter()
        found = self._run(query, request, pinned)
        elapsed = (time.perf_counter() - begun) * 1000
        return Explained(query.name, tuple(request.steps or ()), found.length, elapsed)

    def _run(self, query: CompiledRead, request: Request, pinned: Pinned) -> Columns:
        sources = self._sources(pinned)
        try:
            return self._runner(query, request, sources).columns(query.plan)
        except StorageFailure as failure:
            raise sources.explained(failure) from failure
        finally:
            sources.settle()

    def _sources(self, pinned: Pinned) -> Sources:
        snapshot = pinned.snapshot
        return Sources(self.graph, snapshot, self.graph.catalog_at(snapshot), self.memory)

    def _runner(self, query: CompiledRead, request: Request, sources: Sources) -> Runner:
        scores = Scores(request, sources.catalog, Searches(self.memory), self._embedded)
        return Runner(Reading(request, sources, scores, tables_of(query.plan)))

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
    batches: Iterator[pa.RecordBatch], query: CompiledRead, limits: Limits
) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        _check_rows(rows, query, limits)
        yield batch


def _check_rows(rows: int, query: CompiledRead, limits: Limits) -> None:
    if limits.rows is not None and rows > limits.rows:
        raise ResourceLimitExceeded(
            f"rows of query '{query.name}'",
            limit=limits.rows,
            actual=rows,
            remedy="add a `limit` to the query, or allow more rows",
        )


def _now() -> int:
    return time.time_ns() // 1_000_000
