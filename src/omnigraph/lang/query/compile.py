"""Compile query text: parse, check and plan, with a cache of the results."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar, overload

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import QueryNotFound, TypeCheckError
from omnigraph.lang.query import ast
from omnigraph.lang.query.check_mutation import check_mutation
from omnigraph.lang.query.check_read import check_read
from omnigraph.lang.query.descriptor import Operation, describe_operation
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.query.plan import Plan
from omnigraph.lang.query.planner import plan_read
from omnigraph.lang.query.resolved import ResolvedMutation, ResolvedRead, Statement
from omnigraph.lang.query.scope import RESERVED_PARAMETER, Scope
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Problems, Source, TooManyProblems
from omnigraph.lang.types import ValueType

TYPE_CODES = tuple(f"T{number}" for number in range(1, 32))


def check_query(query: ast.Query, catalog: Catalog, source: Source) -> ResolvedRead | ResolvedMutation:
    """Check one query, or raise one `TypeCheckError` with everything that is wrong."""
    problems = Problems(source, TypeCheckError)
    try:
        scope = Scope(catalog, _parameters(query, problems))
        found: ResolvedRead | ResolvedMutation
        if isinstance(query.body, ast.Read):
            found = check_read(query.body, scope, problems)
        else:
            found = check_mutation(query, scope, problems)
    except TooManyProblems:
        problems.raise_if_any(truncated=True)
        raise
    problems.raise_if_any()
    return found


def _parameters(query: ast.Query, problems: Problems) -> dict[str, ValueType]:
    found: dict[str, ValueType] = {}
    for parameter in query.parameters:
        if parameter.name == RESERVED_PARAMETER:
            message = f"parameter name `${parameter.name}` is reserved for runtime timestamp injection"
            problems.add(message, parameter.at)
        if parameter.name in found:
            problems.add(f"parameter `${parameter.name}` is declared more than once", parameter.at)
        found[parameter.name] = parameter.type
    return found


@dataclass(frozen=True, slots=True)
class CompiledRead:
    """A read, ready for either read engine."""

    name: str
    parameters: tuple[ast.Parameter, ...]
    plan: Plan
    operation: Operation


@dataclass(frozen=True, slots=True)
class CompiledMutation:
    """A mutation, ready for the write path."""

    name: str
    parameters: tuple[ast.Parameter, ...]
    statements: tuple[Statement, ...]
    operation: Operation
    schema: str
    """The fingerprint of the schema it was compiled with."""


CompiledQuery = CompiledRead | CompiledMutation
Entry = TypeVar("Entry")


def compile_query(source: Source | str, catalog: Catalog, name: str | None = None) -> CompiledQuery:
    """Compile the query called `name`, or the only one of the text."""
    text = source if isinstance(source, Source) else Source(source)
    return compile_parsed(select_query(parse_queries(text), name), catalog, text)


def compile_parsed(query: ast.Query, catalog: Catalog, source: Source) -> CompiledQuery:
    """Compile a query that is parsed already; `source` gives errors their place."""
    resolved = check_query(query, catalog, source)
    operation = describe_operation(resolved, catalog)
    if isinstance(resolved, ResolvedMutation):
        return CompiledMutation(
            query.name, query.parameters, resolved.statements, operation, catalog.fingerprint
        )
    return CompiledRead(query.name, query.parameters, plan_read(resolved), operation)


def select_query(file: ast.QueryFile, name: str | None = None) -> ast.Query:
    """The first query of this name, or the only query of the file."""
    names = [query.name for query in file.queries]
    if name is not None:
        found = next((query for query in file.queries if query.name == name), None)
        if found is None:
            raise QueryNotFound(f"query '{name}' not found", names=names)
        return found
    if not file.queries:
        raise QueryNotFound("query file contains no query")
    if len(file.queries) > 1:
        raise QueryNotFound("query file contains multiple queries; pass --name", names=names)
    return file.queries[0]


class QueryCache(Generic[Entry]):
    """Compiled queries by text, name and catalog, the least recently used dropped first.

    An entry is a compiled query, or what `prepare` makes of it.
    """

    @overload
    def __init__(self: QueryCache[CompiledQuery], capacity: int = 512) -> None: ...

    @overload
    def __init__(
        self, capacity: int = 512, *, prepare: Callable[[CompiledQuery, Catalog], Entry]
    ) -> None: ...

    def __init__(
        self, capacity: int = 512, *, prepare: Callable[[CompiledQuery, Catalog], Any] | None = None
    ) -> None:
        self._capacity = capacity
        self._prepare = prepare
        self._entries: OrderedDict[tuple[str, str | None, str], Entry] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def compile(self, text: str, catalog: Catalog, name: str | None = None) -> Entry:
        """Like `compile_query`, nearly free for a cached text; errors are not cached."""
        key = (text, name, catalog.fingerprint)
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
                return found
        compiled: Any = compile_query(text, catalog, name)
        made: Entry = compiled if self._prepare is None else self._prepare(compiled, catalog)
        with self._lock:
            # Another thread may have been faster; everyone gets the one that is kept.
            made = self._entries.setdefault(key, made)
            while len(self._entries) > self._capacity:
                self._entries.popitem(last=False)
        return made
