"""A write put together in Python: intent is collected, and committed once when the block ends."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from omnigraph.engine.opened import OpenGraph
from omnigraph.engine.write.mutate import MutationResult, carry_out
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import BadRequest
from omnigraph.lang.query.resolved import DeleteEdges, DeleteNodes, Statement
from omnigraph.lang.query.statements import (
    Values,
    Where,
    delete_rows,
    insert_edge,
    insert_node,
    update_nodes,
)
from omnigraph.lang.schema.catalog import Catalog


class Write:
    """Changes of one branch that become one commit at the end of a `with` block, or none after an error.

    It may insert and update, or delete, but not both. Inserts of a type with a key replace the node that
    has the key already. Updates see what was inserted and updated before them.
    """

    def __init__(self, writing: Callable[[], OpenGraph], author: Author) -> None:
        self._writing = writing
        self._author = author
        self._catalog: Catalog | None = None
        self._statements: list[Statement] = []
        self._over = False
        self._result: MutationResult | None = None

    def insert(self, type_name: str, values: Values | None = None, /, **more: object) -> None:
        """A node; its properties as keywords or in a mapping."""
        self._add(insert_node(self._open(), type_name, {**(values or {}), **more}))

    def insert_edge(
        self,
        type_name: str,
        from_: str,
        to: str,
        values: Values | None = None,
        /,
        **more: object,
    ) -> None:
        """An edge from one node to another, both named by their ids."""
        self._add(insert_edge(self._open(), type_name, from_, to, {**(values or {}), **more}))

    def update(self, type_name: str, where: Where, values: Values | None = None, /, **more: object) -> None:
        """New values for all nodes that pass a test such as `("age", ">", 90)`."""
        self._add(update_nodes(self._open(), type_name, where, {**(values or {}), **more}))

    def delete(self, type_name: str, where: Where, /) -> None:
        """All nodes, with their edges, or all edges of a type that pass a test."""
        self._add(delete_rows(self._open(), type_name, where))

    @property
    def result(self) -> MutationResult:
        """What the write did; known once the block has ended."""
        if self._result is None:
            raise BadRequest("the write has no result yet", remedy="ask for it after the `with` block")
        return self._result

    def __len__(self) -> int:
        return len(self._statements)

    def __enter__(self) -> Self:
        if self._catalog is not None:
            raise BadRequest("a write can be used once", remedy="begin another one with `graph.write`")
        self._catalog = self._writing().schema().catalog
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if kind is None and self._catalog is not None:
            schema = self._catalog.fingerprint
            self._result = carry_out(self._writing(), self._statements, {}, self._author, schema=schema)

    def __repr__(self) -> str:
        return f"<Write to '{self._author.branch}' with {len(self)} statements>"

    def _open(self) -> Catalog:
        if self._catalog is None or self._over:
            raise BadRequest("a write collects changes only inside its `with` block")
        return self._catalog

    def _add(self, statement: Statement) -> None:
        deletes = isinstance(statement, DeleteNodes | DeleteEdges)
        if self._statements and deletes != isinstance(self._statements[0], DeleteNodes | DeleteEdges):
            raise BadRequest(
                "the write mixes inserts/updates and deletes; split into separate writes: "
                "(1) inserts and updates, then (2) deletes"
            )
        self._statements.append(statement)
