"""Reading one Blob: which entity and property it belongs to, how large it is, and its bytes, part by part."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import field
from typing import Literal, Protocol

from omnigraph.arguments import check_all_arguments
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import EntityKind, split_key, table_key
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.snapshot_tables import explain_failure, open_table
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.rows.predicate import one_of
from omnigraph.errors import BadRequest, InvalidValue, NotFound, StorageFailure, UnsatisfiableRange
from omnigraph.lang.values import shorten_legibly
from omnigraph.storage.blobs import is_blob, open_blob
from omnigraph.storage.tables import Table

PART_BYTES = 4 * 2**20
LARGEST = 2**63 - 1

_ROW, _WRITTEN = "_rowid", "_row_last_updated_at_version"


class BlobBytes(Protocol):
    """Where the bytes of a Blob are read from: a table, or a server."""

    def parts(self, begin: int, end: int, part: int) -> Iterator[bytes]:
        """The bytes of a range, at most so many at a time."""
        ...


@dataclass(frozen=True, slots=True)
class BlobFacts:
    """What is known of a Blob before its bytes are read."""

    entity: EntityKind
    type_name: str
    id: str
    property_name: str
    kind: Literal["managed", "external"]
    """Whether the graph has the bytes, or only says where they are."""
    size: int | None
    """How many bytes; None of an external one."""
    etag: str | None
    """The same as long as the entity is not written again; None of an external one."""
    uri: str | None
    """Where the bytes of an external one are."""

    def resolve_range(self, offset: int | None, length: int | None) -> tuple[int, int]:
        """Return the first byte of a range and the one behind its last; fails when there is no such range."""
        require_range(offset, length)
        if self.size is None:
            raise BadRequest(
                f"the bytes of {self._name} are not in the graph, but at '{self.uri}'",
                remedy="read them from there",
            )
        begin = offset or 0
        end = self.size if length is None else min(self.size, begin + length)
        if begin and begin >= self.size:
            raise UnsatisfiableRange(start=begin, end=end, length=self.size)
        return begin, end

    @property
    def _name(self) -> str:
        return f"'{self.property_name}' of {self.entity} {self.type_name} '{shorten_legibly(self.id)}'"


@check_all_arguments
@dataclass(frozen=True, slots=True)
class Blob(BlobFacts):
    """A Blob of one entity, as a moment of the graph shows it."""

    _stored: BlobBytes = field(repr=False, compare=False)

    def read(self, offset: int | None = None, length: int | None = None) -> bytes:
        """The bytes, or a range of them; one that ends behind the last byte ends there."""
        return b"".join(self.parts(offset, length))

    def parts(self, offset: int | None = None, length: int | None = None) -> Iterator[bytes]:
        """The same in parts of up to 4 MiB, so that none of it has to be in memory as a whole."""
        return self._stored.parts(*self.resolve_range(offset, length), PART_BYTES)


def require_range(offset: int | None, length: int | None) -> None:
    """Fail when no Blob has such a range; known before anything is read."""
    if offset is not None and offset < 0:
        raise InvalidValue(f"offset must not be negative, got {offset}")
    if length is not None and length < 1:
        raise InvalidValue(f"length must be at least 1, got {length}")
    if (offset or 0) + (length or 0) > LARGEST:
        raise InvalidValue(f"offset and length must not be more than {LARGEST} together")


def find_blob(
    graph: OpenGraph, snapshot: Snapshot, entity: EntityKind, type_name: str, entity_id: str, name: str
) -> Blob:
    """The Blob of an entity; an error uses the names that were asked for."""
    key = _table_of(snapshot, entity, type_name)
    table = open_table(graph, snapshot, key)
    _require_blob(table, type_name, name)
    try:
        found = table.scan([_ROW, _WRITTEN, name], where=one_of(ID, [entity_id])).to_pylist()
    except StorageFailure as failure:
        raise explain_failure(graph, snapshot, key, failure) from failure
    what = f"{entity} {type_name} '{shorten_legibly(entity_id)}'"
    if not found:
        raise NotFound(f"there is no {what} in snapshot '{snapshot.id}'")
    (row,) = found
    if row[name] is None:
        raise NotFound(f"{what} has no '{name}': it is null")
    stored = open_blob(table, name, row[_ROW], row[name])
    if stored.uri:
        return Blob(entity, type_name, entity_id, name, "external", None, None, stored.uri, stored)
    tag = f"{table.uri} {table.branch} {row[_ROW]} {row[_WRITTEN]} {name}"
    etag = f'"{hashlib.sha256(tag.encode()).hexdigest()[:32]}"'
    return Blob(entity, type_name, entity_id, name, "managed", stored.size, etag, None, stored)


def _table_of(snapshot: Snapshot, entity: EntityKind, type_name: str) -> str:
    key = table_key(entity, type_name)
    if key in snapshot.entries:
        return key
    known = [name for kind, name in map(split_key, snapshot.entries) if kind == entity]
    raise BadRequest(
        f"there is no {entity} type '{shorten_legibly(type_name)}' in snapshot '{snapshot.id}'",
        remedy=f"it has: {', '.join(known) or 'none'}",
    )


def _require_blob(table: Table, type_name: str, name: str) -> None:
    known = [one.name for one in table.schema if is_blob(one)]
    if name in known:
        return
    reason = "it is not a Blob" if name in table.schema.names else "there is no such property"
    has = f"its Blobs are: {', '.join(known)}" if known else f"{type_name} has no Blobs"
    raise BadRequest(
        f"'{shorten_legibly(name)}' of {type_name} cannot be read as bytes: {reason}", remedy=has
    )
