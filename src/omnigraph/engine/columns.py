"""The columns in which a type's entities are stored."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.engine.layout import split_key
from omnigraph.lang.schema.catalog import Catalog, Property
from omnigraph.lang.types import Scalar
from omnigraph.lang.values import arrow_field
from omnigraph.storage.blobs import blob_field

ID, SOURCE, TARGET = "id", "src", "dst"
SYSTEM_COLUMNS = {"node": (ID,), "edge": (ID, SOURCE, TARGET)}


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
