"""Ids that two rows of a load share, or a row of it with a stored one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.duplicates import (
    Mode,
    find_conflicting_ids,
    find_repeated_keys,
    keep_last_per_id,
)
from omnigraph.engine.constraints.table_change import is_among
from omnigraph.engine.graph.table_types import ID, SOURCE
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
from omnigraph.engine.tasks.buckets import Hashes, are_among, hash_keys
from omnigraph.engine.tasks.runner import KeyedRows

_NEW, _OLD = "new", "old"


@dataclass(frozen=True, slots=True)
class SharedIds:
    """What one bucket of ids shows."""

    breaches: tuple[Breaches, ...] = ()
    losers: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """Rows, by type, whose id a later row has: only the later one counts."""
    released: Mapping[str, str] = field(default_factory=dict)
    """Where the stored edges, by type, are noted that the load replaces."""


def check_ids(
    scope: CheckScope, dropped: Dropped, keys: Sequence[str], shared: Mapping[str, Hashes]
) -> list[SharedIds]:
    """The ids of these types that were given, and the stored ones where they matter.

    Of types whose `shared` hashes are known only the ids that have one of them are looked at.
    """
    views: list[View] = []
    for key in keys:
        if key in shared and not len(shared[key]):
            continue
        given = [view for view in scope.new(key) if view.staged.given]
        if given:
            views += given
            if scope.mode is Mode.APPEND or scope.releases(key):
                views += scope.old(key)
    if not views:
        return []
    emit, reduce = partial(_emit_ids, scope.task, dropped, shared), partial(_find_shared_ids, scope.task)
    runner = scope.runner_for(count_rows(views))
    return list(runner.grouped("ids", views, emit, reduce, scope.buckets(views)))


def _emit_ids(
    task: CheckTask, dropped: Dropped, shared: Mapping[str, Hashes], view: View
) -> Iterator[KeyedRows]:
    target = task.targets[view.key]
    if isinstance(view, NewRows):
        sort, rows = _NEW, view.read(task.job, list(dict.fromkeys([ID, *target.identity])), dropped)
    else:
        columns = [ID, SOURCE] if task.releases(view.key) else [ID]
        sort, rows = _OLD, view.columns(task.job, columns)
    if view.key in shared:
        rows = rows.filter(pa.array(are_among(hash_keys(rows.column(ID)), shared[view.key])))
    yield KeyedRows(f"{sort} {view.key}", rows, ID)


def _find_shared_ids(task: CheckTask, rows: Mapping[str, pa.Table]) -> SharedIds:
    breaches: list[Breaches] = []
    losers: dict[str, NDArray[np.int64]] = {}
    released: dict[str, str] = {}
    for tag in sorted(rows):
        sort, _, key = tag.partition(" ")
        if sort != _NEW:
            continue
        target = task.targets[key]
        new = rows[tag].sort_by(POSITION)
        positions = np.asarray(new.column(POSITION))
        old = rows.get(f"{_OLD} {key}")
        stored = BucketRows({} if old is None else {key: old})
        nothing = np.zeros(new.num_rows, np.bool_)
        repeated = find_repeated_keys(target, new)
        if repeated is not None:
            breaches.append(to_breaches(repeated, positions, task.job))
        taken = find_conflicting_ids(target, new, nothing, task.mode, stored)
        breaches += [to_breaches(faults, positions, task.job, 1) for faults in taken]
        if task.mode is Mode.MERGE and not target.identity:
            lost = np.delete(positions, keep_last_per_id(new))
            if len(lost):
                losers[key] = lost
        if old is not None and task.releases(key):
            replaced = old.filter(pa.array(is_among(old.column(ID), new.column(ID))))
            if replaced.num_rows:
                released[key] = task.note_released(key, replaced)
    return SharedIds(tuple(breaches), losers, released)
