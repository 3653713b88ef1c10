"""Statements that a client collected: what it inserts, updates and deletes in one commit."""

from __future__ import annotations

from typing import Any

import msgspec

from omnigraph.engine.graph.schema_files import LiveSchema
from omnigraph.engine.write.builder import ReceivedStatement
from omnigraph.lang.query import statements
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.server.wire.base import Wire


class WriteSchemaOutput(Wire, frozen=True, kw_only=True):
    """What statements are checked by before they are sent.

    `composite_keys` has the key properties of types with several, in the order in which they form an id.
    """

    schema_source: str
    schema_fingerprint: str
    composite_keys: dict[str, list[str]]

    @classmethod
    def of(cls, schema: LiveSchema) -> WriteSchemaOutput:
        """Return the body for a schema."""
        nodes = (one for one in schema.targets.values() if one.kind == "node")
        keys = {one.name: list(one.identity) for one in nodes if len(one.identity) > 1}
        return cls(
            schema_source=schema.source,
            schema_fingerprint=schema.catalog.fingerprint,
            composite_keys=keys,
        )


class InsertStatement(Wire, frozen=True, kw_only=True, tag_field="op", tag="insert"):
    """A node; `id` is a new ULID where its type has no key, and is left out to get one."""

    type: str
    values: dict[str, Any] = msgspec.field(default_factory=dict)
    id: str | None = None

    def resolve(self, catalog: Catalog) -> ReceivedStatement:
        """Return the statement, checked, and the id."""
        return statements.insert_node(catalog, self.type, self.values), self.id


class CreateStatement(Wire, frozen=True, kw_only=True, tag_field="op", tag="create"):
    """A new node: a stored one with its key is a conflict; `id` is as for `insert`."""

    type: str
    values: dict[str, Any] = msgspec.field(default_factory=dict)
    id: str | None = None

    def resolve(self, catalog: Catalog) -> ReceivedStatement:
        """Return the statement, checked, and the id."""
        return statements.insert_node(catalog, self.type, self.values, strict=True), self.id


class InsertEdgeStatement(Wire, frozen=True, kw_only=True, tag_field="op", tag="insert_edge"):
    """An edge between two nodes, named by their ids; `id` is a new ULID, or left out to get one."""

    type: str
    from_: str = msgspec.field(name="from")
    to: str
    values: dict[str, Any] = msgspec.field(default_factory=dict)
    id: str | None = None

    def resolve(self, catalog: Catalog) -> ReceivedStatement:
        """Return the statement, checked, and the id."""
        return statements.insert_edge(catalog, self.type, self.from_, self.to, self.values), self.id


class UpdateStatement(Wire, frozen=True, kw_only=True, tag_field="op", tag="update"):
    """New values for the nodes or edges that pass a test: `["age", ">", 90]` or `["age", "is null"]`."""

    type: str
    where: list[Any]
    values: dict[str, Any]

    def resolve(self, catalog: Catalog) -> ReceivedStatement:
        """Return the statement, checked."""
        return statements.update_rows(catalog, self.type, _as_condition(self.where), self.values), None


class DeleteStatement(Wire, frozen=True, kw_only=True, tag_field="op", tag="delete"):
    """The nodes, with their edges, or the edges that pass a test."""

    type: str
    where: list[Any]

    def resolve(self, catalog: Catalog) -> ReceivedStatement:
        """Return the statement, checked."""
        return statements.delete_rows(catalog, self.type, _as_condition(self.where)), None


WriteStatement = InsertStatement | CreateStatement | InsertEdgeStatement | UpdateStatement | DeleteStatement


class WriteRequest(Wire, frozen=True, kw_only=True):
    """Statements for one commit; `retry` and `message` are those of the library's `Graph.write`.

    A `schema_fingerprint` that is not that of the schema any more is a conflict.
    """

    statements: list[WriteStatement]
    branch: str | None = None
    retry: int = 0
    message: str | None = None
    schema_fingerprint: str | None = None


def _as_condition(where: list[Any]) -> Any:
    return tuple(where)
