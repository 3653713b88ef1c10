"""The type that rows are meant for."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from omnigraph.engine.columns import table_schema
from omnigraph.engine.layout import EntityKind, split_key
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.lang.schema.identity import AcceptedSchema


@dataclass(frozen=True, slots=True)
class Target:
    """A node or edge type with all that its rows are shaped and checked by; it travels between processes."""

    key: str
    """The name of its table."""
    kind: EntityKind
    owner: NodeType | EdgeType
    schema: pa.Schema = field(repr=False)
    identity: tuple[str, ...] = ()
    """The key properties in the order in which they make up the id; empty when ids are given or generated."""

    @property
    def name(self) -> str:
        """The name of the type."""
        return self.owner.name


def target_of(accepted: AcceptedSchema, key: str) -> Target:
    """The target behind a table key."""
    kind, name = split_key(key)
    schema = table_schema(accepted.catalog, key)
    if kind == "edge":
        return Target(key, kind, accepted.catalog.edges[name], schema)
    node = accepted.catalog.nodes[name]
    return Target(key, kind, node, schema, accepted.identities.in_order("node", name, node.key))


def targets_of(accepted: AcceptedSchema) -> dict[str, Target]:
    """The target of every type."""
    nodes = (f"node:{name}" for name in accepted.catalog.nodes)
    edges = (f"edge:{name}" for name in accepted.catalog.edges)
    return {key: target_of(accepted, key) for key in sorted([*nodes, *edges])}
