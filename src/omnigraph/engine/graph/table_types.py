"""Node and edge types with the layout of their tables."""

from __future__ import annotations

from dataclasses import field

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import EntityKind, split_key
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType, Property
from omnigraph.lang.schema.identity import AcceptedSchema
from omnigraph.lang.types import Scalar
from omnigraph.lang.values import arrow_field
from omnigraph.storage.blobs import blob_field

ID, SOURCE, TARGET = "id", "src", "dst"
SYSTEM_COLUMNS = {"node": (ID,), "edge": (ID, SOURCE, TARGET)}
FROM, TO = "from", "to"
END_NAMES = {SOURCE: FROM, TARGET: TO}
"""What the ends of an edge are called outside the graph."""


def table_schema(catalog: Catalog, key: str) -> pa.Schema:
    """The columns of a type: the system's, then its properties in declaration order."""
    kind, name = split_key(key)
    owner = catalog.nodes[name] if kind == "node" else catalog.edges[name]
    system = [pa.field(column, pa.string(), nullable=False) for column in SYSTEM_COLUMNS[kind]]
    return pa.schema([*system, *(_column(declared) for declared in owner.properties.values())])


def _column(declared: Property) -> pa.Field:
    if declared.type.scalar is Scalar.BLOB:
        return blob_field(declared.name, nullable=declared.type.nullable)
    return arrow_field(declared.name, declared.type)


def outer_names(schema: pa.Schema, kind: str) -> list[str]:
    """Return the names that the columns of a table have in files.

    The ends of an edge are `from` and `to`. Where the type has a property with one of these names both ends
    keep their stored names `src` and `dst`, which no property of an edge can have.
    """
    names: list[str] = schema.names
    if kind == "node" or {FROM, TO} & set(names):
        return names
    return [END_NAMES.get(name, name) for name in names]


@dataclass(frozen=True, slots=True)
class TableType:
    """A node or edge type with its table's columns; can be sent to other processes."""

    key: str
    """The name of its table."""
    kind: EntityKind
    owner: NodeType | EdgeType
    schema: pa.Schema = field(repr=False)
    identity: tuple[str, ...] = ()
    """The key columns in the order in which they form the id; empty when ids are explicit or generated. Those
    of an edge begin with its ends."""

    @property
    def name(self) -> str:
        """The name of the type."""
        return self.owner.name


def table_type_of(accepted: AcceptedSchema, key: str) -> TableType:
    """Return the type of a table; only a composite key needs the identities of the schema."""
    kind, name = split_key(key)
    schema = table_schema(accepted.catalog, key)
    if kind == "edge":
        edge = accepted.catalog.edges[name]
        return TableType(key, kind, edge, schema, edge.key)
    node = accepted.catalog.nodes[name]
    ordered = node.key
    if len(ordered) > 1:
        ordered = accepted.known_identities.in_order("node", name, ordered)
    return TableType(key, kind, node, schema, ordered)


def table_types_of(accepted: AcceptedSchema) -> dict[str, TableType]:
    """Return all types of a schema, by table key."""
    nodes = (f"node:{name}" for name in accepted.catalog.nodes)
    edges = (f"edge:{name}" for name in accepted.catalog.edges)
    return {key: table_type_of(accepted, key) for key in sorted([*nodes, *edges])}
