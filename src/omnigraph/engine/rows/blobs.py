"""The values of Blob properties: from JSON to a column, and one of them read again, part by part."""

from __future__ import annotations

import binascii
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.arguments import check_all_arguments
from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import EntityKind, split_key, table_key
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.snapshot_tables import explain_failure, open_table
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.rows.json_columns import ParsedColumn
from omnigraph.engine.rows.predicate import one_of
from omnigraph.errors import (
    BadRequest,
    InternalError,
    InvalidValue,
    NotFound,
    ResourceLimitExceeded,
    StorageFailure,
    UnsatisfiableRange,
)
from omnigraph.lang.values import shorten_legibly
from omnigraph.storage.blobs import is_blob, open_blob, to_writable
from omnigraph.storage.tables import Table

__all__ = ["is_blob", "read_blobs", "reject_external", "require_blob_bytes", "to_writable"]

MANAGED = "base64:"
LONGEST_URI = 64 * 1024

Refusal = Callable[[str], str | None]
"""Says why an external source is not allowed; None when it is."""


def reject_external(_uri: str) -> str | None:
    """The rule of a graph that allows no external sources."""
    return "this graph allows no external sources"


def read_blobs(values: Sequence[object], name: str, field: pa.Field, refusal: Refusal) -> ParsedColumn:
    """The column of a Blob property: bytes given as base64, or references where the graph allows them."""
    stored: list[dict[str, bytes | str] | None] = []
    faults: dict[int, str] = {}
    for row, value in enumerate(values):
        try:
            stored.append(None if value is None else _parse_value(value, name, refusal))
        except InvalidValue as wrong:
            stored.append(None)
            faults[row] = wrong.message
    return ParsedColumn(
        pa.ExtensionArray.from_storage(field.type, pa.array(stored, field.type.storage_type)), faults
    )


def require_blob_bytes(rows: pa.Table) -> None:
    """Fail when a Blob has neither bytes nor a source: it was read and cast, and its bytes would be lost."""
    for column in filter(is_blob, rows.schema):
        for chunk in rows.column(column.name).chunks:
            stored = chunk.storage
            empty = pc.and_(stored.field("data").is_null(), stored.field("uri").is_null())
            if pc.any(pc.and_(stored.is_valid(), empty)).as_py():
                raise InternalError(f"Blob property '{column.name}' has lost its bytes")


def _parse_value(value: object, name: str, refusal: Refusal) -> dict[str, bytes | str]:
    if not isinstance(value, str):
        raise InvalidValue(f"blob property '{name}' must be a URI string or base64: prefixed data")
    if value.startswith(MANAGED):
        try:
            return {"data": binascii.a2b_base64(value.removeprefix(MANAGED).encode(), strict_mode=True)}
        except ValueError as error:
            raise InvalidValue(f"blob property '{name}': invalid base64 blob data: {error}") from None
    size = len(value.encode("utf-8", "surrogatepass"))
    if size > LONGEST_URI:
        raise ResourceLimitExceeded(
            f"external Blob URI bytes of property '{name}'",
            limit=LONGEST_URI,
            actual=size,
            remedy=f"give a shorter URI, or the bytes themselves after `{MANAGED}`",
        )
    if reason := refusal(value):
        where = f"blob property '{name}': external blob URI '{shorten_legibly(value)}'"
        raise InvalidValue(f"{where} is not allowed: {reason}")
    return {"uri": value}


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
