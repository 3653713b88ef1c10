"""Differing entities as changes, with their images before and after."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from omnigraph.engine.changes.change import Change, ChangeFilter, ChangeOperation, EntityImage
from omnigraph.engine.changes.equality import Mask
from omnigraph.engine.changes.row_pairs import LEFT, RIGHT, RowPairs, changed_columns, row_ids, split_rows
from omnigraph.engine.changes.table_side import TableSide
from omnigraph.engine.graph.columns import ID, SOURCE, TARGET
from omnigraph.engine.graph.layout import split_key
from omnigraph.engine.rows.blobs import MANAGED
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.lang.values import Json, column_to_json

_IMAGES_AT_ONCE = 4096


def build_changes(key: str, pairs: RowPairs, wanted: ChangeFilter) -> Iterator[Change]:
    """Yield the changes of a type by id, reading a portion at a time."""
    for portion in wanted_portions(pairs, wanted):
        yield from _build_portion(key, pairs, portion)


def wanted_portions(pairs: RowPairs, wanted: ChangeFilter, rows: int = _IMAGES_AT_ONCE) -> Iterator[pa.Table]:
    """Yield the pairs that a filter includes, in portions whose images fit in memory."""
    was, now = _present(pairs.table)
    ops = {ChangeOperation.INSERT: ~was, ChangeOperation.UPDATE: was & now, ChangeOperation.DELETE: ~now}
    chosen = np.logical_or.reduce([mask for op, mask in ops.items() if wanted.wants(op)])
    return split_rows(pairs.table.filter(pa.array(chosen)), pairs.sides, rows)


def _present(pairs: pa.Table) -> tuple[Mask, Mask]:
    """Which entities were there before, and which are there after."""
    left, right = (pairs.column(side).is_valid().to_numpy() for side in (LEFT, RIGHT))
    return np.asarray(left, np.bool_), np.asarray(right, np.bool_)


def _build_portion(key: str, pairs: RowPairs, portion: pa.Table) -> Iterator[Change]:
    kind, name = split_key(key)
    was, now = _present(portion)
    before = _rows(pairs.left, row_ids(portion.filter(pa.array(was)), LEFT))
    after = _rows(pairs.right, row_ids(portion.filter(pa.array(now)), RIGHT))
    # Rows of entities that are on both sides, of which each table has its own places.
    shared = before.filter(pa.array(now[was])), after.filter(pa.array(was[now]))
    names = _changed_names(pairs, *shared)
    befores, afters = _images(pairs.left, before), _images(pairs.right, after)
    for entity, there, here in zip(portion.column(ID).to_pylist(), was, now, strict=True):
        op = (
            ChangeOperation.INSERT
            if not there
            else ChangeOperation.DELETE
            if not here
            else ChangeOperation.UPDATE
        )
        yield Change(
            kind,
            name,
            entity,
            op,
            next(befores) if there else None,
            next(afters) if here else None,
            next(names) if op is ChangeOperation.UPDATE else (),
        )


def _rows(side: TableSide | None, rows: pa.Array) -> pa.Table:
    return pa.table({}) if side is None else side.read_rows(rows)


def _images(side: TableSide | None, rows: pa.Table) -> Iterator[EntityImage]:
    if side is None or not rows.num_rows:
        return
    names = list(side.types)
    columns = [_values(rows.column(name), side.types[name]) for name in names]
    values = zip(*columns, strict=True) if columns else iter([()] * rows.num_rows)
    is_edge = SOURCE in side.system
    ends = [rows.column(end).to_pylist() if is_edge else [None] * rows.num_rows for end in (SOURCE, TARGET)]
    for found, source, target in zip(values, *ends, strict=True):
        yield EntityImage(dict(zip(names, found, strict=True)), source, target)


def _values(column: pa.ChunkedArray, type_: ValueType) -> list[Json]:
    if type_.scalar is not Scalar.BLOB:
        return column_to_json(column, type_)
    return [None if data is None else MANAGED + b64encode(data).decode() for data in column.to_pylist()]


def _changed_names(pairs: RowPairs, before: pa.Table, after: pa.Table) -> Iterator[tuple[str, ...]]:
    if pairs.left is None or pairs.right is None:
        return
    masks = changed_columns(pairs.left, pairs.right, before, after)
    names = np.array(list(masks))
    grid = np.stack(list(masks.values()), axis=1) if masks else np.zeros((before.num_rows, 0), np.bool_)
    for row in grid:
        yield tuple(names[row].tolist())
