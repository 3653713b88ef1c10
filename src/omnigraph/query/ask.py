"""Queries as users ask them: a text or a file, parameters as Python values, and what may be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from omnigraph.embed.embedder import Embedder
from omnigraph.embed.providers import configured_embedder
from omnigraph.engine.opened import AtBranch, OpenGraph, Target
from omnigraph.errors import BadRequest, HistoricalVersionReclaimed, WrongQueryKind
from omnigraph.lang.query.compile import (
    CompiledMutation,
    CompiledQuery,
    CompiledRead,
    QueryCache,
    compile_query,
)
from omnigraph.lang.query.parameters import decode_parameters
from omnigraph.lang.query.statements import plain_value
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Source
from omnigraph.lang.values import Stored
from omnigraph.query.read import Pinned, Reader
from omnigraph.query.request import Limits
from omnigraph.query.result import Result

QueryText = str | os.PathLike[str]
Answer = TypeVar("Answer")
Run = Callable[[Reader, CompiledRead, Mapping[str, Stored], Pinned, Limits], Answer]


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
        self._cache = QueryCache()

    def compiled(self, query: QueryText, name: str | None, catalog: Catalog) -> CompiledQuery:
        """A query, ready to run."""
        if isinstance(query, str):
            return self._cache.compile(query, catalog, name)
        return compile_query(file_source(Path(query)), catalog, name)

    def mutation(
        self, query: QueryText, params: Mapping[str, object] | None, name: str | None, catalog: Catalog
    ) -> tuple[CompiledMutation, dict[str, Stored]]:
        """A mutation and the values of its parameters, ready to be carried out."""
        compiled = self.compiled(query, name, catalog)
        if not isinstance(compiled, CompiledMutation):
            raise WrongQueryKind(
                f"query '{compiled.name}' only reads; a mutation inserts, updates or deletes",
                query=compiled.name,
            )
        return compiled, decoded(compiled, params)

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
        compiled = self.compiled(question.query, question.name, opened.catalog_at(pinned.snapshot))
        if not isinstance(compiled, CompiledRead):
            raise WrongQueryKind(
                f"query '{compiled.name}' changes the graph; a read matches and returns",
                query=compiled.name,
                remedy="use `mutate` instead",
            )
        values = decoded(compiled, question.params)
        return run(Reader(opened, self._embedder), compiled, values, pinned, question.limits)

    @cached_property
    def _embedder(self) -> Embedder | None:
        return configured_embedder()


def run_by(engine: str, on_spark: Callable[[], Run[Result]]) -> Run[Result]:
    """What runs a read: this process, or Spark, which is started only for that."""
    if engine not in ("local", "spark"):
        raise BadRequest(f"there is no engine '{engine}'", remedy="choose one of: local, spark")
    return Reader.read if engine == "local" else on_spark()


def decoded(compiled: CompiledQuery, params: Mapping[str, object] | None) -> dict[str, Stored]:
    """The stored values of a query's parameters."""
    plain = params
    if isinstance(params, Mapping):
        plain = {name: plain_value(value) for name, value in params.items()}
    return decode_parameters(compiled.parameters, plain)


def file_source(path: Path) -> Source:
    """The text of a schema or query file with its name, so that mistakes are told with it."""
    try:
        return Source.from_bytes(path.read_bytes(), str(path))
    except OSError as failure:
        raise BadRequest(f"cannot read '{path}': {failure.strerror}", remedy="check the path") from failure
