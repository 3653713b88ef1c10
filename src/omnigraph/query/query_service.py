"""Compile and run queries as users pass them: a text or a file, with parameters as Python values."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from omnigraph.deferred_dataclass import dataclass
from omnigraph.embed.embedder import Embedder
from omnigraph.embed.providers import open_embedder
from omnigraph.embed.settings import EmbedSettings
from omnigraph.engine.files.source_files import read_source
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph, ReadTarget
from omnigraph.engine.graph.targets import parse_target
from omnigraph.errors import BadRequest, HistoricalVersionReclaimed, ParseError, WrongQueryKind
from omnigraph.lang.query.compile import (
    CompiledMutation,
    QueryCache,
    compile_query,
)
from omnigraph.lang.query.parameters import decode_parameters
from omnigraph.lang.query.statements import plain_value
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.values import Stored
from omnigraph.phases import in_phase
from omnigraph.query.reader import PinnedTarget, PreparedRead, Reader, prepare_query
from omnigraph.query.request import Limits
from omnigraph.query.result import Result

QueryText = str | os.PathLike[str]
Answer = TypeVar("Answer")
Decode = Callable[[object], dict[str, Stored]]
RunRead = Callable[[Reader, PreparedRead, Mapping[str, Stored], PinnedTarget, Limits], Answer]
"""Runs a pinned read: a method of `Reader`, or another engine."""

_PLAIN = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """A read query as the caller passed it."""

    query: QueryText
    params: Mapping[str, object] | None = None
    name: str | None = None
    limits: Limits = field(default_factory=Limits)


class QueryService:
    """Compiles queries, caches what it compiled, and runs reads."""

    def __init__(self, opened: Callable[[], OpenGraph]) -> None:
        self.opened = opened
        """Returns the open graph; raises once it is closed."""
        self._cache = QueryCache(prepare=prepare_query)
        self._opened_embedder: tuple[EmbedSettings, Embedder] | None = None

    @in_phase("query.compile")
    def _prepare_cached(
        self, query: QueryText, name: str | None, catalog: Catalog
    ) -> PreparedRead | CompiledMutation:
        """Compile a query, or take it from the cache."""
        if isinstance(query, str):
            try:
                return self._cache.compile(query, catalog, name)
            except ParseError:
                _refuse_path(query)
                raise
        return prepare_query(compile_query(read_source(Path(query)), catalog, name), catalog)

    def mutation(
        self, query: QueryText, params: Mapping[str, object] | None, name: str | None, catalog: Catalog
    ) -> tuple[CompiledMutation, dict[str, Stored]]:
        """Compile a mutation and decode its parameters."""
        compiled = self._prepare_cached(query, name, catalog)
        if not isinstance(compiled, CompiledMutation):
            raise WrongQueryKind(
                f"query '{compiled.name}' only reads; a mutation inserts, updates or deletes",
                query=compiled.name,
            )
        return compiled, decode_params(partial(decode_parameters, compiled.parameters), params)

    def run_with(
        self,
        run: RunRead[Answer],
        query: QueryText,
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        branch: str | None = None,
        commit: str | None = None,
        version: int | None = None,
        time: datetime | str | None = None,
        max_rows: int | None = None,
        timeout: float | None = None,
        cancel: threading.Event | None = None,
    ) -> Answer:
        """Run a read with the arguments of `Graph.query` on another engine."""
        target = parse_target(commit, version, time, branch)
        return self.ask(target, ReadQuery(query, params, name, Limits.of(max_rows, timeout, cancel)), run)

    def ask(self, target: ReadTarget, read: ReadQuery, run: RunRead[Answer]) -> Answer:
        """Pin a branch or a past version, and run a read on it."""
        try:
            return self.answer(self.pin(target), read, run)
        except HistoricalVersionReclaimed:
            if not isinstance(target, AtBranch):
                raise
            # The branch moved on and its old version was cleaned up before any row was returned.
            return self.answer(self.pin(target), read, run)

    @in_phase("query.pin")
    def pin(self, target: ReadTarget) -> PinnedTarget:
        """Resolve a target to the exact versions of all tables."""
        return PinnedTarget(target, self.opened().snapshot(target))

    def answer(self, pinned: PinnedTarget, read: ReadQuery, run: RunRead[Answer]) -> Answer:
        """Run a read on a pinned snapshot."""
        opened = self.opened()
        compiled = self._prepare_cached(read.query, read.name, opened.catalog_at(pinned.snapshot))
        if not isinstance(compiled, PreparedRead):
            raise WrongQueryKind(
                f"query '{compiled.name}' changes the graph; a read matches and returns",
                query=compiled.name,
                remedy="use `mutate` instead",
            )
        values = decode_params(compiled.decode, read.params)
        reading = in_phase("query.read")(run)
        return reading(Reader(opened, self._current_embedder), compiled, values, pinned, read.limits)

    def _current_embedder(self) -> Embedder | None:
        """Return the embedder of the graph, or of the environment; opened again when its settings change."""
        settings = self.opened().embedding or EmbedSettings.from_environment()
        if settings is None:
            return None
        known = self._opened_embedder
        if known is None or known[0] != settings:
            known = self._opened_embedder = settings, open_embedder(settings)
        return known[1]


def _refuse_path(query: str) -> None:
    if query.endswith(".gq") and len(query.split()) == 1:
        remedy = f"to read a file, write `Path('{query}')`"
        raise BadRequest(f"'{query}' is not a query", remedy=remedy) from None


def choose_engine(engine: str) -> RunRead[Result]:
    """Return what runs a read: this process, or Spark, which is started on demand."""
    if engine == "local":
        return Reader.read
    if engine == "auto":
        return _read_by_size
    if engine != "spark":
        raise BadRequest(f"there is no engine '{engine}'", remedy="choose one of: auto, local, spark")
    from omnigraph.engine.load.spool import get_frames

    return get_frames().query_runner()


def _read_by_size(
    reader: Reader,
    query: PreparedRead,
    values: Mapping[str, Stored],
    pinned: PinnedTarget,
    limits: Limits,
) -> Result:
    """Run a read where it takes less time, by the sizes of its tables."""
    from omnigraph.query.engine_choice import choose_by_size, find_spark, query_bytes

    engine = "local"
    if query.point_lookup is None:
        engine = choose_by_size(query_bytes(query.plan, pinned.snapshot), find_spark).engine
    return choose_engine(engine)(reader, query, values, pinned, limits)


def decode_params(decode: Decode, params: Mapping[str, object] | None) -> dict[str, Stored]:
    """Return the stored values of a query's parameters."""
    plain = params
    if isinstance(params, Mapping):
        plain = {
            name: value if type(value) in _PLAIN else plain_value(value) for name, value in params.items()
        }
    return decode(plain)
