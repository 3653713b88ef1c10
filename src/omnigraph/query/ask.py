"""Queries as users ask them: a text or a file, parameters as Python values, and what may be read."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from omnigraph.embed.embedder import Embedder
from omnigraph.embed.providers import configured_embedder
from omnigraph.engine.load.frames import frames
from omnigraph.engine.opened import AtBranch, OpenGraph, Target
from omnigraph.engine.source_files import read_source
from omnigraph.engine.targets import read_target
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
from omnigraph.query.prepared import Prepared, ready
from omnigraph.query.read import Pinned, Reader
from omnigraph.query.request import Limits
from omnigraph.query.result import Result

QueryText = str | os.PathLike[str]
Answer = TypeVar("Answer")
Decode = Callable[[object], dict[str, Stored]]
Run = Callable[[Reader, Prepared, Mapping[str, Stored], Pinned, Limits], Answer]
"""What answers a read that is pinned: a method of a reader, or another engine."""

_PLAIN = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True)
class Question:
    """A read query as it was asked."""

    query: QueryText
    params: Mapping[str, object] | None = None
    name: str | None = None
    limits: Limits = field(default_factory=Limits)


class Questions:
    """Compiles queries, keeps what it compiled, and has reads answered."""

    def __init__(self, opened: Callable[[], OpenGraph]) -> None:
        self.opened = opened
        """The open graph; refused once it was closed."""
        self._cache = QueryCache(ready=ready)

    def _ready(self, query: QueryText, name: str | None, catalog: Catalog) -> Prepared | CompiledMutation:
        """A query, ready to run."""
        if isinstance(query, str):
            try:
                return self._cache.compile(query, catalog, name)
            except ParseError:
                _refuse_path(query)
                raise
        return ready(compile_query(read_source(Path(query)), catalog, name), catalog)

    def mutation(
        self, query: QueryText, params: Mapping[str, object] | None, name: str | None, catalog: Catalog
    ) -> tuple[CompiledMutation, dict[str, Stored]]:
        """A mutation and the values of its parameters, ready to be carried out."""
        compiled = self._ready(query, name, catalog)
        if not isinstance(compiled, CompiledMutation):
            raise WrongQueryKind(
                f"query '{compiled.name}' only reads; a mutation inserts, updates or deletes",
                query=compiled.name,
            )
        return compiled, decoded(partial(decode_parameters, compiled.parameters), params)

    def answered_by(
        self,
        run: Run[Answer],
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
        """What another engine makes of a read that is asked for as of `Graph.query`."""
        target = read_target(commit, version, time, branch)
        return self.ask(target, Question(query, params, name, Limits.of(max_rows, timeout, cancel)), run)

    def ask(self, target: Target, question: Question, run: Run[Answer]) -> Answer:
        """The answer to a question about a branch or about the past."""
        try:
            return self.answer(Pinned(target, self.opened().snapshot(target)), question, run)
        except HistoricalVersionReclaimed:
            if not isinstance(target, AtBranch):
                raise
            # The branch moved on and what it showed was cleaned up, before any row was handed over.
            return self.answer(Pinned(target, self.opened().snapshot(target)), question, run)

    def answer(self, pinned: Pinned, question: Question, run: Run[Answer]) -> Answer:
        """The answer to a question about a snapshot."""
        opened = self.opened()
        compiled = self._ready(question.query, question.name, opened.catalog_at(pinned.snapshot))
        if not isinstance(compiled, Prepared):
            raise WrongQueryKind(
                f"query '{compiled.name}' changes the graph; a read matches and returns",
                query=compiled.name,
                remedy="use `mutate` instead",
            )
        values = decoded(compiled.decode, question.params)
        return run(Reader(opened, self._embedder), compiled, values, pinned, question.limits)

    @cached_property
    def _embedder(self) -> Embedder | None:
        return configured_embedder()


def _refuse_path(query: str) -> None:
    if query.endswith(".gq") and len(query.split()) == 1:
        remedy = f"to read a file, write `Path('{query}')`"
        raise BadRequest(f"'{query}' is not a query", remedy=remedy) from None


def run_by(engine: str) -> Run[Result]:
    """What runs a read: this process, or Spark, which is started only for that."""
    if engine == "local":
        return Reader.read
    if engine != "spark":
        raise BadRequest(f"there is no engine '{engine}'", remedy="choose one of: local, spark")
    return frames().result()


def decoded(decode: Decode, params: Mapping[str, object] | None) -> dict[str, Stored]:
    """The stored values of a query's parameters."""
    plain = params
    if isinstance(params, Mapping):
        plain = {
            name: value if type(value) in _PLAIN else plain_value(value) for name, value in params.items()
        }
    return decode(plain)
