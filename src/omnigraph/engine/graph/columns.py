"""The columns in which a type's entities are stored."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.engine.graph.layout import split_key
from omnigraph.lang.schema.catalog import Catalog, Property
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
