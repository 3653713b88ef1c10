"""A graph behind a server at one moment, for asyncio."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Literal

import pyarrow as pa

from omnigraph.arguments import check_all_arguments, check_arguments
from omnigraph.client import reads
from omnigraph.client.aio.exports import write_export
from omnigraph.client.aio.transport import AsyncTransport
from omnigraph.client.exports import open_export
from omnigraph.client.reads import BlobSelector, SnapshotFacts
from omnigraph.client.snapshot import PinnedMoment, describe_blob
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.export.export_request import ExportFormatName, ExportOutput, ExportResult
from omnigraph.engine.rows.blobs import PART_BYTES, BlobFacts
from omnigraph.errors import OmnigraphError
from omnigraph.query.result import Result


@check_arguments
@dataclass(frozen=True, repr=False)
class AsyncRemoteSnapshot(PinnedMoment):
    """A graph at one moment; it never changes."""

    _transport: AsyncTransport = field(compare=False)

    async def query(
        self,
        query: str | os.PathLike[str],
        params: Mapping[str, object] | None = None,
        *,
        name: str | None = None,
        max_rows: int | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run a read query on this moment of the graph; see `Graph.query`."""
        call = reads.run_query(query, params, self._options(name, max_rows, timeout))
        return await self._transport.send(call)

    async def rows(
        self, type_name: str, *, columns: Sequence[str] | None = None, limit: int | None = None
    ) -> pa.Table:
        """The nodes or edges of a type as an Arrow table, in no promised order.

        An edge has its ends as `src` and `dst`. Blobs are left out.
        """
        return await self._transport.send(
            reads.read_rows(type_name, columns, limit, self.branch, self.version)
        )

    async def blob(
        self, type_name: str, id: str, property_name: str, *, entity: Literal["node", "edge"] = "node"
    ) -> AsyncBlob:
        """One Blob: its size and etag, and its bytes when they are asked for, as in `await blob.read()`."""
        return await find_blob(self._transport, self._select(entity, type_name, id, property_name))

    async def export(
        self,
        output: ExportOutput,
        *,
        format: ExportFormatName = "ndjson",
        types: Iterable[str] | None = None,
        overwrite: bool = False,
    ) -> ExportResult:
        """Write all types, or those named, to a file of NDJSON or a binary stream."""
        named = None if types is None else tuple(types)
        opened = open_export(self._pinned, output, format=format, types=named, overwrite=overwrite)
        return await write_export(self._transport, opened)


def snapshot_of(facts: SnapshotFacts, transport: AsyncTransport) -> AsyncRemoteSnapshot:
    """What users see of a moment."""
    return AsyncRemoteSnapshot(facts.id, facts.branch, facts.version, facts.commit, facts.tables, transport)


@check_all_arguments
@dataclass(frozen=True, slots=True)
class AsyncBlob(BlobFacts):
    """A Blob of one entity, as a moment of the graph shows it."""

    _transport: AsyncTransport = field(repr=False, compare=False)
    _selector: BlobSelector = field(repr=False, compare=False)

    async def read(self, offset: int | None = None, length: int | None = None) -> bytes:
        """The bytes, or a range of them; one that ends behind the last byte ends there."""
        return b"".join([part async for part in self.parts(offset, length)])

    async def parts(self, offset: int | None = None, length: int | None = None) -> AsyncIterator[bytes]:
        """The same in parts of up to 4 MiB, so that none of it has to be in memory as a whole."""
        begin, end = self.resolve_range(offset, length)
        if end <= begin:
            return
        async with self._transport.stream(reads.read_blob(self._selector, begin, end)) as response:
            async for part in response.aiter_bytes(PART_BYTES):
                yield part


async def find_blob(transport: AsyncTransport, selector: BlobSelector) -> AsyncBlob:
    """Return the Blob of an entity."""
    try:
        headers = await transport.send(reads.describe_blob(selector))
    except OmnigraphError:
        # An answer to HEAD has no body, and so no error in it.
        headers = await transport.send(reads.explain_blob(selector))
    return AsyncBlob(*describe_blob(headers, selector), transport, selector)
