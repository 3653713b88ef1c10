"""A write put together in Python: intent is collected, and committed once when the block ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.schema_files import LiveSchema
from omnigraph.engine.write.mutate import MutationResult, SchemaMoved, run_statements
from omnigraph.engine.write.statement_block import StatementBlock, WriteSchema, find_key_id
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import BadRequest, ReadSetChanged
from omnigraph.lang.query.resolved import Statement
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.values import shorten_legibly

ReceivedStatement = tuple[Statement, str | None]
"""A statement of another process, and the id that it chose for what it inserts."""
ResolveStatements = Callable[[Catalog], Iterable[ReceivedStatement]]
"""Checks statements of another process against a schema."""

_ULID = re.compile("[0-7][0-9A-HJKMNP-TV-Z]{25}")


class WriteBlock(StatementBlock):
    """Changes of one branch that become one commit at the end of a `with` block, or none after an error.

    It may insert and update, or delete, but not both. Inserts of a type with a key replace the node that
    has the key already. Updates see what was inserted and updated before them.
    """

    def __init__(self, writing: Callable[[], OpenGraph], author: Author) -> None:
        super().__init__(author)
        self._writing = writing
        self._chosen: set[str] = set()

    def __enter__(self) -> Self:
        self._require_unused()
        graph = self._writing()
        self._begin(schema_of_write(graph.schema()), graph.root.clock() // 1000)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        schema = self._end(kind)
        if schema is None:
            return
        try:
            self._result = run_statements(
                self._writing(),
                self._statements,
                {},
                self._author,
                schema.fingerprint,
                ids=self._ids,
                has_chosen_ids=bool(self._chosen),
            )
        except SchemaMoved as moved:
            raise moved.conflict() from moved

    def _receive(self, fingerprint: str | None, received: ResolveStatements) -> None:
        schema = self._open()
        if fingerprint is not None and fingerprint != schema.fingerprint:
            raise ReadSetChanged("schema", expected=fingerprint, actual=schema.fingerprint)
        for statement, chosen in received(schema.catalog):
            self._add_received(statement, chosen)

    def _add_received(self, statement: Statement, chosen: str | None) -> None:
        """Add a statement of another process, which may have chosen the id of what it inserts."""
        if chosen is None:
            self._add(statement)
            return
        key_id = find_key_id(self._open(), statement)
        is_new = _ULID.fullmatch(chosen) is not None and chosen not in self._chosen
        if chosen != key_id if key_id is not None else not is_new:
            raise BadRequest(
                f"'{shorten_legibly(chosen)}' cannot be the id of a new `{statement.type_name}`",
                remedy="leave it out; it follows from the key, or is a ULID that is used once",
            )
        if key_id is None:
            self._chosen.add(chosen)
        self._append(statement, chosen)


def schema_of_write(schema: LiveSchema) -> WriteSchema:
    """Return what statements are checked by while a schema holds."""

    def key_order(type_name: str) -> tuple[str, ...]:
        return schema.targets[table_key("node", type_name)].identity

    return WriteSchema(schema.catalog, schema.catalog.fingerprint, key_order)


def schema_behind(block: WriteBlock) -> LiveSchema:
    """Return the schema of the graph that a write is about, as it is now."""
    return block._writing().schema()  # noqa: SLF001 - what another process needs to check statements


def run_received(block: WriteBlock, fingerprint: str | None, received: ResolveStatements) -> MutationResult:
    """Run statements that another process collected, as one commit.

    Raises `ReadSetChanged` when it checked them by a schema that no longer holds.
    """
    with block:
        block._receive(fingerprint, received)  # noqa: SLF001 - the other half of a block that is elsewhere
    return block.result
