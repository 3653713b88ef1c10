"""What differs between two snapshots of a graph."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.changes.change import (
    Change,
    ChangeCounts,
    ChangeFilter,
    ChangeOperation,
    EntityImage,
    render_changes,
    render_counts,
    require_types,
)
from omnigraph.engine.changes.comparison import RunnerChoice, SortedRuns, TableComparison, compare_by_tasks
from omnigraph.engine.changes.equality import Mask
from omnigraph.engine.changes.row_pairs import LEFT, RIGHT, RowPairs, changed_columns, row_ids, split_rows
from omnigraph.engine.changes.table_side import TableSide
from omnigraph.engine.graph.layout import split_key
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.table_types import ID, SOURCE, TARGET
from omnigraph.engine.rows.blobs import MANAGED
from omnigraph.errors import BadRequest, HistoricalVersionReclaimed, OmnigraphError
from omnigraph.lang.schema.catalog import Catalog
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
    befores, afters = build_images(pairs.left, before), build_images(pairs.right, after)
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


def build_images(side: TableSide | None, rows: pa.Table) -> Iterator[EntityImage]:
    """Yield the images of entities in rows that were read from a side."""
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


Catalogs = Callable[[Snapshot], Catalog]
"""Returns the schema of a snapshot."""
ExplainReclaimed = Callable[[HistoricalVersionReclaimed], OmnigraphError]
"""The error that the caller gets when a version was cleaned up."""
ChangePlace = tuple[str, str]
"""The table and the id of a change; changes are in this order, tables of nodes first."""


def _keep_error(error: HistoricalVersionReclaimed) -> OmnigraphError:
    return error


def table_order(key: str) -> tuple[bool, str]:
    """Tables sort by this in every list of changes."""
    return key.startswith("edge:"), key


class Diff:
    """The changes that lead from one snapshot of a graph to another: nodes first, then by type and id.

    It is lazy: tables are read when needed, images only while iterating. It can be iterated again.
    """

    def __init__(
        self,
        graph: OpenGraph,
        before: Snapshot,
        after: Snapshot,
        wanted: ChangeFilter | None = None,
        *,
        catalogs: Catalogs | None = None,
        explain_reclaimed: ExplainReclaimed = _keep_error,
        runner_choice: RunnerChoice | None = None,
    ) -> None:
        self.before = before
        self.after = after
        self._graph = graph
        self._wanted = wanted or ChangeFilter()
        self._catalog_at = catalogs or graph.catalog_at
        self._explain_reclaimed = explain_reclaimed
        self._runner_choice = runner_choice or RunnerChoice()
        self._pairs: dict[str, RowPairs | SortedRuns] = {}
        require_types(self._wanted, before.entries.keys() | after.entries.keys())

    @cached_property
    def _tables(self) -> list[str]:
        """The tables that may differ: equal versions of one owner are the same rows."""
        keys = self.before.entries.keys() | self.after.entries.keys()
        return sorted(
            (key for key in keys if self._wanted.wants_table(key) and self._may_differ(key)),
            key=table_order,
        )

    def _may_differ(self, key: str) -> bool:
        places = [
            entry and (entry.path, entry.owner, entry.version)
            for entry in (self.before.entries.get(key), self.after.entries.get(key))
        ]
        return places[0] != places[1]

    def tables(self) -> list[str]:
        """The tables that may differ, in the order of their changes."""
        return list(self._tables)

    def key_of(self, type_name: str) -> str:
        """The table of a type by its name, or by `node:Name` and `edge:Name` where both kinds have one."""
        known = self.before.entries.keys() | self.after.entries.keys()
        found = [key for key in sorted(known) if type_name in (key, key.partition(":")[2])]
        if len(found) == 1:
            return found[0]
        raise BadRequest(
            f"'{type_name}' is a node type and an edge type", remedy=f"name {' or '.join(found)}"
        )

    def comparison(self, key: str) -> TableComparison:
        """Return both sides of a table."""
        with self._explain_failures():
            sides = (
                TableSide.of(self._graph, at, key, self._catalog_at(at)) if key in at.entries else None
                for at in (self.before, self.after)
            )
            return TableComparison(*sides)

    def _compare_table(self, key: str) -> RowPairs | SortedRuns:
        if key not in self._pairs:
            comparison = self.comparison(key)
            with self._explain_failures():
                runner = self._runner_choice.choose_runner(comparison)
                self._pairs[key] = (
                    comparison.compare_in_memory() if runner is None else compare_by_tasks(comparison, runner)
                )
        return self._pairs[key]

    @contextmanager
    def _explain_failures(self) -> Iterator[None]:
        try:
            yield
        except HistoricalVersionReclaimed as error:
            raise self._explain_reclaimed(error) from error

    def stat(self) -> dict[str, ChangeCounts]:
        """How many entities of each type differ, by `node:Name` and `edge:Name`; no image is read."""
        counted = {key: self._wanted.of(self._count_table(key)) for key in self._tables}
        return {key: stat for key, stat in counted.items() if stat != ChangeCounts()}

    stats = stat
    """The earlier name of `stat`."""

    def _count_table(self, key: str) -> ChangeCounts:
        """Count the changes of a table; where one side has no rows, nothing is read."""
        sides = (self.before.entries.get(key), self.after.entries.get(key))
        before, after = (0 if side is None else side.row_count for side in sides)
        if key not in self._pairs and 0 in (before, after) and None not in (before, after):
            return ChangeCounts(inserted=after or 0, deleted=before or 0)
        return self._compare_table(key).stat

    def __iter__(self) -> Iterator[Change]:
        return self.beyond(None)

    def beyond(self, place: ChangePlace | None) -> Iterator[Change]:
        """The changes after a place; None means from the first on."""
        for key in self._tables:
            if place is not None and table_order(key) < table_order(place[0]):
                continue
            found = self._compare_table(key)
            if place is not None and key == place[0]:
                found = found.beyond(place[1])
            with self._explain_failures():
                for portion in found.portions():
                    yield from build_changes(key, portion, self._wanted)

    def __bool__(self) -> bool:
        return any(self._wanted.of(self._compare_table(key).stat) != ChangeCounts() for key in self._tables)

    def to_json(self) -> dict[str, Any]:
        """All of it as scripts read it."""
        return {**self.about(), "changes": [change.to_json() for change in self]}

    def about(self) -> dict[str, Any]:
        """Return which snapshots were compared, and how much differs."""
        return {
            "from": _describe_snapshot(self.before),
            "to": _describe_snapshot(self.after),
            "stats": {key: stat.to_json() for key, stat in self.stat().items()},
        }

    def __repr__(self) -> str:
        return f"<Diff from {self.before.id} to {self.after.id}>"

    def _repr_html_(self) -> str:
        stats = self.stat()
        total = sum(stat.inserted + stat.updated + stat.deleted for stat in stats.values())
        return render_counts(f"Diff from {self.before.id} to {self.after.id}", stats) + (
            render_changes(self, total) if total else ""
        )


def _describe_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "graph_branch": snapshot.branch,
        "graph_manifest_version": snapshot.version,
        "graph_commit_id": snapshot.commit.id if snapshot.commit else None,
    }
