"""Exports and baselines for asyncio: lines, written in a worker thread as they arrive."""

from __future__ import annotations

from contextlib import AbstractContextManager

from omnigraph.client import changes
from omnigraph.client.aio.blocking import enter_blocking, run_blocking
from omnigraph.client.aio.transport import AsyncTransport
from omnigraph.client.changes import ChangeFilterOptions
from omnigraph.client.exports import CHUNK, Baseline, BaselineLines, ExportSink
from omnigraph.engine.export.export_request import BinaryStream, ExportResult


async def write_export(transport: AsyncTransport, opened: AbstractContextManager[ExportSink]) -> ExportResult:
    """Write the entities of a snapshot to what was opened for them."""
    async with enter_blocking(opened) as sink, transport.stream(sink.call) as response:
        async for chunk in response.aiter_bytes(CHUNK):
            await run_blocking(sink.write, chunk)
        return await run_blocking(sink.finish)


async def write_baseline(
    transport: AsyncTransport, branch: str, wanted: ChangeFilterOptions, stream: BinaryStream
) -> Baseline:
    """Write the entities of a branch to a stream; without the last line, which has the cursor."""
    lines = BaselineLines()
    async with transport.stream(changes.capture_baseline(branch, wanted)) as response:
        async for chunk in response.aiter_bytes(CHUNK):
            await run_blocking(stream.write, lines.add(chunk))
    return lines.finish()
