"""Loads for asyncio: rejects are written in a worker thread as they arrive."""

from __future__ import annotations

from omnigraph.client.aio.blocking import run_blocking
from omnigraph.client.aio.transport import AsyncTransport
from omnigraph.client.archives import CHUNK
from omnigraph.client.loads import LoadAnswer, PreparedLoad
from omnigraph.engine.load.request import LoadResult
from omnigraph.errors import KeyConflict, LoadRejected


async def send_load(transport: AsyncTransport, prepared: PreparedLoad) -> LoadResult:
    """Send a load; raises what a local one raises, with the files and lines that the caller knows."""
    try:
        if prepared.rejects is None:
            return await transport.send(prepared.call)
        answer = LoadAnswer(prepared)
        async with transport.stream(prepared.call, failures=True) as response:
            async for chunk in response.aiter_bytes(CHUNK):
                await run_blocking(answer.write, chunk)
        return await run_blocking(answer.finish, response.status_code, response.headers)
    except (LoadRejected, KeyConflict) as refused:
        raise prepared.locate(refused) from None
