"""Ids that two rows of a load share, or a row of it with a stored one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.columns import ID, SOURCE
from omnigraph.engine.load.checks.breaches import Breaches, breaches_of
from omnigraph.engine.load.checks.met import Met
from omnigraph.engine.load.checks.scope import Scope, Task, rows_of
from omnigraph.engine.load.runner import Keyed
from omnigraph.engine.load.views import POSITION, Dropped, NewRows, View
from omnigraph.engine.write.change import within
from omnigraph.engine.write.duplicates import Mode, conflicting_ids, repeated_keys, winners

_NEW, _OLD = "new", "old"


@dataclass(frozen=True, slots=True)
class SharedIds:
    """What one bucket of ids shows."""

    breaches: tuple[Breaches, ...] = ()
    losers: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """Rows, by type, whose id a later row has: only the later one counts."""
    released: Mapping[str, str] = field(default_factory=dict)
    """Where the stored edges, by type, are noted that the load replaces."""


def check_ids(scope: Scope, dropped: Dropped, clear: frozenset[str]) -> list[SharedIds]:
    """All ids of the load that were given, and the stored ones where they matter; without what is clear."""
    views: list[View] = []
    for key in scope.keys:
        if key in clear:
            continue
        given = [view for view in scope.new(key) if view.staged.given]
        if given:
            views += given
            if scope.mode is Mode.APPEND or scope.releases(key):
                views += scope.old(key)
    if not views:
        return []
    emit, reduce = partial(_emit, scope.task, dropped), partial(_reduce, scope.task)
    runner = scope.runner_for(rows_of(views))
    return list(runner.grouped("ids", views, emit, reduce, scope.buckets(views)))


def _emit(task: Task, dropped: Dropped, view: View) -> Iterator[Keyed]:
    target = task.targets[view.key]
    if isinstance(view, NewRows):
        columns = list(dict.fromkeys([ID, *target.identity]))
        yield Keyed(f"{_NEW} {view.key}", view.read(task.job, columns, dropped), ID)
    else:
        columns = [ID, SOURCE] if task.releases(view.key) else [ID]
        yield Keyed(f"{_OLD} {view.key}", view.columns(task.job, columns), ID)


def _reduce(task: Task, rows: Mapping[str, pa.Table]) -> SharedIds:
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
        stored = Met({} if old is None else {key: old})
        nothing = np.zeros(new.num_rows, np.bool_)
        repeated = repeated_keys(target, new)
        if repeated is not None:
            breaches.append(breaches_of(repeated, positions, task.job))
        taken = conflicting_ids(target, new, nothing, task.mode, stored)
        breaches += [breaches_of(faults, positions, task.job, 1) for faults in taken]
        if task.mode is Mode.MERGE and not target.identity:
            lost = np.delete(positions, winners(new))
            if len(lost):
                losers[key] = lost
        if old is not None and task.releases(key):
            replaced = old.filter(pa.array(within(old.column(ID), new.column(ID))))
            if replaced.num_rows:
                released[key] = task.note_released(key, replaced)
    return SharedIds(tuple(breaches), losers, released)
