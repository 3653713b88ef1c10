"""The tables of a snapshot as DataFrames: only the rows and columns that a query needs, read by tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.snapshot_tables import open_table
from omnigraph.engine.graph.table_types import ID, SOURCE, TARGET
from omnigraph.engine.rows.predicate import Bindings
from omnigraph.lang.query.resolved import EdgeDirection
from omnigraph.lang.query.terms import Predicate
from omnigraph.pipeline.fan_out import Task, number_items
from omnigraph.pipeline.query.binding_frame import BindingFrame, ColumnNames, Held, Slot
from omnigraph.pipeline.query.scope import RequestValues
from omnigraph.pipeline.query.task_frame import TaskFrame
from omnigraph.pipeline.query.tasks import FAR, NEAR, ReadLinks, ReadRows
from omnigraph.pipeline.table_scan import Fragments, Scan, to_spark_types
from omnigraph.query.expressions.pushdown import lance_filter, list_needed_columns
from omnigraph.storage.blobs import is_blob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOTHING = RequestValues({}, 0)


@dataclass(frozen=True, slots=True)
class TableRead:
    """The rows of a table that a variable can be bound to: those that pass its tests."""

    var: str | None
    key: str
    tests: tuple[Predicate, ...] = ()
    given: RequestValues = _NOTHING


class Tables:
    """The tables of one snapshot for one query."""

    def __init__(
        self,
        spark: SparkSession,
        graph: OpenGraph,
        snapshot: Snapshot,
        names: ColumnNames,
        needed: Mapping[str, Iterable[str]],
    ) -> None:
        self._spark = spark
        self._graph = graph
        self._snapshot = snapshot
        self._names = names
        self._needed = needed

    def nodes(self, wish: TableRead) -> BindingFrame:
        """The nodes that a variable may stand for."""
        reading, slots = self._reading(wish, ())
        return self._flight(reading, reading.scan, slots, [])

    def ids(self, key: str, column: str) -> DataFrame:
        """The ids of all rows of a table."""
        stored = open_table(self._graph, self._snapshot, key).schema
        scan = self._scan(key, stored, [ID])
        task = ReadRows(scan, (), {}, _NOTHING, {ID: column})
        return self._read(task, scan, pa.schema([(column, pa.string())])).frame

    def links(self, wish: TableRead, direction: EdgeDirection) -> BindingFrame:
        """The edges of a type as steps from `NEAR` to `FAR`, with what is needed of one that has a name."""
        reading, slots = self._reading(wish, (SOURCE, TARGET))
        ends = [pa.field(NEAR, pa.string()), pa.field(FAR, pa.string())]
        return self._flight(ReadLinks(reading, direction), reading.scan, slots, ends)

    def _flight(
        self, task: Task[Fragments], scan: Scan, slots: dict[Held, Slot], before: list[pa.Field]
    ) -> BindingFrame:
        columns = [pa.field(slot.column, slot.type) for slot in slots.values()]
        return BindingFrame(self._read(task, scan, pa.schema([*before, *columns])), slots)

    def _read(self, task: Task[Fragments], scan: Scan, shape: pa.Schema) -> TaskFrame:
        values = (self._snapshot.entries[scan.key].row_count or 0) * len(shape)
        numbers, work = number_items(self._spark, scan.plan_pieces(), task, values)
        return TaskFrame(self._spark, numbers, work, shape)

    def _reading(self, wish: TableRead, ends: tuple[str, ...]) -> tuple[ReadRows, dict[Held, Slot]]:
        """A task that reads what a variable needs, and where that is found in its rows."""
        stored = open_table(self._graph, self._snapshot, wish.key).schema
        var, given = wish.var or "", wish.given
        where, rest = lance_filter(var, wish.tests, Bindings(given.parameters, given.now))
        kept = self._kept(wish.var, stored)
        read = dict.fromkeys([*kept, *ends, *list_needed_columns(rest), ID])
        tested: dict[Held, Slot] = {(var, name): Slot(name, stored.field(name).type) for name in read}
        names = {name: self._names.of((var, name)) for name in kept}
        slots: dict[Held, Slot] = {
            (var, name): Slot(column, stored.field(name).type) for name, column in names.items()
        }
        scan = replace(self._scan(wish.key, stored, list(read)), where=where)
        return ReadRows(scan, rest, tested, given, names), slots

    def _kept(self, var: str | None, stored: pa.Schema) -> list[str]:
        """The id and the properties that a query needs; a variable of that name elsewhere may need others."""
        if var is None:
            return []
        found = (stored.field(name) for name in sorted(self._needed.get(var, ())) if name in stored.names)
        return [ID, *(column.name for column in found if not is_blob(column))]

    def _scan(self, key: str, stored: pa.Schema, columns: list[str]) -> Scan:
        entry = self._snapshot.entries[key]
        schema = to_spark_types(pa.schema([stored.field(name) for name in columns]))
        uri, pinned = self._graph.root.uri, self._snapshot
        return Scan(
            uri, key, entry.path, entry.owner, entry.version, schema, False, pinned.branch, pinned.incarnation
        )


def node_key(type_name: str) -> str:
    """The table of a type of node."""
    return table_key("node", type_name)


def edge_key(type_name: str) -> str:
    """The table of a type of edge."""
    return table_key("edge", type_name)
