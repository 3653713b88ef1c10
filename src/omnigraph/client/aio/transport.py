"""Calls over httpx for asyncio: what `Transport` does, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.client.aio.blocking import iterate_blocking
from omnigraph.client.calls import Call
from omnigraph.client.failures import rebuild_error
from omnigraph.client.transport import (
    PAUSES,
    Address,
    Unanswered,
    load_httpx,
    read_answer,
    report_failures,
    request_options,
)
from omnigraph.errors import GraphClosed

if TYPE_CHECKING:
    import httpx

Answer = TypeVar("Answer")


class AsyncTransport:
    """Sends calls to one graph and awaits their answers; of one event loop, for any of its tasks."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._client: httpx.AsyncClient = load_httpx().AsyncClient(**address.client_options())

    async def send(self, call: Call[Answer]) -> Answer:
        """Return the decoded answer; raises the error that a local graph would raise."""
        pauses = iter(PAUSES)
        while True:
            try:
                return await self._send_once(call)
            except Unanswered as failure:
                await asyncio.sleep(failure.next_pause(pauses))

    async def _send_once(self, call: Call[Answer]) -> Answer:
        with report_failures(self.address, call):
            return read_answer(call, await self._client.send(self._request(call)))

    @asynccontextmanager
    async def stream(self, call: Call[Any], *, failures: bool = False) -> AsyncIterator[httpx.Response]:
        """Open an answer that is read while it arrives; what fails in the block is reported like a call.

        With `failures` the caller reads the bodies of those too.
        """
        response = await self._open(call)
        try:
            with report_failures(self.address, call):
                if response.status_code >= 400 and not failures:
                    raise rebuild_error(response.status_code, await response.aread(), call.source_name)
                yield response
        except Unanswered as failure:
            raise failure.error from failure
        finally:
            await response.aclose()

    async def _open(self, call: Call[Any]) -> httpx.Response:
        """Return an answer whose head is there; until then a read is repeated like any other."""
        pauses = iter(PAUSES)
        while True:
            try:
                with report_failures(self.address, call):
                    return await self._client.send(self._request(call), stream=True)
            except Unanswered as failure:
                await asyncio.sleep(failure.next_pause(pauses))

    def _request(self, call: Call[Any]) -> httpx.Request:
        self.require_open()
        options = request_options(self.address, call)
        if call.body is not None and not isinstance(call.body, bytes):
            options["content"] = iterate_blocking(call.body)
        return self._client.build_request(**options)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._client.is_closed

    def require_open(self) -> None:
        """Fail when it was closed."""
        if self.closed:
            raise GraphClosed(self.address.url)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()
