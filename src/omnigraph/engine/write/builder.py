"""A write put together in Python: intent is collected, and committed once when the block ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from omnigraph.arguments import check_arguments
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.schema_files import LiveSchema
from omnigraph.engine.rows.ids import generate_ids
from omnigraph.engine.write.mutate import MutationResult, SchemaMoved, run_statements
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import BadRequest
from omnigraph.lang.query.resolved import DeleteEdges, DeleteNodes, InsertNode, Statement
from omnigraph.lang.query.statements import (
    Condition,
    PropertyValues,
    delete_rows,
    insert_edge,
    insert_node,
    update_nodes,
)
from omnigraph.lang.query.terms import Const
from omnigraph.lang.schema.keys import compose_id, render_scalar


@check_arguments
class WriteBlock:
    """Changes of one branch that become one commit at the end of a `with` block, or none after an error.

    It may insert and update, or delete, but not both. Inserts of a type with a key replace the node that
    has the key already. Updates see what was inserted and updated before them.
    """

    def __init__(self, writing: Callable[[], OpenGraph], author: Author) -> None:
        self._writing = writing
        self._author = author
        self._schema: LiveSchema | None = None
        self._new_ids: Iterator[str] = iter(())
        self._statements: list[Statement] = []
        self._ids: list[str] = []
        self._over = False
        self._result: MutationResult | None = None

    def insert(self, type_name: str, values: PropertyValues | None = None, /, **more: object) -> str:
        """A node; its properties as keywords or in a mapping. Edges may name it by the id that comes back."""
        schema = self._open()
        statement = insert_node(schema.catalog, type_name, {**(values or {}), **more})
        return self._add(statement, _key_id(schema, statement))

    def insert_edge(
        self,
        type_name: str,
        from_: str,
        to: str,
        values: PropertyValues | None = None,
        /,
        **more: object,
    ) -> str:
        """An edge from one node to another, both named by their ids; what comes back is its own."""
        return self._add(insert_edge(self._open().catalog, type_name, from_, to, {**(values or {}), **more}))

    def update(
        self, type_name: str, where: Condition, values: PropertyValues | None = None, /, **more: object
    ) -> None:
        """New values for all nodes that pass a test such as `("age", ">", 90)`."""
        self._add(update_nodes(self._open().catalog, type_name, where, {**(values or {}), **more}))

    def delete(self, type_name: str, where: Condition, /) -> None:
        """All nodes, with their edges, or all edges of a type that pass a test."""
        self._add(delete_rows(self._open().catalog, type_name, where))

    @property
    def result(self) -> MutationResult:
        """What the write did; known once the block has ended."""
        if self._result is None:
            raise BadRequest("the write has no result yet", remedy="ask for it after the `with` block")
        return self._result

    def __len__(self) -> int:
        return len(self._statements)

    def __enter__(self) -> Self:
        if self._schema is not None:
            raise BadRequest("a write can be used once", remedy="begin another one with `graph.write`")
        graph = self._writing()
        self._schema, self._new_ids = graph.schema(), _generate_ids(graph.root.clock() // 1000)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        if kind is None and self._schema is not None:
            known = self._schema.catalog.fingerprint
            try:
                self._result = run_statements(
                    self._writing(), self._statements, {}, self._author, known, ids=self._ids
                )
            except SchemaMoved as moved:
                raise moved.conflict() from moved

    def __repr__(self) -> str:
        return f"<Write to '{self._author.branch}' with {len(self)} statements>"

    def _open(self) -> LiveSchema:
        if self._schema is None or self._over:
            raise BadRequest("a write collects changes only inside its `with` block")
        return self._schema

    def _add(self, statement: Statement, key_id: str | None = None) -> str:
        deletes = isinstance(statement, DeleteNodes | DeleteEdges)
        if self._statements and deletes != isinstance(self._statements[0], DeleteNodes | DeleteEdges):
            raise BadRequest(
                "the write mixes inserts/updates and deletes; split into separate writes: "
                "(1) inserts and updates, then (2) deletes"
            )
        self._statements.append(statement)
        self._ids.append(next(self._new_ids) if key_id is None else key_id)
        return self._ids[-1]


def _generate_ids(milliseconds: int) -> Iterator[str]:
    """New ids without end; some are drawn at a time, which costs no more than drawing one."""
    while True:
        yield from generate_ids(64, milliseconds).to_pylist()


def _key_id(schema: LiveSchema, statement: InsertNode) -> str | None:
    """The id that follows from the key of a node; None when its type has none, and it gets a new one."""
    target = schema.targets[table_key("node", statement.type_name)]
    if not target.identity:
        return None
    given = {name: term.value for name, term in statement.values if isinstance(term, Const)}
    types = target.owner.properties
    return compose_id([render_scalar(given[name], types[name].type) for name in target.identity])
