"""Nodes and their edges over a whole load: every edge has its ends, and no node too many or too few edges.

Rows meet by the id of the node: nodes by their own, edges by that of an end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.constraints.edge_rules import (
    ADD_NODES,
    ENDS,
    KEEP_NODES,
    find_cardinality_faults,
    find_existing,
    missing_end_reasons,
    node_type,
)
from omnigraph.engine.constraints.faults import NO_ROW, Faults
from omnigraph.engine.constraints.stored_rows import End
from omnigraph.engine.constraints.table_change import TableChange, exclude, is_among
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.table_types import ID, SOURCE
from omnigraph.engine.load.checks.check_scope import (
    POSITION,
    Breaches,
    BucketRows,
    CheckScope,
    CheckTask,
    Dropped,
    NewRows,
    StoredPart,
    count_rows,
    to_breaches,
)
from omnigraph.engine.tasks.runner import KeyedRows

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

    view: NewRows | StoredPart | _Released
    sorts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndpointBreaches:
    """What the checks about ends and numbers of edges show; the latter count only without the former."""

    missing: tuple[Breaches, ...]
    counts: tuple[Breaches, ...]


@dataclass(frozen=True, slots=True)
class _BucketResult:
    missing: Mapping[tuple[str, End], pa.Array]
    """Ids of nodes, by edge type and end, that are not there."""
    stranded: tuple[Breaches, ...]
    counts: tuple[Breaches, ...]


def check_endpoints(
    scope: CheckScope,
    dropped: Dropped,
    released: Sequence[tuple[str, str]],
    edges: Sequence[str],
    kept: Sequence[str],
) -> EndpointBreaches:
    """Edges of the load without their nodes, stored ones that lose one, and nodes with the wrong number.

    `edges` are types of the load, `kept` those whose stored edges may lose a node.
    """
    wanted = _list_wanted(scope, released, edges, kept)
    if not wanted:
        return EndpointBreaches((), ())
    emit, reduce = (
        partial(_emit_ends, scope.task, dropped),
        partial(_check_bucket, scope.task, frozenset(scope.keys)),
    )
    views = [one.view for one in wanted if not isinstance(one.view, _Released)]
    runner = scope.runner_for(count_rows(views))
    found = list(runner.grouped("ends of edges", wanted, emit, reduce, scope.buckets(views)))
    stranded = [breaches for one in found for breaches in one.stranded]
    missing = _group_missing_ends([one.missing for one in found])
    located = [one for key, ids in missing.items() for one in locate_missing_ends(scope, dropped, key, ids)]
    counts = [breaches for one in found for breaches in one.counts]
    return EndpointBreaches((*located, *stranded), tuple(counts))


def _list_wanted(
    scope: CheckScope, released: Sequence[tuple[str, str]], edges: Sequence[str], kept: Sequence[str]
) -> list[_Wanted]:
    # Of the nodes at edges that stay only the replaced ones matter: the load does not depend on others.
    nodes = sorted(list_end_nodes(scope, edges) | (list_end_nodes(scope, kept) & set(scope.keys)))
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


def list_end_nodes(scope: CheckScope, edges: Iterable[str]) -> set[str]:
    """The tables of the nodes at both ends of some edge types."""
    return {table_key("node", node_type(scope.task.targets[key], end)) for key in edges for end in ENDS}


def list_kept_edges(scope: CheckScope) -> list[str]:
    """Edge types that the load leaves alone although it replaces all nodes at one of their ends."""
    if scope.mode is not Mode.OVERWRITE:
        return []
    targets = scope.task.targets
    return [
        key
        for key, target in sorted(targets.items())
        if target.kind == "edge"
        and key not in scope.keys
        and any(table_key("node", node_type(target, end)) in scope.keys for end in ENDS)
    ]


# --- in the tasks --------------------------------------------------------------------------------


def _emit_ends(task: CheckTask, dropped: Dropped, wanted: _Wanted) -> Iterator[KeyedRows]:
    view, sorts = wanted.view, wanted.sorts
    if isinstance(view, _Released):
        yield KeyedRows(f"{_RELEASED} {view.key}", task.released(view.key, view.name), SOURCE)
    elif isinstance(view, StoredPart):
        yield from _emit_old(task, view, sorts[0])
    elif sorts == (_NODE,):
        yield KeyedRows(f"{_NODE} {view.key}", view.read(task.job, [ID], dropped).select([ID]), ID)
    else:
        counted = _EDGE in sorts
        rows = view.read(task.job, [ID, *ENDS] if counted else list(ENDS), dropped)
        for end in ENDS:
            # One row for each end, however many edges share it.
            yield KeyedRows(
                f"{_END} {end} {view.key}", pa.table({_VALUE: pc.unique(rows.column(end))}), _VALUE
            )
        if counted:
            yield KeyedRows(f"{_EDGE} {view.key}", rows.select([ID, SOURCE, POSITION]), SOURCE)


def _emit_old(task: CheckTask, view: StoredPart, sort: str) -> Iterator[KeyedRows]:
    if sort == _STORED_NODE:
        yield KeyedRows(f"{_STORED_NODE} {view.key}", view.columns(task.job, [ID]), ID)
    elif sort == _STORED_EDGE:
        yield KeyedRows(f"{_STORED_EDGE} {view.key}", view.columns(task.job, [ID, SOURCE]), SOURCE)
    else:
        kept = view.columns(task.job, [ID, *ENDS])
        for end in ENDS:
            yield KeyedRows(f"{_KEPT} {end} {view.key}", kept.select([ID, end]), end)


def _check_bucket(task: CheckTask, loaded: frozenset[str], rows: Mapping[str, pa.Table]) -> _BucketResult:
    changes = _node_changes(task, loaded, rows)
    stored = BucketRows(
        {tag.partition(" ")[2]: found for tag, found in rows.items() if tag.startswith(_STORED_NODE)}
    )
    missing: dict[tuple[str, End], pa.Array] = {}
    stranded: list[Breaches] = []
    counts: list[Breaches] = []
    for tag in sorted(rows):
        sort, _, rest = tag.partition(" ")
        if sort == _END:
            found = _missing_ends(task, rest, rows[tag], changes, stored)
            if found is not None:
                missing[found[0]] = found[1]
        elif sort == _KEPT:
            stranded += _find_stranded_edges(task, loaded, rest, rows[tag], changes)
        elif sort in (_EDGE, _STORED_EDGE):
            if sort == _EDGE or (task.mode is Mode.OVERWRITE and f"{_EDGE} {rest}" not in rows):
                counts += _find_wrong_counts(task, rest, rows, changes)
        elif sort == _RELEASED and f"{_EDGE} {rest}" not in rows:
            counts += _find_wrong_counts(task, rest, rows, changes)
    return _BucketResult(missing, tuple(stranded), tuple(counts))


def _node_changes(
    task: CheckTask, loaded: frozenset[str], rows: Mapping[str, pa.Table]
) -> dict[str, TableChange]:
    """The load's nodes of this bucket as the checks see them."""
    changes = {}
    for key in loaded:
        if key.startswith("node:"):
            new = rows.get(f"{_NODE} {key}")
            ids = pa.table({ID: pa.array([], pa.string())}) if new is None else new
            changes[key] = TableChange(
                task.targets[key],
                ids,
                replaces=task.mode is Mode.OVERWRITE,
                adds_only=task.mode is Mode.APPEND,
            )
    return changes


