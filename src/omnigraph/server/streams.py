"""Answers that are produced while they are sent.

A piece is produced in a worker thread while the one before is sent, so a client that does not read holds two
pieces and no thread. The end of the connection cancels the work and frees what the stream holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from omnigraph.server.errors import ClientGone
from omnigraph.server.requests import Call
from omnigraph.server.workers import Pool

CHUNK_BYTES = 64 << 10
"""The most bytes of a stream that are handed to the connection at one time."""
PART_BYTES = 256 << 10
"""The same of a body that is all there; handed over whole, a large one takes several times as long."""

Pieces = Generator[bytes, None, None]
Producing = asyncio.Future[bytes | None]
"""The next piece of a stream, or its end, once a thread has produced it."""
Made = TypeVar("Made")

_log = logging.getLogger(__name__)


class StreamBroken(Exception):
    """A stream failed after its header was sent; the connection is cut, so that the client notices."""


class PiecesReply(Response):
    """An answer whose body is there in pieces; a long one is neither joined nor handed over at once."""

    def __init__(self, pieces: Sequence[bytes | memoryview], media: str) -> None:
        self._pieces = pieces
        self._size = sum(map(len, pieces))
        is_short = self._size <= PART_BYTES
        super().__init__(b"".join(pieces) if is_short else b"", media_type=media)
        if not is_short:
            self.headers["Content-Length"] = str(self._size)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        if self._size <= PART_BYTES:
            await super().__call__(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for piece in self._pieces:
            for chunk in _cut(piece, PART_BYTES):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def start_stream(
    call: Call,
    open_pieces: Callable[[], Pieces],
    media: str,
    *,
    headers: Mapping[str, str] | None = None,
    release: Callable[[], None] = lambda: None,
    status: int = 200,
) -> StreamReply:
    """Return the answer once its first piece is there: what fails before that fails with a status."""
    opened: list[Pieces] = []

    def begin() -> bytes:
        opened.append(open_pieces())
        return next(opened[0], b"")

    try:
        first = await call.read(begin)
    except BaseException:
        for pieces in opened:
            pieces.close()
        release()
        raise
    return StreamReply(call, first, opened[0], media, headers, release, status)


class StreamReply(Response):
    """An answer that is sent piece by piece."""

    def __init__(
        self,
        call: Call,
        first: bytes,
        pieces: Pieces,
        media: str,
        headers: Mapping[str, str] | None,
        release: Callable[[], None],
        status: int,
    ) -> None:
        # Not the constructor of the base class: that would declare a length of 0.
        self.status_code = status
        self.media_type = None
        self.background = None
        self.init_headers({**(headers or {}), "Content-Type": media})
        self._call = call
        self._first = first
        self._pieces = pieces
        self._release = release
        self._producing: Producing | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything; raises `ClientGone` when the client closes the connection first."""
        gone = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            await self._send_pieces(send, gone)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except ClientGone:
            raise
        except Exception as error:
            _log.error("a stream of operation '%s' failed", self._call.route.operation, exc_info=error)
            raise StreamBroken from error
        finally:
            gone.cancel()
            await asyncio.shield(self._close())

    async def _send_pieces(self, send: Send, gone: asyncio.Task[None]) -> None:
        piece: bytes | None = self._first
        self._first = b""
        while piece is not None:
            self._producing = following = self._run(lambda: next(self._pieces, None))
            for chunk in _cut(piece, CHUNK_BYTES):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                if gone.done():
                    raise ClientGone
            piece = await self._wait_for(following, gone)

    async def _wait_for(self, waiting: Producing, gone: asyncio.Task[None]) -> bytes | None:
        """Return the next piece; a client that leaves meanwhile cancels the work."""
        watched: set[asyncio.Future[Any]] = {waiting, gone}
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            self._call.cancel.set()
            await asyncio.wait({waiting})
            waiting.exception()
            raise ClientGone
        return waiting.result()

    async def _close(self) -> None:
        self._call.cancel.set()
        try:
            if self._producing is not None:
                # The client left, or the server is stopping; what a thread still produces is closed after it.
                await asyncio.wait({self._producing})
                if not self._producing.cancelled():
                    self._producing.exception()
            await self._run(self._pieces.close)
        finally:
            self._release()

    def _run(self, work: Callable[[], Made]) -> asyncio.Future[Made]:
        workers = self._call.service.workers
        found = asyncio.wrap_future(workers.submit(Pool.READ, work))
        found.add_done_callback(lambda _: workers.finished(Pool.READ))
        return found


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _cut(piece: bytes | memoryview, size: int) -> Iterator[bytes]:
    if len(piece) <= size:
        if piece:
            yield bytes(piece)
        return
    view = memoryview(piece)
    for start in range(0, len(piece), size):
        yield bytes(view[start : start + size])
