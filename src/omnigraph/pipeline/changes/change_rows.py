"""Changes as rows: what happened to an entity, and its columns before and after."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.changes.change import ChangeOperation
from omnigraph.engine.changes.row_pairs import LEFT, RIGHT, RowPairs, changed_columns, row_ids
from omnigraph.engine.changes.table_side import TableSide
from omnigraph.engine.graph.table_types import ID

Mask = NDArray[np.bool_]


def change_fields(images: pa.Schema) -> list[pa.Field]:
    """The columns of a change; an image has these columns, in types that Spark knows."""
    image = pa.struct(list(images))
    return [
        pa.field("op", pa.string(), nullable=False),
        pa.field(ID, pa.string(), nullable=False),
        pa.field("changed", pa.list_(pa.string()), nullable=False),
        pa.field("before", image),
        pa.field("after", image),
    ]


def change_columns(images: pa.Schema, pairs: RowPairs, portion: pa.Table) -> list[pa.Array]:
    """The values of these columns for some of the entities that differ."""
    was, now = (portion.column(side).is_valid().to_numpy() for side in (LEFT, RIGHT))
    before = _read_rows(pairs.left, portion, LEFT, was)
    after = _read_rows(pairs.right, portion, RIGHT, now)
    ops = np.where(
        ~was,
        ChangeOperation.INSERT.value,
        np.where(~now, ChangeOperation.DELETE.value, ChangeOperation.UPDATE.value),
    )
    return [
        pa.array(ops.tolist(), pa.string()),
        portion.column(ID).combine_chunks(),
        _list_changed(pairs, before, after, was, now),
        _build_images(images, before, was),
        _build_images(images, after, now),
    ]


def _read_rows(side: TableSide | None, portion: pa.Table, name: str, present: Mask) -> pa.Table:
    if side is None:
        return pa.table({})
    return side.read_rows(row_ids(portion.filter(pa.array(present)), name))


def _build_images(images: pa.Schema, rows: pa.Table, present: Mask) -> pa.Array:
    """Entities as structs, null where there is none."""
    if not rows.num_rows:
        return pa.nulls(len(present), pa.struct(list(images)))
    places = pa.array(np.cumsum(present) - 1, mask=~present)
    columns = [
        rows.column(one.name).combine_chunks().take(places).cast(one.type)
        if one.name in rows.column_names
        else pa.nulls(len(present), one.type)
        for one in images
    ]
    return pa.StructArray.from_arrays(columns, fields=list(images), mask=pa.array(~present))


def _list_changed(pairs: RowPairs, before: pa.Table, after: pa.Table, was: Mask, now: Mask) -> pa.Array:
    """The names of what an update changed; nothing for other changes."""
    lengths = np.zeros(len(was), np.int64)
    names: list[str] = []
    both = was & now
    if both.any() and pairs.left is not None and pairs.right is not None:
        shared = before.filter(pa.array(now[was])), after.filter(pa.array(was[now]))
        masks = changed_columns(pairs.left, pairs.right, *shared)
        grid = np.stack(list(masks.values()), axis=1)
        lengths[both] = grid.sum(axis=1)
        names = np.array(list(masks))[np.nonzero(grid)[1]].tolist()
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(names, pa.string()))
