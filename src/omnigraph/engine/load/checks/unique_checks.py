"""`@unique` over a whole load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.duplicates import Mode, find_shared_values, find_stored_holders, tuple_texts
from omnigraph.engine.constraints.table_change import TableChange, is_among
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.load.checks.check_scope import (
    POSITION,
    Breaches,
    BucketRows,
    CheckScope,
    CheckTask,
    Dropped,
    NewRows,
    View,
    count_rows,
    to_breaches,
)
from omnigraph.engine.tasks.runner import KeyedRows

_NEW, _OLD, _VALUES = "new", "old", "values"
_Gone = Mapping[str, pa.ChunkedArray]


@dataclass(frozen=True, slots=True)
class _BucketResult:
    breaches: tuple[Breaches, ...]
    holders: Mapping[str, pa.Array]
    """Stored rows, by type, in whose way rows of the load are; they may be replaced by it themselves."""


def check_uniques(scope: CheckScope, dropped: Dropped, keys: list[str]) -> list[Breaches]:
    """Rows of these types whose values an earlier row of the load has, or a stored one that stays."""
    if not keys:
        return []
    found = _run_round(scope, keys, dropped, {})
    gone = _find_replaced_rows(scope, _ids_of_holders(found), dropped)
    if gone:
        # Without those that the load replaces, other rows may be in the way of each other.
        found = _run_round(scope, keys, dropped, gone)
    return [breaches for one in found for breaches in one.breaches]


def _run_round(scope: CheckScope, keys: list[str], dropped: Dropped, gone: _Gone) -> list[_BucketResult]:
    views: list[View] = [view for key in keys for view in scope.new(key)]
    if scope.mode is not Mode.OVERWRITE:
        views += [view for key in keys for view in scope.old(key)]
    emit, reduce = partial(_emit_values, scope.task, dropped), partial(_check_bucket, scope.task, gone)
    runner = scope.runner_for(count_rows(views))
    return list(runner.grouped("unique values", views, emit, reduce, scope.buckets(views)))


def _emit_values(task: CheckTask, dropped: Dropped, view: View) -> Iterator[KeyedRows]:
    target = task.targets[view.key]
    for number, rule in enumerate(target.owner.uniques):
        columns = list(dict.fromkeys([ID, *rule.columns]))
        if isinstance(view, NewRows):
            sort, rows = _NEW, view.read(task.job, columns, dropped)
        else:
            sort, rows = _OLD, view.columns(task.job, columns)
        texts = tuple_texts(rows, target, rule.columns)
        complete = texts.is_valid()
        rows = rows.filter(complete).append_column(_VALUES, texts.filter(complete))
        yield KeyedRows(f"{sort} {number} {view.key}", rows, _VALUES)


def _check_bucket(task: CheckTask, gone: _Gone, rows: Mapping[str, pa.Table]) -> _BucketResult:
    breaches: list[Breaches] = []
    holders: dict[str, list[pa.Array]] = {}
    for tag in sorted(rows):
        sort, number, key = tag.split(" ", 2)
        if sort != _NEW:
            continue
        target = task.targets[key]
        rule = target.owner.uniques[int(number)]
        new = rows[tag].sort_by(POSITION)
        positions = np.asarray(new.column(POSITION))
        old = rows.get(f"{_OLD} {number} {key}")
        stored = BucketRows({} if old is None else {key: old})
        change = TableChange(
            target,
            new,
            gone.get(key, pa.chunked_array([], pa.string())),
            replaces=task.mode is Mode.OVERWRITE,
            adds_only=task.mode is Mode.APPEND,
        )
        faults = find_shared_values(change, stored, rule)
        if faults is not None:
            breaches.append(to_breaches(faults, positions, task.job, int(number)))
        if task.mode is Mode.MERGE and not gone and old is not None:
            met = find_stored_holders(change, stored, rule, tuple_texts(new, target, rule.columns))
            holders.setdefault(key, []).append(pc.unique(met.drop_null()))
    return _BucketResult(tuple(breaches), {key: pa.concat_arrays(parts) for key, parts in holders.items()})


def _ids_of_holders(found: list[_BucketResult]) -> dict[str, pa.Array]:
    parts: dict[str, list[pa.Array]] = {}
    for one in found:
        for key, ids in one.holders.items():
            if len(ids):
                parts.setdefault(key, []).append(ids)
    return {key: pc.unique(pa.concat_arrays(ids)) for key, ids in parts.items()}


def _find_replaced_rows(scope: CheckScope, holders: Mapping[str, pa.Array], dropped: Dropped) -> _Gone:
    """Those of the stored rows that the load replaces."""
    gone = {}
    for key, ids in holders.items():
        task = partial(_ids_among, scope.task, dropped, ids)
        chunks = list(scope.runner.each("replaced rows", scope.new(key), task))
        found = pa.chunked_array([chunk for chunk in chunks if len(chunk)], pa.string())
        if len(found):
            gone[key] = found
    return gone


def _ids_among(task: CheckTask, dropped: Dropped, ids: pa.Array, view: NewRows) -> pa.Array:
    found = view.read(task.job, [ID], dropped).column(ID)
    return pc.unique(found.filter(pa.array(is_among(found, ids))))
