"""What a query returns, reads and writes, as a caller may want to know before running it."""

from __future__ import annotations

from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.query.check_read import output_type
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
from omnigraph.lang.query.terms import Const, Distance, EntityId, Relevance, TextMatch
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.types import Scalar, ValueType

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
        result = tuple(_column(output, resolved) for output in resolved.outputs)
        return Operation(result, _refs(resolved.read_nodes, resolved.read_edges), ())
    return _mutation(resolved, catalog)


def _column(output: Output, read: ResolvedRead) -> ResultColumn:
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


def _refs(nodes: tuple[str, ...], edges: tuple[str, ...]) -> tuple[TypeRef, ...]:
    return (
        *(TypeRef("node", name) for name in sorted(set(nodes))),
        *(TypeRef("edge", name) for name in sorted(set(edges))),
    )


def _mutation(resolved: ResolvedMutation, catalog: Catalog) -> Operation:
    reads: list[TypeRef] = []
    writes: list[TypeRef] = []
    for statement in resolved.statements:
        read, written = _touched(statement, catalog)
        reads += read
        writes += written
    return Operation((), _unique(reads), _unique(writes))


def _touched(statement: Statement, catalog: Catalog) -> tuple[list[TypeRef], list[TypeRef]]:
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


def _unique(refs: list[TypeRef]) -> tuple[TypeRef, ...]:
    return tuple(sorted(set(refs), key=lambda ref: (ref.kind != "node", ref.type_name)))
