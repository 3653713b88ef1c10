"""Nodes and their edges over a whole load: every edge has its ends, and no node too many or too few edges.

Rows meet by the id of the node: nodes by their own, edges by that of an end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.columns import ID, SOURCE
from omnigraph.engine.layout import table_key
from omnigraph.engine.load.checks.breaches import Breaches, breaches_of
from omnigraph.engine.load.checks.met import Met
from omnigraph.engine.load.checks.scope import Scope, Task, rows_of
from omnigraph.engine.load.runner import Keyed
from omnigraph.engine.load.views import POSITION, Dropped, NewRows, OldRows
from omnigraph.engine.write.cardinality import cardinality_faults
from omnigraph.engine.write.change import Change, within, without
from omnigraph.engine.write.duplicates import Mode
from omnigraph.engine.write.endpoints import ADD_NODES, ENDS, KEEP_NODES, node_type, present, reasons_of
from omnigraph.engine.write.faults import NO_ROW, Faults
from omnigraph.engine.write.stored import End

_NODE, _STORED_NODE, _END, _KEPT = "node", "stored-node", "end", "kept"
_EDGE, _STORED_EDGE, _RELEASED = "edge", "stored-edge", "released"
_VALUE = "value"


@dataclass(frozen=True, slots=True)
class _Released:
    """Stored edges of a type that the load replaces, as an earlier check noted them."""

    key: str
    name: str


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A view, and what is wanted of it."""

    view: NewRows | OldRows | _Released
    sorts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndsFound:
    """What the checks about ends and numbers of edges show; the latter count only without the former."""

    missing: tuple[Breaches, ...]
    counts: tuple[Breaches, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    missing: Mapping[tuple[str, End], pa.Array]
    """Ids of nodes, by edge type and end, that are not there."""
    stranded: tuple[Breaches, ...]
    counts: tuple[Breaches, ...]


def check_ends(
    scope: Scope, dropped: Dropped, released: Sequence[tuple[str, str]], clear: frozenset[str]
) -> EndsFound:
    """Edges of the load without their nodes, stored ones that lose one, and nodes with the wrong number.

    Edges of the types that are clear have their nodes, and nobody counts them.
    """
    wanted = _wanted(scope, released, clear)
    if not wanted:
        return EndsFound((), ())
    emit, reduce = partial(_emit, scope.task, dropped), partial(_reduce, scope.task, frozenset(scope.keys))
    views = [one.view for one in wanted if not isinstance(one.view, _Released)]
    runner = scope.runner_for(rows_of(views))
    found = list(runner.grouped("ends of edges", wanted, emit, reduce, scope.buckets(views)))
    stranded = [breaches for one in found for breaches in one.stranded]
    located = _located(scope, dropped, [one.missing for one in found])
    counts = [breaches for one in found for breaches in one.counts]
    return EndsFound((*located, *stranded), tuple(counts))


def _wanted(scope: Scope, released: Sequence[tuple[str, str]], clear: frozenset[str]) -> list[_Wanted]:
    edges = [key for key in scope.keys if key.startswith("edge:") and key not in clear]
    kept = _kept_edges(scope) if scope.mode is Mode.OVERWRITE else []
    nodes = sorted(
        {
            table_key("node", node_type(scope.task.targets[key], end))
            for key in (*edges, *kept)
            for end in ENDS
        }
    )
    if not edges and not kept:
        return []
    found: list[_Wanted] = []
    for key in edges:
        sorts = (_END, _EDGE) if scope.task.counts(key) else (_END,)
        found += [_Wanted(view, sorts) for view in scope.new(key)]
        if scope.task.counts(key):
            found += [_Wanted(view, (_STORED_EDGE,)) for view in scope.old(key)]
    for key in kept:
        found += [_Wanted(view, (_KEPT,)) for view in scope.old(key)]
    for key in nodes:
        found += [_Wanted(view, (_NODE,)) for view in scope.new(key)]
        if not (scope.mode is Mode.OVERWRITE and key in scope.keys):
            found += [_Wanted(view, (_STORED_NODE,)) for view in scope.old(key)]
    return [*found, *(_Wanted(_Released(*one), (_RELEASED,)) for one in released)]


def _kept_edges(scope: Scope) -> list[str]:
    """Edge types that the load leaves alone although it replaces all nodes at one of their ends."""
    targets = scope.task.targets
    return [
        key
        for key, target in sorted(targets.items())
        if target.kind == "edge"
        and key not in scope.keys
        and any(table_key("node", node_type(target, end)) in scope.keys for end in ENDS)
    ]


# --- in the tasks --------------------------------------------------------------------------------


def _emit(task: Task, dropped: Dropped, wanted: _Wanted) -> Iterator[Keyed]:
    view, sorts = wanted.view, wanted.sorts
    if isinstance(view, _Released):
        yield Keyed(f"{_RELEASED} {view.key}", task.released(view.key, view.name), SOURCE)
    elif isinstance(view, OldRows):
        yield from _emit_old(task, view, sorts[0])
    elif sorts == (_NODE,):
        yield Keyed(f"{_NODE} {view.key}", view.read(task.job, [ID], dropped).select([ID]), ID)
    else:
        counted = _EDGE in sorts
        rows = view.read(task.job, [ID, *ENDS] if counted else list(ENDS), dropped)
        for end in ENDS:
            # One row for each end, however many edges share it.
            yield Keyed(f"{_END} {end} {view.key}", pa.table({_VALUE: pc.unique(rows.column(end))}), _VALUE)
        if counted:
            yield Keyed(f"{_EDGE} {view.key}", rows.select([ID, SOURCE, POSITION]), SOURCE)


def _emit_old(task: Task, view: OldRows, sort: str) -> Iterator[Keyed]:
    if sort == _STORED_NODE:
        yield Keyed(f"{_STORED_NODE} {view.key}", view.columns(task.job, [ID]), ID)
    elif sort == _STORED_EDGE:
        yield Keyed(f"{_STORED_EDGE} {view.key}", view.columns(task.job, [ID, SOURCE]), SOURCE)
    else:
        kept = view.columns(task.job, [ID, *ENDS])
        for end in ENDS:
            yield Keyed(f"{_KEPT} {end} {view.key}", kept.select([ID, end]), end)


def _reduce(task: Task, loaded: frozenset[str], rows: Mapping[str, pa.Table]) -> _Found:
    changes = _node_changes(task, loaded, rows)
    stored = Met(
        {tag.partition(" ")[2]: found for tag, found in rows.items() if tag.startswith(_STORED_NODE)}
    )
    missing: dict[tuple[str, End], pa.Array] = {}
    stranded: list[Breaches] = []
    counts: list[Breaches] = []
    for tag in sorted(rows):
        sort, _, rest = tag.partition(" ")
        if sort == _END:
            found = _missing(task, rest, rows[tag], changes, stored)
            if found is not None:
                missing[found[0]] = found[1]
        elif sort == _KEPT:
            stranded += _stranded(task, loaded, rest, rows[tag], changes)
        elif sort in (_EDGE, _STORED_EDGE):
            if sort == _EDGE or (task.mode is Mode.OVERWRITE and f"{_EDGE} {rest}" not in rows):
                counts += _miscounted(task, rest, rows, changes)
        elif sort == _RELEASED and f"{_EDGE} {rest}" not in rows:
            counts += _miscounted(task, rest, rows, changes)
    return _Found(missing, tuple(stranded), tuple(counts))


def _node_changes(task: Task, loaded: frozenset[str], rows: Mapping[str, pa.Table]) -> dict[str, Change]:
    """The load's nodes of this bucket as the checks see them."""
    changes = {}
    for key in loaded:
        if key.startswith("node:"):
            new = rows.get(f"{_NODE} {key}")
            ids = pa.table({ID: pa.array([], pa.string())}) if new is None else new
            changes[key] = Change(
                task.targets[key],
                ids,
                replaces=task.mode is Mode.OVERWRITE,
                adds_only=task.mode is Mode.APPEND,
            )
    return changes


def _missing(
    task: Task, rest: str, ends: pa.Table, changes: Mapping[str, Change], stored: Met
) -> tuple[tuple[str, End], pa.Array] | None:
    end, key = _end_and_key(rest)
    values = pc.unique(ends.column(_VALUE))
    there = present(values, node_type(task.targets[key], end), changes, stored)
    absent = without(pa.chunked_array([values]), there)
    return ((key, end), absent.combine_chunks()) if len(absent) else None


def _end_and_key(rest: str) -> tuple[End, str]:
    name, _, key = rest.partition(" ")
    return next(end for end in ENDS if end == name), key


def _stranded(
    task: Task, loaded: frozenset[str], rest: str, kept: pa.Table, changes: Mapping[str, Change]
) -> Iterator[Breaches]:
    end, key = _end_and_key(rest)
    target = task.targets[key]
    node = node_type(target, end)
    nodes = table_key("node", node)
    if nodes not in loaded:
        return
    lost = kept.filter(pa.array(~within(kept.column(end), changes[nodes].ids)))
    if lost.num_rows:
        rows = np.full(lost.num_rows, NO_ROW, np.int64)
        ids = lost.column(ID).combine_chunks()
        reasons = reasons_of(end, lost.column(end), node)
        faults = Faults("endpoint", target, rows, ids, reasons, final=True, remedy=KEEP_NODES)
        yield breaches_of(faults, np.zeros(0, np.int64), task.job, ENDS.index(end))


def _miscounted(
    task: Task, key: str, rows: Mapping[str, pa.Table], changes: Mapping[str, Change]
) -> Iterator[Breaches]:
    target = task.targets[key]
    none = pa.table(
        {ID: pa.array([], pa.string()), SOURCE: pa.array([], pa.string()), POSITION: pa.array([], pa.int64())}
    )
    new = rows.get(f"{_EDGE} {key}", none).sort_by(POSITION)
    stored = rows.get(f"{_STORED_EDGE} {key}")
    moved = rows.get(f"{_RELEASED} {key}")
    deleted = (
        pa.chunked_array([], pa.string()) if moved is None else without(moved.column(ID), new.column(ID))
    )
    change = Change(
        target, new, deleted, replaces=task.mode is Mode.OVERWRITE, adds_only=task.mode is Mode.APPEND
    )
    nodes = table_key("node", node_type(target, ENDS[0]))
    seen = dict(changes)
    if task.mode is Mode.OVERWRITE and nodes in seen:
        sources = pa.chunked_array(
            [*new.column(SOURCE).chunks, *(stored.column(SOURCE).chunks if stored else [])], pa.string()
        )
        gone = without(pa.chunked_array([pc.unique(sources)]), seen[nodes].ids)
        seen[nodes] = Change(seen[nodes].target, seen[nodes].rows, gone, replaces=True)
    for faults in cardinality_faults(change, seen, Met({} if stored is None else {key: stored})):
        yield breaches_of(faults, np.asarray(new.column(POSITION)), task.job)


# --- which rows ----------------------------------------------------------------------------------


def _located(
    scope: Scope, dropped: Dropped, found: Sequence[Mapping[tuple[str, End], pa.Array]]
) -> list[Breaches]:
    """The edges whose ends are missing; only now it is asked which they are."""
    parts: dict[tuple[str, End], list[pa.Array]] = {}
    for one in found:
        for place, ids in one.items():
            parts.setdefault(place, []).append(ids)
    breaches: list[Breaches] = []
    for (key, end), ids in sorted(parts.items()):
        task = partial(_without_end, scope.task, dropped, end, pa.concat_arrays(ids))
        answers = scope.runner.each("missing ends", scope.new(key), task)
        breaches += [one for one in answers if one is not None]
    return breaches


def _without_end(task: Task, dropped: Dropped, end: End, ids: pa.Array, view: NewRows) -> Breaches | None:
    target = task.targets[view.key]
    rows = view.read(task.job, list(dict.fromkeys([ID, end])), dropped)
    found = np.flatnonzero(within(rows.column(end), ids))
    if not len(found):
        return None
    at = pa.array(found)
    reasons = reasons_of(end, rows.column(end).take(at), node_type(target, end))
    own = rows.column(ID).take(at).combine_chunks()
    faults = Faults("endpoint", target, found, own, reasons, remedy=ADD_NODES)
    return breaches_of(faults, np.asarray(rows.column(POSITION)), task.job, ENDS.index(end))
