"""Node and edge types with the layout of their tables."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from omnigraph.engine.graph.columns import table_schema
from omnigraph.engine.graph.layout import EntityKind, split_key
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.schema.identity import AcceptedSchema


@dataclass(frozen=True, slots=True)
class TableType:
    """A node or edge type with its table's columns; can be sent to other processes."""

    key: str
    """The name of its table."""
    kind: EntityKind
    owner: NodeType | EdgeType
    schema: pa.Schema = field(repr=False)
    identity: tuple[str, ...] = ()
    """The key properties in the order in which they form the id; empty when ids are explicit or generated."""

    @property
    def name(self) -> str:
        """The name of the type."""
        return self.owner.name


def table_type_of(accepted: AcceptedSchema, key: str) -> TableType:
    """Return the type of a table; only a composite key needs the identities of the schema."""
    kind, name = split_key(key)
    schema = table_schema(accepted.catalog, key)
    if kind == "edge":
        return TableType(key, kind, accepted.catalog.edges[name], schema)
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
