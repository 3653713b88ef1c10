"""The diff of two snapshots as a DataFrame, computed by tasks and never in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.changes.change import Change, ChangeFilter, EntityImage
from omnigraph.engine.changes.comparison import SidePart, TableComparison, count_buckets
from omnigraph.engine.changes.diff import Diff, build_changes, wanted_portions
from omnigraph.engine.changes.row_pairs import LEFT, RIGHT, RowPairs
from omnigraph.engine.changes.table_side import TableSide
from omnigraph.engine.graph.table_types import ID
from omnigraph.pipeline.changes.change_rows import change_columns, change_fields
from omnigraph.pipeline.map_reduce import emit, map_reduce
from omnigraph.pipeline.runner import SparkRunner
from omnigraph.pipeline.table_scan import to_spark_types
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


def diff_frame(spark: SparkSession, diff: Diff, wanted: ChangeFilter, key: str | None) -> DataFrame:
    """Return the changes of one type with its columns, or of all types with images as JSON."""
    keys = diff.tables() if key is None else [key] if key in diff.tables() else []
    comparisons = {one: diff.comparison(one) for one in keys}
    if key is None:
        reducer = DiffBuckets(comparisons, wanted, OF_ALL_TYPES)
    else:
        images = _merge_image_columns(comparisons.get(key) or diff.comparison(key))
        reducer = DiffBuckets(comparisons, wanted, pa.schema(change_fields(images)), images)
    parts = [part for one, comparison in comparisons.items() for part in comparison.parts(*_build_tags(one))]
    buckets = count_buckets(
        sum(one.estimate_rows() for one in comparisons.values()), SparkRunner(spark).cores
    )
    return map_reduce(spark, parts, partial(_emit_part, buckets), reducer, reducer.schema, buckets)


def _build_tags(key: str) -> tuple[str, str]:
    return f"{LEFT} {key}", f"{RIGHT} {key}"


def _emit_part(buckets: int, part: SidePart) -> Iterator[pa.RecordBatch]:
    yield from emit(part.tag, part.read(), ID, buckets)


@dataclass(frozen=True, slots=True)
class DiffBuckets:
    """Compares the rows of a bucket of ids; a task calls it with the rows of that bucket."""

    comparisons: Mapping[str, TableComparison]
    wanted: ChangeFilter
    schema: pa.Schema = field(repr=False)
    images: pa.Schema | None = field(default=None, repr=False)
    """The columns of an image; None for JSON."""

    def __call__(self, rows: Mapping[str, pa.Table]) -> Iterator[pa.RecordBatch]:
        """The changes, type by type, each by id."""
        for key, comparison in self.comparisons.items():
            left, right = (rows.get(tag) for tag in _build_tags(key))
            if left is not None or right is not None:
                yield from self._of_type(key, comparison.compare_bucket(left, right))

    def _of_type(self, key: str, pairs: RowPairs) -> Iterator[pa.RecordBatch]:
        for portion in wanted_portions(pairs, self.wanted, _ROWS_AT_ONCE):
            if self.images is not None:
                columns = change_columns(self.images, pairs, portion)
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)
            else:
                changes = build_changes(key, RowPairs(pairs.left, pairs.right, portion), ChangeFilter())
                yield pa.RecordBatch.from_pylist([_to_row(one) for one in changes], OF_ALL_TYPES)


def _to_row(change: Change) -> dict[str, object]:
    return {
        "kind": change.kind,
        "type": change.type_name,
        "op": change.op.value,
        ID: change.id,
        "changed": list(change.changed),
        "before": _image_to_json(change.before),
        "after": _image_to_json(change.after),
    }


def _image_to_json(image: EntityImage | None) -> str | None:
    return None if image is None else msgspec.json.encode(image.to_json()).decode()


def _merge_image_columns(meeting: TableComparison) -> pa.Schema:
    """The columns that either side has, but no Blobs; of two types of numbers the wider one."""
    found: dict[str, pa.DataType] = {}
    for side in (meeting.right, meeting.left):
        for one in [] if side is None else _list_columns(side):
            known = found.get(one.name)
            found[one.name] = one.type if known is None else _choose_wider(known, one.type)
    return to_spark_types(pa.schema([pa.field(name, kind) for name, kind in found.items()]))


def _list_columns(side: TableSide) -> list[pa.Field]:
    stored = side.table.schema
    return [stored.field(name) for name in (*side.system, *side.types) if not is_blob(stored.field(name))]


def _choose_wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    numbers = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in (one, other))
    return other if numbers and other.bit_width > one.bit_width else one
