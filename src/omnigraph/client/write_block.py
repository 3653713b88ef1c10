"""The write block of a graph behind a server: statements are checked here, and sent in one request."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from omnigraph.client.statements import get_write_schema, run_write
from omnigraph.client.transport import Transport
from omnigraph.engine.write.statement_block import StatementBlock
from omnigraph.engine.write.transaction import Author


class RemoteWriteBlock(StatementBlock):
    """Changes of one branch that become one commit at the end of a `with` block, or none after an error.

    It begins with a request for the schema, and ends with one that carries all statements.
    """

    def __init__(self, transport: Transport, author: Author) -> None:
        super().__init__(author)
        self._transport = transport

    def __enter__(self) -> Self:
        self._require_unused()
        self._begin(self._transport.send(get_write_schema(self._author)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        schema = self._end(kind)
        if schema is not None:
            self._result = self._transport.send(run_write(self._author, schema, self._statements, self._ids))
