"""Which stored rows the rows of a large patch are about, found where equal ids meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.duplicates import find_patch_faults
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.load.checks.check_scope import (
    POSITION,
    Breaches,
    CheckScope,
    CheckTask,
    NewRows,
    StoredPart,
    View,
    count_rows,
    merge_breaches,
    to_breaches,
)
from omnigraph.engine.tasks.runner import KeyedRows
from omnigraph.storage.upsert import ROW

_NEW, _OLD = "new", "old"


@dataclass(frozen=True, slots=True)
class PatchedRows:
    """What a patch is about."""

    breaches: tuple[Breaches, ...]
    """Rows that are about no stored row, or about the same one as an earlier row."""
    row_ids: Mapping[str, pa.Table]
    """The positions of the others, in order, and the row ids of their stored rows, by table."""


@dataclass(frozen=True, slots=True)
class _BucketResult:
    breaches: tuple[Breaches, ...]
    row_ids: Mapping[str, pa.Table]


def match_stored_rows(scope: CheckScope) -> PatchedRows:
    """Find the stored rows that the rows of a patch are about."""
    views: list[View] = [view for key in scope.keys for view in scope.new(key)]
    views += [view for key in scope.keys if scope.new(key) for view in scope.old(key)]
    emit, reduce = partial(_emit_ids, scope.task), partial(_join_ids, scope.task)
    runner = scope.runner_for(count_rows(views))
    found = list(runner.grouped("match", views, emit, reduce, scope.buckets(views))) if views else []
    parts: dict[str, list[pa.Table]] = {}
    for one in found:
        for key, rows in one.row_ids.items():
            parts.setdefault(key, []).append(rows)
    return PatchedRows(
        tuple(merge_breaches(breaches for one in found for breaches in one.breaches)),
        {key: pa.concat_tables(rows).sort_by(POSITION) for key, rows in parts.items()},
    )


# --- in the tasks --------------------------------------------------------------------------------


def _emit_ids(task: CheckTask, view: NewRows | StoredPart) -> Iterator[KeyedRows]:
    if isinstance(view, StoredPart):
        yield KeyedRows(f"{_OLD} {view.key}", view.columns(task.job, [ID, ROW]), ID)
        return
    columns = list(dict.fromkeys([ID, *task.targets[view.key].identity]))
    yield KeyedRows(f"{_NEW} {view.key}", view.read(task.job, columns, {}), ID)


def _join_ids(task: CheckTask, rows: Mapping[str, pa.Table]) -> _BucketResult:
    breaches: list[Breaches] = []
    row_ids: dict[str, pa.Table] = {}
    for tag in sorted(rows):
        sort, _, key = tag.partition(" ")
        if sort != _NEW:
            continue
        new = rows[tag].sort_by(POSITION)
        old = rows.get(f"{_OLD} {key}")
        ids = pa.array([], pa.string()) if old is None else old.column(ID)
        positions = np.asarray(new.column(POSITION))
        found = find_patch_faults(task.targets[key], new, ids)
        breaches += [
            to_breaches(faults, positions, task.job, 0 if faults.rule == "unique" else 1) for faults in found
        ]
        if old is not None:
            met = new.select([ID, POSITION]).join(old, ID, join_type="inner")
            row_ids[key] = met.select([POSITION, ROW]).cast(_MET)
    return _BucketResult(tuple(breaches), row_ids)


_MET = pa.schema([(POSITION, pa.int64()), (ROW, pa.uint64())])
