"""A first look at a whole load: what may be wrong with it, found without bringing all its rows together.

Ids whose hashes all differ are different ids; of others, only rows whose hash is shared need to meet. The
ends of edges are looked up one by one, in all nodes that there are, as long as these are few enough to be
held by every task; that shows which edges lack one. Where all are numbers it is a matter of bits
(`id_files.py`), and no row is read again. What is not looked at here is for the other checks.

Both are there for speed alone. CPU time of a load of a million rows in Parquet or NDJSON without them, to
both: 2.0 to 3.1 times without either; 1.2 times without hashes where ids are texts. Without bits 1.05 times
as long as nodes are few enough to be held; 4.7 times with five million nodes and as many edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.constraints.edge_rules import ENDS, node_type
from omnigraph.engine.constraints.stored_rows import End
from omnigraph.engine.graph.layout import fnv1a64, table_key
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.load.checks.check_scope import (
    Breaches,
    CheckScope,
    CheckTask,
    Dropped,
    NewRows,
    StoredPart,
    View,
    count_rows,
)
from omnigraph.engine.load.checks.endpoint_checks import find_edges_without_ends, locate_missing_ends
from omnigraph.engine.load.id_files import (
    MOST,
    RANGES,
    BitmapBuilder,
    IdHashes,
    MarkedIds,
    NumberBitmap,
    find_shared_hashes,
    find_unmarked,
    read_union,
    write_id_hashes,
)
from omnigraph.engine.rows.lookup import find_absent
from omnigraph.engine.tasks.buckets import Hashes, hash_keys


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What is known of some types of a load from which nothing is left out."""

    shared: Mapping[str, Hashes] = field(default_factory=dict)
    """The hashes that several ids of a type have: no other id is there twice that must not be."""
    ends: Mapping[str, tuple[Breaches, ...]] = field(default_factory=dict)
    """The edges of a type that lack an end."""


def check_bitmaps(scope: CheckScope) -> FirstLook:
    """What marks show: of ids that they differ, of edges which lack an end."""
    look = _BitmapCheck(scope)
    ends: dict[str, tuple[Breaches, ...]] = {}
    for key in scope.keys:
        absent = look.absent_ends(key)
        if absent is not None:
            ends[key] = tuple(locate_missing_ends(scope, {}, key, absent))
    return FirstLook(dict.fromkeys(filter(look.ids_differ, scope.keys), np.zeros(0, np.uint64)), ends)


def list_nodes_after(scope: CheckScope, key: str) -> list[View]:
    """All nodes of a type that there are after the load."""
    if scope.mode is Mode.OVERWRITE and key in scope.keys:
        return [*scope.new(key)]
    return [*scope.new(key), *scope.old(key)]


class _BitmapCheck:
    """Reads the marks of each type once."""

    def __init__(self, scope: CheckScope) -> None:
        self._scope = scope
        self._stored: dict[str, list[NumberBitmap] | None] = {}
        self._nodes: dict[str, MarkedIds | None] = {}

    def ids_differ(self, key: str) -> bool:
        scope = self._scope
        given = [view for view in scope.new(key) if view.staged.given]
        new = _list_bitmaps(given, ID)
        if not given or new is None or scope.releases(key):
            return False
        if sum(one.count for one in new) < count_rows(given):
            return False
        stored = self._mark_stored_ids(key, scope.old(key)) if scope.mode is Mode.APPEND else []
        if stored is None:
            return False
        if len(new) + len(stored) == 1:
            return True
        files = [*new, *stored]
        return read_union(scope.task.job, files).count == sum(one.count for one in files)

    def absent_ends(self, key: str) -> dict[End, pa.Array] | None:
        """The ids of nodes that edges name and that do not exist, by end; None where marks do not show it."""
        scope = self._scope
        if not key.startswith("edge:") or scope.task.counts(key):
            return None
        edges = scope.new(key)
        absent: dict[End, pa.Array] = {}
        for end in ENDS:
            wanted = _list_bitmaps(edges, end)
            if wanted is None:
                return None
            nodes = self._node_ids(table_key("node", node_type(scope.task.targets[key], end)))
            if nodes is None:
                return None
            found = find_unmarked(read_union(scope.task.job, wanted), nodes)
            if len(found) > _ABSENT_HELD:
                return None
            if len(found):
                absent[end] = found
        return absent

    def _node_ids(self, node: str) -> MarkedIds | None:
        """The ids of all nodes of a type; None when too many of them are no numbers."""
        if node not in self._nodes:
            views = list_nodes_after(self._scope, node)
            new = _list_bitmaps([view for view in views if isinstance(view, NewRows)], ID)
            stored = [view for view in views if isinstance(view, StoredPart)]
            old = None if new is None else self._mark_stored_ids(node, stored)
            known = None if new is None or old is None else [*new, *old]
            self._nodes[node] = None if known is None else read_union(self._scope.task.job, known)
        return self._nodes[node]

    def _mark_stored_ids(self, key: str, views: list[StoredPart]) -> list[NumberBitmap] | None:
        """The marks of stored ids, which are made now."""
        if count_rows(views) > MOST:
            return None
        if key not in self._stored:
            runner = self._scope.runner_for(count_rows(views))
            found = list(runner.each("stored ids", views, partial(_stored_marks, self._scope.task)))
            marks = [one for one in found if one is not None]
            self._stored[key] = marks if len(marks) == len(found) else None
        return self._stored[key]


