"""What differs between two moments of a graph, as a DataFrame: found by tasks, and never in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from omnigraph.engine.changes.change import Change, Filter, Image
from omnigraph.engine.changes.diff import Diff
from omnigraph.engine.changes.images import changes_of, wanted_portions
from omnigraph.engine.changes.meeting import Meeting, Part, buckets_for
from omnigraph.engine.changes.pairs import LEFT, RIGHT, Pairs
from omnigraph.engine.changes.side import Side
from omnigraph.engine.columns import ID
from omnigraph.pipeline.changes.rows import change_columns, change_fields
from omnigraph.pipeline.map_reduce import emit, map_reduce
from omnigraph.pipeline.runner import SparkRunner
from omnigraph.pipeline.source import spark_form
from omnigraph.storage.blobs import is_blob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS_AT_ONCE = 4096

OF_ALL_TYPES = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("op", pa.string(), nullable=False),
        pa.field(ID, pa.string(), nullable=False),
        pa.field("changed", pa.list_(pa.string()), nullable=False),
        pa.field("before", pa.string()),
        pa.field("after", pa.string()),
    ]
)
"""Types have different columns, so an image of any of them is JSON."""


def diff_frame(spark: SparkSession, diff: Diff, wanted: Filter, key: str | None) -> DataFrame:
    """The changes of one type with its columns, or those of all types with their images as JSON."""
    keys = diff.tables() if key is None else [key] if key in diff.tables() else []
    meetings = {one: diff.meeting(one) for one in keys}
    if key is None:
        told = Told(meetings, wanted, OF_ALL_TYPES)
    else:
        images = _images(meetings.get(key) or diff.meeting(key))
        told = Told(meetings, wanted, pa.schema(change_fields(images)), images)
    parts = [part for one, meeting in meetings.items() for part in meeting.parts(*_tags(one))]
    buckets = buckets_for(sum(one.rows() for one in meetings.values()), SparkRunner(spark).cores)
    return map_reduce(spark, parts, partial(_emitted, buckets), told, told.schema, buckets)


def _tags(key: str) -> tuple[str, str]:
    return f"{LEFT} {key}", f"{RIGHT} {key}"


def _emitted(buckets: int, part: Part) -> Iterator[pa.RecordBatch]:
    yield from emit(part.tag, part.read(), ID, buckets)


@dataclass(frozen=True, slots=True)
class Told:
    """Tells the changes of a bucket of ids; a task calls it with the rows that met there."""

    meetings: Mapping[str, Meeting]
    wanted: Filter
    schema: pa.Schema = field(repr=False)
    images: pa.Schema | None = field(default=None, repr=False)
    """The columns of an image; None for JSON."""

    def __call__(self, rows: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
        """The changes, type by type, each by id."""
        for key, meeting in self.meetings.items():
            left, right = (rows.get(tag) for tag in _tags(key))
            if left is not None or right is not None:
                yield from self._of_type(key, meeting.pairs(left, right))

    def _of_type(self, key: str, pairs: Pairs) -> Iterator[pa.RecordBatch]:
        for portion in wanted_portions(pairs, self.wanted, _ROWS_AT_ONCE):
            if self.images is not None:
                columns = change_columns(self.images, pairs, portion)
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
            else:
                changes = changes_of(key, Pairs(pairs.left, pairs.right, portion), Filter())
                yield pa.RecordBatch.from_pylist([_plain(one) for one in changes], OF_ALL_TYPES)


def _plain(change: Change) -> dict[str, object]:
    return {
        "kind": change.kind,
        "type": change.type_name,
        "op": change.op.value,
        ID: change.id,
        "changed": list(change.changed),
        "before": _json(change.before),
        "after": _json(change.after),
    }


def _json(image: Image | None) -> str | None:
    return None if image is None else msgspec.json.encode(image.to_json()).decode()


def _images(meeting: Meeting) -> pa.Schema:
    """The columns that either side has, but no Blobs; of two types of numbers the wider one."""
    found: dict[str, pa.DataType] = {}
    for side in (meeting.right, meeting.left):
        for one in [] if side is None else _columns(side):
            known = found.get(one.name)
            found[one.name] = one.type if known is None else _wider(known, one.type)
    return spark_form(pa.schema([pa.field(name, kind) for name, kind in found.items()]))


def _columns(side: Side) -> list[pa.Field]:
    stored = side.table.schema
    return [stored.field(name) for name in (*side.system, *side.types) if not is_blob(stored.field(name))]


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    numbers = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (one, other))
    return other if numbers and other.bit_width > one.bit_width else one
