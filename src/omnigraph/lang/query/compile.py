"""Compile query text: parse, check and plan, with a cache of the results.

The descriptor of a query says what it returns, reads and writes, for callers that ask before running it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar, overload

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import QueryNotFound, TypeCheckError
from omnigraph.lang.query import ast
from omnigraph.lang.query.check_mutation import check_mutation
from omnigraph.lang.query.check_read import check_read, output_type
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.query.plan import Plan
from omnigraph.lang.query.planner import plan_read
from omnigraph.lang.query.resolved import (
    DeleteNodes,
    InsertEdge,
    InsertNode,
    Output,
    ResolvedMutation,
    ResolvedRead,
    Statement,
    UpdateNodes,
)
from omnigraph.lang.query.scope import RESERVED_PARAMETER, Scope
from omnigraph.lang.query.terms import Const, Distance, EntityId, Relevance, TextMatch
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Problems, Source, TooManyProblems
from omnigraph.lang.types import Scalar, ValueType

TYPE_CODES = tuple(f"T{number}" for number in range(1, 37))


def check_query(query: ast.Query, catalog: Catalog, source: Source) -> ResolvedRead | ResolvedMutation:
    """Check one query, or raise one `TypeCheckError` with everything that is wrong."""
    problems = Problems(source, TypeCheckError)
    try:
        scope = Scope(catalog, _check_parameters(query, problems))
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


def _check_parameters(query: ast.Query, problems: Problems) -> dict[str, ValueType]:
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


_KINDS = {
    Scalar.STRING: "string",
    Scalar.BOOL: "bool",
    Scalar.I32: "int",
    Scalar.U32: "int",
    Scalar.I64: "bigint",
    Scalar.U64: "bigint",
    Scalar.F32: "float",
    Scalar.F64: "float",
    Scalar.DATE: "date",
    Scalar.DATETIME: "datetime",
    Scalar.BLOB: "blob",
    Scalar.VECTOR: "vector",
}


@dataclass(frozen=True, slots=True)
class ResultColumn:
    """A returned column as the descriptor shows it."""

    name: str
    kind: str
    nullable: bool
    item_kind: str | None = None
    vector_dim: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The column as plain values; members that do not apply are left out."""
        found: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.item_kind is not None:
            found["item_kind"] = self.item_kind
        if self.vector_dim is not None:
            found["vector_dim"] = self.vector_dim
        return {**found, "nullable": self.nullable}


@dataclass(frozen=True, slots=True)
class TypeRef:
    """A node or edge type by name."""

    kind: str
    type_name: str

    def to_json(self) -> dict[str, str]:
        """The reference as plain values."""
        return {"kind": self.kind, "type_name": self.type_name}


@dataclass(frozen=True, slots=True)
class Operation:
    """The operation descriptor."""

    result: tuple[ResultColumn, ...]
    reads: tuple[TypeRef, ...]
    writes: tuple[TypeRef, ...]

    def to_json(self) -> dict[str, Any]:
        """The descriptor as plain values."""
        return {
            "result": [column.to_json() for column in self.result],
            "reads": [ref.to_json() for ref in self.reads],
            "writes": [ref.to_json() for ref in self.writes],
        }


def describe_operation(resolved: ResolvedRead | ResolvedMutation, catalog: Catalog) -> Operation:
    """The descriptor of a checked query."""
    if isinstance(resolved, ResolvedRead):
        result = tuple(_describe_column(output, resolved) for output in resolved.outputs)
        return Operation(result, _list_refs(resolved.read_nodes, resolved.read_edges), ())
    return _describe_mutation(resolved, catalog)


def _describe_column(output: Output, read: ResolvedRead) -> ResultColumn:
    type_ = output_type(output, read.outputs)
    if isinstance(output.term, EntityId):
        return ResultColumn(output.label, "object", type_.nullable)
    nullable = type_.nullable
    if isinstance(output.term, Distance | Relevance) and output.term == read.ranking:
        nullable = False
    if isinstance(output.term, TextMatch):
        nullable = output.term.field.type.nullable
    if isinstance(output.term, Const) and output.term.value is None:
        nullable = True
    return describe_value(output.label, type_, nullable)


def describe_value(name: str, type_: ValueType, nullable: bool) -> ResultColumn:
    """Return a column or parameter in the words of the descriptor."""
    kind = _KINDS[type_.scalar]
    if type_.is_list:
        return ResultColumn(name, "list", nullable, item_kind=kind)
    if type_.scalar is Scalar.VECTOR:
        return ResultColumn(name, kind, nullable, vector_dim=type_.dimension)
    return ResultColumn(name, kind, nullable)


def _list_refs(nodes: tuple[str, ...], edges: tuple[str, ...]) -> tuple[TypeRef, ...]:
    return (
        *(TypeRef("node", name) for name in sorted(set(nodes))),
        *(TypeRef("edge", name) for name in sorted(set(edges))),
    )


def _describe_mutation(resolved: ResolvedMutation, catalog: Catalog) -> Operation:
    reads: list[TypeRef] = []
    writes: list[TypeRef] = []
    for statement in resolved.statements:
        read, written = _find_touched(statement, catalog)
        reads += read
        writes += written
    return Operation((), _sort_unique(reads), _sort_unique(writes))


def _find_touched(statement: Statement, catalog: Catalog) -> tuple[list[TypeRef], list[TypeRef]]:
    match statement:
        case InsertNode(type_name=name) | UpdateNodes(type_name=name):
            return [TypeRef("node", name)], [TypeRef("node", name)]
        case InsertEdge(type_name=name):
            edge = catalog.edges[name]
            ends = [TypeRef("node", edge.source), TypeRef("node", edge.target)]
            return [TypeRef("edge", name), *ends], [TypeRef("edge", name)]
        case DeleteNodes(type_name=name):
            both = [TypeRef("node", name)]
            both += [TypeRef("edge", edge.name) for edge in catalog.incident_edges(name)]
            return both, both
        case _:
            return [TypeRef("edge", statement.type_name)], [TypeRef("edge", statement.type_name)]


def _sort_unique(refs: list[TypeRef]) -> tuple[TypeRef, ...]:
    return tuple(sorted(set(refs), key=lambda ref: (ref.kind != "node", ref.type_name)))
