"""The JSON values of a Blob property -> its column."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.rows.json_columns import ParsedColumn
from omnigraph.errors import InternalError, InvalidValue, ResourceLimitExceeded
from omnigraph.lang.values import shorten_legibly
from omnigraph.storage.blobs import is_blob, to_writable

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
            stored.append(None if value is None else _stored(value, name, refusal))
        except InvalidValue as wrong:
            stored.append(None)
            faults[row] = wrong.message
    return ParsedColumn(
        pa.ExtensionArray.from_storage(field.type, pa.array(stored, field.type.storage_type)), faults
    )


def require_blob_bytes(rows: pa.Table) -> None:
    """Fail when a Blob has neither bytes nor a source: it was read and cast, and its bytes would be lost."""
    for field in filter(is_blob, rows.schema):
        for chunk in rows.column(field.name).chunks:
            stored = chunk.storage
            empty = pc.and_(stored.field("data").is_null(), stored.field("uri").is_null())
            if pc.any(pc.and_(stored.is_valid(), empty)).as_py():
                raise InternalError(f"Blob property '{field.name}' has lost its bytes")


def _stored(value: object, name: str, refusal: Refusal) -> dict[str, bytes | str]:
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
