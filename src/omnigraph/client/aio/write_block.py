"""The write block of a graph behind a server, for asyncio."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from omnigraph.client.aio.transport import AsyncTransport
from omnigraph.client.statements import get_write_schema, run_write
from omnigraph.engine.write.statement_block import StatementBlock
from omnigraph.engine.write.transaction import Author


class AsyncRemoteWriteBlock(StatementBlock):
    """Changes of one branch that become one commit at the end of an `async with` block, or none.

    Its methods only collect, so none of them is awaited.
    """

    def __init__(self, transport: AsyncTransport, author: Author) -> None:
        super().__init__(author)
        self._transport = transport

    async def __aenter__(self) -> Self:
        self._require_unused()
        self._begin(await self._transport.send(get_write_schema(self._author)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        schema = self._end(kind)
        if schema is not None:
            call = run_write(self._author, schema, self._statements, self._ids)
            self._result = await self._transport.send(call)
