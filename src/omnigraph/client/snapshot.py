"""A graph behind a server at one moment."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Literal

import pyarrow as pa

from omnigraph.arguments import check_arguments
from omnigraph.client import reads
from omnigraph.client.exports import Pinned, write_export
from omnigraph.client.reads import BlobSelector, SnapshotFacts
from omnigraph.client.transport import Transport
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.export.export_request import ExportFormatName, ExportOutput, ExportResult
from omnigraph.engine.graph.layout import EntityKind
from omnigraph.engine.graph.lineage import Commit
from omnigraph.engine.rows.blobs import Blob
from omnigraph.errors import OmnigraphError
from omnigraph.query.result import Result
from omnigraph.snapshot import TableInfo

BlobDescription = tuple[
    EntityKind,
    str,
    str,
    str,
    Literal["managed", "external"],
    int | None,
    str | None,
    str | None,
]
"""Entity, type, id, property, kind, size, etag and place of a Blob, in the order of its fields."""


@dataclass(frozen=True, repr=False)
class PinnedMoment:
    """What is known of a moment of a graph."""

    id: str
    """The id of the newest commit it shows, or a name made of branch and version when there is none."""
    branch: str
    version: int
    """The version of the branch that it shows."""
    commit: Commit | None
    """The newest commit it shows."""
    tables: Mapping[str, TableInfo] = field(hash=False)
    """The table of each type, by `node:Name` or `edge:Name`."""

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.id} of '{self.branch}' at version {self.version}, "
            f"{len(self.tables)} tables>"
        )

    @property
    def _pinned(self) -> Pinned:
        return self.id, self.branch, self.version

    def _select(
        self, entity: Literal["node", "edge"], type_name: str, id: str, property_name: str
    ) -> BlobSelector:
        return BlobSelector(entity, type_name, id, property_name, self.branch, self.version)

    def _options(self, name: str | None, max_rows: int | None, timeout: float | None) -> reads.QueryOptions:
        return {
            "branch": self.branch,
            "version": self.version,
            "name": name,
            "max_rows": max_rows,
            "timeout": timeout,
        }


@check_arguments
@dataclass(frozen=True, repr=False)
class RemoteSnapshot(PinnedMoment):
    """A graph at one moment; it never changes."""

    _transport: Transport = field(compare=False)

    def query(
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
        return self._transport.send(call)

    def rows(
        self, type_name: str, *, columns: Sequence[str] | None = None, limit: int | None = None
    ) -> pa.Table:
        """The nodes or edges of a type as an Arrow table, in no promised order.

        An edge has its ends as `src` and `dst`. Blobs are left out.
        """
        return self._transport.send(reads.read_rows(type_name, columns, limit, self.branch, self.version))

    def blob(
        self, type_name: str, id: str, property_name: str, *, entity: Literal["node", "edge"] = "node"
    ) -> Blob:
        """One Blob: its size and etag, and its bytes when they are asked for, as in `.read()`."""
        return find_blob(self._transport, self._select(entity, type_name, id, property_name))

    def export(
        self,
        output: ExportOutput,
        *,
        format: ExportFormatName = "ndjson",
        types: Iterable[str] | None = None,
        overwrite: bool = False,
    ) -> ExportResult:
        """Write all types, or those named, to a file of NDJSON or a binary stream."""
        return write_export(
            self._transport,
            self._pinned,
            output,
            format=format,
            types=None if types is None else tuple(types),
            overwrite=overwrite,
        )


def snapshot_of(facts: SnapshotFacts, transport: Transport) -> RemoteSnapshot:
    """What users see of a moment."""
    return RemoteSnapshot(facts.id, facts.branch, facts.version, facts.commit, facts.tables, transport)


@dataclass(frozen=True, slots=True)
class ServedBlob:
    """The bytes of a Blob behind a server."""

    transport: Transport
    selector: BlobSelector

    def parts(self, begin: int, end: int, part: int) -> Iterator[bytes]:
        """The bytes of a range, at most so many at a time."""
        if end <= begin:
            return
        with self.transport.stream(reads.read_blob(self.selector, begin, end)) as response:
            yield from response.iter_bytes(part)


def find_blob(transport: Transport, selector: BlobSelector) -> Blob:
    """Return the Blob of an entity."""
    try:
        headers = transport.send(reads.describe_blob(selector))
    except OmnigraphError:
        # An answer to HEAD has no body, and so no error in it.
        headers = transport.send(reads.explain_blob(selector))
    return Blob(*describe_blob(headers, selector), ServedBlob(transport, selector))


def describe_blob(headers: Mapping[str, str], selector: BlobSelector) -> BlobDescription:
    """Return what the headers of an answer say about a Blob."""
    place = headers.get("location")
    where = (selector.entity, selector.type_name, selector.id, selector.property_name)
    if place is not None:
        return (*where, "external", None, None, place)
    return (*where, "managed", int(headers["content-length"]), headers["etag"], None)
