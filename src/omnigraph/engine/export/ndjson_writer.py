"""Rows as strict NDJSON: what a load reads back to the very same rows."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.export.export_part import ExportPart
from omnigraph.engine.rows.blobs import MANAGED
from omnigraph.engine.rows.splits import Limits
from omnigraph.errors import InvalidValue, ResourceLimitExceeded
from omnigraph.lang.types import FLOATS, Scalar, ValueType
from omnigraph.lang.values import Json, column_to_json

_TEXTS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_STRUCTURE = (b"{", b"}", b"[", b"]", b":", b",")
_REMEDY = "export it as parquet, or leave the type out"


def write_ndjson(
    part: ExportPart, batches: Iterator[pa.RecordBatch], *, loadable: bool = True
) -> Iterator[bytes]:
    """A line for each row, with its id and all of its properties, null ones too.

    A line that no load would take is refused, unless the lines are not meant for one.
    """
    encoder = msgspec.json.Encoder()
    names = [name for place, name in enumerate(part.schema.names) if not _is_end(part, place)]
    for batch in batches:
        columns = [_column(part, batch, place) for place in range(batch.num_columns)]
        data = zip(*(column for place, column in enumerate(columns) if not _is_end(part, place)), strict=True)
        records: list[dict[str, object]]
        if part.kind == "node":
            records = [{"type": part.name, "data": dict(zip(names, row, strict=True))} for row in data]
        else:
            records = [
                {"edge": part.name, "from": source, "to": target, "data": dict(zip(names, row, strict=True))}
                for source, target, row in zip(columns[1], columns[2], data, strict=True)
            ]
        lines = encoder.encode_lines(records)
        if loadable:
            _require_loadable(lines, part)
        yield lines


def _is_end(part: ExportPart, place: int) -> bool:
    """Whether a column is an end of an edge, which stands outside of `data`."""
    return part.kind == "edge" and place in (1, 2)


def _column(part: ExportPart, batch: pa.RecordBatch, place: int) -> Sequence[Json]:
    column, type_ = batch.column(place), part.types[place]
    _require_finite(column, type_, f"{part.name}.{part.schema.field(place).name}")
    return blob_texts(column) if type_.scalar is Scalar.BLOB else column_to_json(column, type_)


def blob_texts(column: pa.Array) -> list[str | None]:
    """Blobs as a load reads them."""
    return [None if data is None else MANAGED + b64encode(data).decode() for data in column.to_pylist()]


def _require_finite(column: pa.Array, type_: ValueType, name: str) -> None:
    """Refuse numbers that JSON has no form for; nothing written here makes any, but others may have."""
    if type_.scalar not in FLOATS and type_.scalar is not Scalar.VECTOR:
        return
    numbers = column.flatten() if type_.is_list or type_.scalar is Scalar.VECTOR else column
    if pc.all(pc.is_finite(numbers)).as_py() is False:
        raise InvalidValue(
            f"'{name}' has a number that is not finite, which JSON cannot hold", remedy=_REMEDY
        )


def _require_loadable(lines: bytes, part: ExportPart) -> None:
    """Refuse a line that no load would take: an export that cannot be read back must not look like one."""
    limits = Limits()
    for line in lines.split(b"\n"):
        if len(line) <= limits.structural_slots:
            continue
        if len(line) > limits.line_bytes:
            raise ResourceLimitExceeded(
                f"graph_batch_line_bytes of '{part.name}'",
                limit=limits.line_bytes,
                actual=len(line),
                remedy=_REMEDY,
            )
        bare = _TEXTS.sub(b"", line)
        slots = sum(map(bare.count, _STRUCTURE))
        if slots > limits.structural_slots:
            raise ResourceLimitExceeded(
                f"graph_batch_json_structural_slots of '{part.name}'",
                limit=limits.structural_slots,
                actual=slots,
                remedy=_REMEDY,
            )