def _missing_ends(
    task: CheckTask, rest: str, ends: pa.Table, changes: Mapping[str, TableChange], stored: BucketRows
) -> tuple[tuple[str, End], pa.Array] | None:
    end, key = _end_and_key(rest)
    values = pc.unique(ends.column(_VALUE))
    there = find_existing(values, node_type(task.targets[key], end), changes, stored)
    absent = exclude(pa.chunked_array([values]), there)
    return ((key, end), absent.combine_chunks()) if len(absent) else None


def _end_and_key(rest: str) -> tuple[End, str]:
    name, _, key = rest.partition(" ")
    return next(end for end in ENDS if end == name), key


def _find_stranded_edges(
    task: CheckTask, loaded: frozenset[str], rest: str, kept: pa.Table, changes: Mapping[str, TableChange]
) -> Iterator[Breaches]:
    end, key = _end_and_key(rest)
    target = task.targets[key]
    node = node_type(target, end)
    nodes = table_key("node", node)
    if nodes not in loaded:
        return
    lost = kept.filter(pa.array(~is_among(kept.column(end), changes[nodes].ids)))
    if lost.num_rows:
        rows = np.full(lost.num_rows, NO_ROW, np.int64)
        ids = lost.column(ID).combine_chunks()
        reasons = missing_end_reasons(end, lost.column(end), node)
        faults = Faults("endpoint", target, rows, ids, reasons, final=True, remedy=KEEP_NODES)
        yield to_breaches(faults, np.zeros(0, np.int64), task.job, ENDS.index(end))


