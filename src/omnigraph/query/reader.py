"""Prepare a compiled read, run it on a pinned snapshot, and return its result."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.embed.embedder import Embedder
from omnigraph.embed.providers import EmbeddedProperty, embed_query
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph, ReadTarget
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.errors import OmnigraphError, QueryError, ResourceLimitExceeded, StorageFailure
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.compile import CompiledMutation, CompiledQuery, CompiledRead
from omnigraph.lang.query.parameters import Decoder
from omnigraph.lang.query.patterns import find_pattern_parameters
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.types import ValueType
from omnigraph.lang.values import Stored
from omnigraph.query.context import QueryContext
from omnigraph.query.interrupt import WaitingQuery, make_interruptible
from omnigraph.query.key_lookup import PointLookup, find_point_lookup
from omnigraph.query.pattern import PlanFacts, find_tables
from omnigraph.query.plan_runner import PlanRunner, output_columns, result_schema
from omnigraph.query.read_cache import ReadCache, shared_cache
from omnigraph.query.request import Explanation, Limits, Request
from omnigraph.query.result import OneRow, Result
from omnigraph.query.search.searches import Scores
from omnigraph.query.sources import SnapshotSources, known_rows
from omnigraph.query.topology.file_blocks import DamagedFile


@dataclass(frozen=True, slots=True)
class PreparedRead:
    """A read, ready to run with any parameters on any snapshot of its schema."""

    query: CompiledRead
    decode: Decoder
    tables: Mapping[str, str]
    """The key of the table of each variable."""
    schema: pa.Schema
    types: tuple[ValueType, ...]
    """The types of the result columns."""
    facts: PlanFacts
    point_lookup: PointLookup | None
    """Set when the read returns properties of one node by its key."""

    @property
    def name(self) -> str:
        """The name of the query."""
        return self.query.name

    @property
    def plan(self) -> p.Plan:
        """The logical plan of the query."""
        return self.query.plan


def prepare_read(query: CompiledRead, catalog: Catalog) -> PreparedRead:
    """Prepare a compiled read."""
    plan = query.plan
    schema = result_schema(plan)
    return PreparedRead(
        query,
        Decoder(query.parameters, find_pattern_parameters(plan)),
        find_tables(plan),
        schema,
        tuple(output.term.type for output in output_columns(plan)),
        PlanFacts(),
        find_point_lookup(plan, schema, catalog),
    )


def prepare_query(query: CompiledQuery, catalog: Catalog) -> PreparedRead | CompiledMutation:
    """Prepare a compiled query for the query cache; mutations stay as they are."""
    return prepare_read(query, catalog) if isinstance(query, CompiledRead) else query


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PinnedTarget:
    """The target of a read, and the snapshot it is pinned to."""

    target: ReadTarget
    snapshot: Snapshot


def _no_embedder() -> Embedder | None:
    return None


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one graph; columns and topologies stay in memory for the next read."""

    graph: OpenGraph
    embedder: Callable[[], Embedder | None] = _no_embedder
    """Called when a query embeds a text: what is not configured now may be later."""
    memory: ReadCache = field(default_factory=shared_cache)

    def read(
        self, query: PreparedRead, parameters: Mapping[str, Stored], pinned: PinnedTarget, limits: Limits
    ) -> Result:
        """Return the rows of a query."""
        found = self._look_up_or_run(query, Request(parameters, _current_millis(), limits), pinned)
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
        query: PreparedRead,
        parameters: Mapping[str, Stored],
        pinned: PinnedTarget,
        limits: Limits,
        size: int,
    ) -> pa.RecordBatchReader:
        """Return the rows of a query in batches, fetched on demand."""
        request = Request(parameters, _current_millis(), limits)
        return pa.RecordBatchReader.from_batches(
            query.schema, self._stream_batches(query, request, pinned, size)
        )

    def _stream_batches(
        self, query: PreparedRead, request: Request, pinned: PinnedTarget, size: int
    ) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._batches(query, request, self._open_sources(pinned), size)
        except DamagedFile:
            # A topology file is read before the first batch is yielded, so none was.
            yield from self._batches(query, request, self._sources_without_files(pinned), size)

    def _batches(
        self, query: PreparedRead, request: Request, sources: SnapshotSources, size: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        waiting = WaitingQuery(request, sources.settle)
        found = make_interruptible(
            self._make_runner(query, request, sources).batches(query.plan, size), waiting
        )
        try:
            yield from _limit_rows(found, query, request)
        except StorageFailure as failure:
            raise sources.explain_failure(failure) from failure
        except (pa.ArrowInvalid, pa.ArrowCapacityError) as failure:
            if "overflow" not in str(failure) and not isinstance(failure, pa.ArrowCapacityError):
                raise
            raise QueryError(
                f"the texts that one step of query '{query.name}' looks at come to more than 2 GiB",
                remedy="filter before, or ask for less at a time",
            ) from failure
        finally:
            waiting.settle()

    def explain(
        self, query: PreparedRead, parameters: Mapping[str, Stored], pinned: PinnedTarget, limits: Limits
    ) -> Explanation:
        """Run a query and return its steps, with their rows and times."""
        request = Request(parameters, _current_millis(), limits, steps=[])
        begun = time.perf_counter()
        found = self._look_up_or_run(query, request, pinned)
        elapsed = (time.perf_counter() - begun) * 1000
        return Explanation(query.name, tuple(request.steps or ()), len(found), elapsed)

    def _look_up_or_run(
        self, query: PreparedRead, request: Request, pinned: PinnedTarget
    ) -> pa.Table | OneRow:
        found = (
            None if query.point_lookup is None else self._look_up_point(query.point_lookup, request, pinned)
        )
        return self._run_plan(query, request, pinned) if found is None else found

    def _look_up_point(self, point: PointLookup, request: Request, pinned: PinnedTarget) -> OneRow | None:
        """Answer a point lookup from memory; None when the plan has to run."""
        if request.limits.rows == 0:
            return None  # the full run reports too many rows
        with request.step("Lookup", point.describe) as step:
            rows = known_rows(self.graph, pinned.snapshot, self.memory, point.table)
            found = None if rows is None else point.look_up(rows, request.bindings)
            step.rows, step.how = 0 if found is None else len(found), "in memory, by key"
        if found is None and request.steps is not None:
            request.steps.clear()
        return found

    def _run_plan(self, query: PreparedRead, request: Request, pinned: PinnedTarget) -> pa.Table:
        try:
            batches = list(self._batches(query, request, self._open_sources(pinned)))
        except DamagedFile:
            if request.steps is not None:
                request.steps.clear()
            batches = list(self._batches(query, request, self._sources_without_files(pinned)))
        # Nothing has a name of its own in a result that says there is nothing.
        return pa.Table.from_batches(batches, batches[0].schema if batches else query.schema)

    def _open_sources(self, pinned: PinnedTarget, *, saved: bool = True) -> SnapshotSources:
        snapshot = pinned.snapshot
        catalog = self.graph.catalog_at(snapshot)
        return SnapshotSources(self.graph, snapshot, catalog, self.memory, saved=saved)

    def _sources_without_files(self, pinned: PinnedTarget) -> SnapshotSources:
        """Return the same tables without saved topologies, after one turned out to be damaged."""
        self.memory.forget_graph(self.graph.root.uri)
        return self._open_sources(pinned, saved=False)

    def _make_runner(self, query: PreparedRead, request: Request, sources: SnapshotSources) -> PlanRunner:
        scores = Scores(request, sources.catalog, self.memory, self._embed_text)
        return PlanRunner(QueryContext(request, sources, scores, query.tables, query.facts))

    def _embed_text(self, declared: EmbeddedProperty, text: str) -> Sequence[float]:
        vector = embed_query(self.embedder(), text, declared)
        return [float(number) for number in vector]


def save_topologies(graph: OpenGraph, branch: str) -> None:
    """Save the topologies of a branch, so that the first walk of a new process is fast."""
    try:
        snapshot = graph.snapshot(AtBranch(branch))
        # What this process has in memory may be numbered in its own way: nothing of it is used.
        SnapshotSources(graph, snapshot, graph.catalog_at(snapshot), ReadCache(0)).save_topologies()
    except OmnigraphError as failure:
        # The caller's work is done; a derived file must not make it fail.
        _log.warning("the sorted edges of branch '%s' were not kept: %s", branch, failure)


def _limit_rows(
    batches: Iterator[pa.RecordBatch], query: PreparedRead, request: Request
) -> Iterator[pa.RecordBatch]:
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        _check_rows(rows, query, request.limits)
        yield batch


def _check_rows(rows: int, query: PreparedRead, limits: Limits) -> None:
    if limits.rows is not None and rows > limits.rows:
        raise ResourceLimitExceeded(
            f"rows of query '{query.name}'",
            limit=limits.rows,
            actual=rows,
            remedy="add a `limit` to the query, or allow more rows",
        )


def _current_millis() -> int:
    return time.time_ns() // 1_000_000