def _list_bitmaps(views: Iterable[NewRows], column: str) -> list[NumberBitmap] | None:
    """The marks of a column; None when there is something in it that has none."""
    found = [view.staged.bitmaps.get(column) for view in views]
    marks = [one for one in found if one is not None]
    return marks if len(marks) == len(found) else None


def _stored_marks(task: CheckTask, view: StoredPart) -> NumberBitmap | None:
    builder = BitmapBuilder()
    for chunk in view.columns(task.job, [ID]).column(ID).chunks:
        builder.add(chunk)
    name = f"stored-{fnv1a64(view.key)}-{view.entry.version}-{view.fragments[0]}"
    return builder.write(task.job, name)


_IDS_AT_ONCE = 4 << 20
_EDGES_AT_ONCE = 2 << 20
_NODES_HELD = 4 << 20
"""So many nodes, and no more, are in the memory of a task."""
_ABSENT_HELD = 1 << 20
"""So many ids of nodes that do not exist, and no more, travel to tasks."""
_SHARED_HELD = 1 << 20
"""So many shared hashes of a type, and no more, travel to tasks; beyond that all rows meet."""


@dataclass(frozen=True, slots=True)
class _Ids:
    """Some of the ids of a type."""

    key: str
    files: tuple[IdHashes, ...] = field(repr=False)
    first: int
    last: int

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(int(one.cuts[self.last] - one.cuts[self.first]) for one in self.files)


@dataclass(frozen=True, slots=True)
class _Ends:
    """Some of the edges of a type, and all nodes that may be at their ends."""

    key: str
    edges: tuple[NewRows, ...] = field(repr=False)
    nodes: tuple[tuple[str, tuple[View, ...]], ...] = field(repr=False)
    """By node type."""

    @property
    def rows(self) -> int:
        """How many are read."""
        return sum(view.rows for view in (*self.edges, *(view for _, views in self.nodes for view in views)))


_Part = _Ids | _Ends


@dataclass(frozen=True, slots=True)
class _PartResult:
    key: str
    shared: Hashes | None = None
    """Of ids; None when there are too many."""
    lacking: tuple[Breaches, ...] | None = None
    """Of edges."""


def run_quick_checks(scope: CheckScope) -> FirstLook:
    """What can be shown of a load from which nothing is left out."""
    known = check_bitmaps(scope)
    ids = list(_id_parts(scope, [key for key in scope.keys if key not in known.shared]))
    ends = list(_end_parts(scope, [key for key in scope.keys if key not in known.ends]))
    found = _run_parts(scope, [*ids, *ends], {})
    return FirstLook(
        {**known.shared, **_join_shared(ids, found)}, {**known.ends, **_join_lacking(ends, found)}
    )


def look_at_ends(scope: CheckScope, keys: Sequence[str], dropped: Dropped) -> dict[str, tuple[Breaches, ...]]:
    """The edges that lack an end, of those of the types that can be looked up one by one."""
    ends = list(_end_parts(scope, keys))
    return _join_lacking(ends, _run_parts(scope, ends, dropped))


def _run_parts(scope: CheckScope, parts: Sequence[_Part], dropped: Dropped) -> list[_PartResult]:
    runner = scope.runner_for(sum(part.rows for part in parts))
    return list(runner.each("check", parts, partial(_run_part, scope.task, dropped)))