def _find_wrong_counts(
    task: CheckTask, key: str, rows: Mapping[str, pa.Table], changes: Mapping[str, TableChange]
) -> Iterator[Breaches]:
    target = task.targets[key]
    none = pa.table(
        {ID: pa.array([], pa.string()), SOURCE: pa.array([], pa.string()), POSITION: pa.array([], pa.int64())}
    )
    new = rows.get(f"{_EDGE} {key}", none).sort_by(POSITION)
    stored = rows.get(f"{_STORED_EDGE} {key}")
    moved = rows.get(f"{_RELEASED} {key}")
    deleted = (
        pa.chunked_array([], pa.string()) if moved is None else exclude(moved.column(ID), new.column(ID))
    )
    change = TableChange(
        target, new, deleted, replaces=task.mode is Mode.OVERWRITE, adds_only=task.mode is Mode.APPEND
    )
    nodes = table_key("node", node_type(target, ENDS[0]))
    seen = dict(changes)
    if task.mode is Mode.OVERWRITE and nodes in seen:
        sources = pa.chunked_array(
            [*new.column(SOURCE).chunks, *(stored.column(SOURCE).chunks if stored else [])], pa.string()
        )
        gone = exclude(pa.chunked_array([pc.unique(sources)]), seen[nodes].ids)
        seen[nodes] = TableChange(seen[nodes].target, seen[nodes].rows, gone, replaces=True)
    for faults in find_cardinality_faults(change, seen, BucketRows({} if stored is None else {key: stored})):
        yield to_breaches(faults, np.asarray(new.column(POSITION)), task.job)


# --- which rows ----------------------------------------------------------------------------------


def _group_missing_ends(
    found: Sequence[Mapping[tuple[str, End], pa.Array]],
) -> dict[str, dict[End, pa.Array]]:
    """The ids of nodes that do not exist, of all buckets, by edge type and end."""
    parts: dict[str, dict[End, list[pa.Array]]] = {}
    for one in found:
        for (key, end), ids in one.items():
            parts.setdefault(key, {}).setdefault(end, []).append(ids)
    return {
        key: {end: pa.concat_arrays(ids) for end, ids in sorted(ends.items())}
        for key, ends in sorted(parts.items())
    }


def locate_missing_ends(
    scope: CheckScope, dropped: Dropped, key: str, absent: Mapping[End, pa.Array]
) -> list[Breaches]:
    """The edges of a type at whose ends are these ids, of nodes that do not exist."""
    if not absent:
        return []
    edges = scope.new(key)
    task = partial(find_edges_without_ends, scope.task, dropped, absent)
    answers = scope.runner_for(count_rows(edges)).each("missing ends", edges, task)
    return [one for some in answers for one in some]


def find_edges_without_ends(
    task: CheckTask, dropped: Dropped, absent: Mapping[End, pa.Array], view: NewRows
) -> list[Breaches]:
    """The edges of one item at whose ends are these ids, of nodes that do not exist."""
    target = task.targets[view.key]
    rows = view.read(task.job, [ID, *absent], dropped)
    found = []
    for end, ids in absent.items():
        lost = np.flatnonzero(is_among(rows.column(end), ids))
        if len(lost):
            at = pa.array(lost)
            reasons = missing_end_reasons(end, rows.column(end).take(at), node_type(target, end))
            own = rows.column(ID).take(at).combine_chunks()
            faults = Faults("endpoint", target, lost, own, reasons, remedy=ADD_NODES)
            found.append(to_breaches(faults, np.asarray(rows.column(POSITION)), task.job, ENDS.index(end)))
    return found
