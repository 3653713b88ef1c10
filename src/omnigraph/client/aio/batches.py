"""The result of a query as batches of Arrow that arrive while they are read."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import pyarrow as pa

from omnigraph.client.aio.transport import AsyncTransport
from omnigraph.client.arrow_frames import BatchFrames
from omnigraph.client.calls import Call
from omnigraph.errors import InternalError


class AsyncBatches(AsyncIterator[pa.RecordBatch]):
    """Batches of a result, of which at most a few are in memory: an async iterator and context manager.

    The query is sent when the block begins, or with the first batch. Leaving the block stops it.
    """

    def __init__(self, transport: AsyncTransport, call: Call[None]) -> None:
        self._transport = transport
        self._call = call
        self._opened = AsyncExitStack()
        self._frames = BatchFrames()
        self._ready: deque[pa.RecordBatch] = deque()
        self._chunks: AsyncIterator[bytes] | None = None
        self._is_closed = False

    @property
    def schema(self) -> pa.Schema:
        """The columns; known once the block has begun."""
        if self._frames.schema is None:
            raise InternalError("the columns are not known yet", remedy="use it in an `async with` block")
        return self._frames.schema

    async def close(self) -> None:
        """Stop the query and free its connection."""
        self._is_closed = True
        self._ready.clear()
        await self._opened.aclose()

    async def __aenter__(self) -> Self:
        await self._receive_until(lambda: self._frames.schema is not None)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def __anext__(self) -> pa.RecordBatch:
        await self._receive_until(lambda: bool(self._ready))
        if self._ready:
            return self._ready.popleft()
        await self.close()
        raise StopAsyncIteration

    async def _receive_until(self, is_enough: Callable[[], bool]) -> None:
        try:
            while not is_enough() and not self._is_closed and await self._receive():
                pass
        except BaseException as failure:
            self._is_closed = True
            # The open answer turns failures of the connection into typed errors.
            await self._opened.__aexit__(type(failure), failure, failure.__traceback__)
            raise

    async def _receive(self) -> bool:
        """Take the next chunk; False at the end."""
        if self._chunks is None:
            response = await self._opened.enter_async_context(self._transport.stream(self._call))
            self._chunks = response.aiter_bytes()
        chunk = await anext(self._chunks, None)
        if chunk is None:
            self._frames.finish()
            return False
        self._ready.extend(self._frames.add(chunk))
        return True
