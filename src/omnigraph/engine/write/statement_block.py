"""Changes collected in Python, each checked as it is added; what becomes of them is up to the block."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from omnigraph.arguments import check_arguments
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.rows.ids import generate_ids
from omnigraph.engine.write.mutate import MutationResult
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import BadRequest
from omnigraph.lang.query.resolved import DeleteEdges, DeleteNodes, InsertEdge, InsertNode, Statement
from omnigraph.lang.query.statements import (
    Condition,
    PropertyValues,
    delete_rows,
    insert_edge,
    insert_node,
    update_rows,
)
from omnigraph.lang.query.terms import Const
from omnigraph.lang.schema.catalog import Catalog, EdgeType
from omnigraph.lang.schema.keys import compose_id, render_scalar
from omnigraph.lang.types import STRING


@dataclass(frozen=True, slots=True)
class WriteSchema:
    """What the statements of a write are checked by."""

    catalog: Catalog
    fingerprint: str
    """Of the schema that the graph had when the write began."""
    key_order: Callable[[str], tuple[str, ...]]
    """The key properties of a node type in the order in which they form its id; empty when it has no key."""


@check_arguments
class StatementBlock:
    """Changes of one branch that become one commit at the end of a `with` block, or none after an error.

    It may insert and update, or delete, but not both. Inserts of a type with a key replace the node that
    has the key already. Updates see what was inserted and updated before them.
    """

    def __init__(self, author: Author) -> None:
        self._author = author
        self._schema: WriteSchema | None = None
        self._new_ids: Iterator[str] = iter(())
        self._statements: list[Statement] = []
        self._ids: list[str] = []
        self._over = False
        self._result: MutationResult | None = None

    def insert(self, type_name: str, values: PropertyValues | None = None, /, **more: object) -> str:
        """A node; its properties as keywords or in a mapping. Edges may name it by the id that comes back."""
        return self._add(insert_node(self._open().catalog, type_name, {**(values or {}), **more}))

    def upsert(self, type_name: str, values: PropertyValues | None = None, /, **more: object) -> str:
        """Another name of `insert`: a node that replaces the one with its key."""
        return self.insert(type_name, values, **more)

    def create(self, type_name: str, values: PropertyValues | None = None, /, **more: object) -> str:
        """A new node; the write fails with `KeyConflict` if there is one with its key."""
        found = {**(values or {}), **more}
        return self._add(insert_node(self._open().catalog, type_name, found, strict=True))

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
        """New values for all nodes, or all edges, that pass a test such as `("age", ">", 90)`."""
        self._add(update_rows(self._open().catalog, type_name, where, {**(values or {}), **more}))

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

    def __repr__(self) -> str:
        return f"<Write to '{self._author.branch}' with {len(self)} statements>"

    def _require_unused(self) -> None:
        if self._schema is not None:
            raise BadRequest("a write can be used once", remedy="begin another one with `graph.write`")

    def _begin(self, schema: WriteSchema, milliseconds: int | None = None) -> None:
        """Take statements from now on; new ids carry the time, which is now unless the graph has a clock."""
        self._schema = schema
        now = time.time_ns() // 1_000_000 if milliseconds is None else milliseconds
        self._new_ids = _generate_ids(now)

    def _end(self, kind: type[BaseException] | None) -> WriteSchema | None:
        """Take no more statements, and return the schema if they are to be committed."""
        self._over = True
        return self._schema if kind is None else None

    def _open(self) -> WriteSchema:
        if self._schema is None or self._over:
            raise BadRequest(
                "a write collects changes only inside its `with` block",
                remedy="write `with graph.write() as tx:` and use `tx` inside",
            )
        return self._schema

    def _add(self, statement: Statement) -> str:
        key_id = find_key_id(self._open(), statement)
        return self._append(statement, next(self._new_ids) if key_id is None else key_id)

    def _append(self, statement: Statement, entity_id: str) -> str:
        deletes = isinstance(statement, DeleteNodes | DeleteEdges)
        if self._statements and deletes != isinstance(self._statements[0], DeleteNodes | DeleteEdges):
            raise BadRequest(
                "the write mixes inserts/updates and deletes; split into separate writes: "
                "(1) inserts and updates, then (2) deletes"
            )
        self._statements.append(statement)
        self._ids.append(entity_id)
        return entity_id


def _generate_ids(milliseconds: int) -> Iterator[str]:
    """New ids without end; some are drawn at a time, which costs no more than drawing one."""
    while True:
        yield from generate_ids(64, milliseconds).to_pylist()


def find_key_id(schema: WriteSchema, statement: Statement) -> str | None:
    """Return the id that follows from the key of a new node or edge; None for anything else."""
    if isinstance(statement, InsertEdge):
        return _find_edge_id(schema.catalog.edges[statement.type_name], statement)
    if not isinstance(statement, InsertNode):
        return None
    order = schema.key_order(statement.type_name)
    if not order:
        return None
    given = {name: term.value for name, term in statement.values if isinstance(term, Const)}
    types = schema.catalog.nodes[statement.type_name].properties
    return compose_id([render_scalar(given[name], types[name].type) for name in order])


def _find_edge_id(edge: EdgeType, statement: InsertEdge) -> str | None:
    if not edge.key:
        return None
    terms = {"src": statement.source, "dst": statement.target, **dict(statement.values)}
    given = {name: term.value for name, term in terms.items() if isinstance(term, Const)}
    types = edge.properties
    return compose_id(
        [render_scalar(given[name], types[name].type if name in types else STRING) for name in edge.key]
    )