def _join_shared(parts: Iterable[_Ids], found: Sequence[_PartResult]) -> dict[str, Hashes]:
    joined = {}
    for key in sorted({part.key for part in parts}):
        shared = [one.shared for one in found if one.key == key and one.lacking is None]
        known = [one for one in shared if one is not None]
        if len(known) == len(shared) and sum(map(len, known)) <= _SHARED_HELD:
            joined[key] = np.sort(np.concatenate(known))
    return joined


def _join_lacking(parts: Iterable[_Ends], found: Sequence[_PartResult]) -> dict[str, tuple[Breaches, ...]]:
    joined: dict[str, tuple[Breaches, ...]] = {part.key: () for part in parts}
    for one in found:
        if one.lacking is not None:
            joined[one.key] += one.lacking
    return joined


# --- what is looked at ---------------------------------------------------------------------------


def _id_parts(scope: CheckScope, keys: Sequence[str]) -> Iterator[_Ids]:
    for key in keys:
        given = [view for view in scope.new(key) if view.staged.given]
        files = [view.staged.id_hashes for view in given]
        known = [one for one in files if one is not None]
        if not given or len(known) < len(files) or scope.releases(key):
            continue
        if scope.mode is Mode.APPEND:
            stored = scope.old(key)
            runner = scope.runner_for(count_rows(stored))
            known += runner.each("stored ids", stored, partial(_write_stored_hashes, scope.task))
        parts = min(RANGES, -(-sum(one.count for one in known) // _IDS_AT_ONCE))
        bounds = [RANGES * part // parts for part in range(parts + 1)]
        for first, last in pairwise(bounds):
            yield _Ids(key, tuple(known), first, last)


def _write_stored_hashes(task: CheckTask, view: StoredPart) -> IdHashes:
    ids = view.columns(task.job, [ID]).column(ID)
    name = f"stored-{fnv1a64(view.key)}-{view.entry.version}-{view.fragments[0]}"
    return write_id_hashes(task.job, name, [hash_keys(ids)])


def _end_parts(scope: CheckScope, keys: Sequence[str]) -> Iterator[_Ends]:
    for key in keys:
        if not key.startswith("edge:") or scope.task.counts(key):
            continue
        types = sorted({table_key("node", node_type(scope.task.targets[key], end)) for end in ENDS})
        nodes = tuple((node, tuple(list_nodes_after(scope, node))) for node in types)
        if sum(view.rows for _, views in nodes for view in views) <= _NODES_HELD:
            for edges in _split_views(scope.new(key), scope.runner.cores):
                yield _Ends(key, edges, nodes)


def _split_views(views: Sequence[NewRows], cores: int) -> Iterator[tuple[NewRows, ...]]:
    """Views in portions of about one size: one for each core, or as many times that as memory asks for."""
    total = sum(view.rows for view in views)
    rounds = -(-total // (_EDGES_AT_ONCE * cores))
    size = total / max(1, rounds * cores)
    portion: list[NewRows] = []
    rows = done = 0
    for view in views:
        portion.append(view)
        rows += view.rows
        if rows >= size * (done + 1):
            yield tuple(portion)
            portion, done = [], done + 1
    if portion:
        yield tuple(portion)


# --- in the tasks --------------------------------------------------------------------------------


def _run_part(task: CheckTask, dropped: Dropped, part: _Part) -> _PartResult:
    if isinstance(part, _Ids):
        shared = find_shared_hashes(task.job, part.files, part.first, part.last, _SHARED_HELD)
        return _PartResult(part.key, shared=shared)
    return _PartResult(part.key, lacking=tuple(_find_lacking(task, dropped, part)))


def _find_lacking(task: CheckTask, dropped: Dropped, part: _Ends) -> Iterator[Breaches]:
    target = task.targets[part.key]
    rows = [view.read(task.job, list(ENDS), dropped) for view in part.edges]
    for node, views in part.nodes:
        ends = [end for end in ENDS if table_key("node", node_type(target, end)) == node]
        wanted = [chunk for one in rows for end in ends for chunk in one.column(end).chunks]
        known = [chunk for view in views for chunk in _read_ids(task, view, dropped).chunks]
        absent = find_absent(pa.chunked_array(wanted, pa.string()), pa.chunked_array(known, pa.string()))
        if not len(absent):
            continue
        for view in part.edges:
            yield from find_edges_without_ends(task, dropped, dict.fromkeys(ends, absent), view)


def _read_ids(task: CheckTask, view: View, dropped: Dropped) -> pa.ChunkedArray:
    if isinstance(view, StoredPart):
        return view.columns(task.job, [ID]).column(ID)
    return view.read(task.job, [ID], dropped).column(ID)
