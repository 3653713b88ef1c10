"""What a schema change does to the table of each type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import refuse_colliding_paths, split_key, table_key, table_keys, table_path
from omnigraph.engine.graph.schema_files import LiveSchema, successor
from omnigraph.engine.graph.table_types import TableType, table_schema, table_type_of
from omnigraph.engine.rows.blobs import is_blob, to_writable
from omnigraph.engine.rows.json_columns import build_column
from omnigraph.lang.schema import AcceptedSchema, Resolution, compile_schema, plan_resolved, resolve
from omnigraph.lang.schema.annotations import default_of
from omnigraph.lang.schema.catalog import CheckRule, EdgeType, NodeType, Property, RangeRule, UniqueRule
from omnigraph.lang.schema.catalog_json import constraint_value
from omnigraph.lang.schema.migration_planner import REFUSED
from omnigraph.lang.schema.migration_steps import (
    AddConstraint,
    ChangeCardinality,
    DropProperty,
    DropType,
    MigrationPlan,
    UnsupportedChange,
)
from omnigraph.lang.source import Source
from omnigraph.lang.types import Scalar
from omnigraph.storage.blobs import blob_sizes, read_blob_bytes
from omnigraph.storage.tables import Table


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the new schema, and where its values come from."""

    field: pa.Field
    source: str | None
    """The stored column; None when the property is new."""
    fill: pa.Array | None = field(default=None, repr=False, compare=False)
    """One value, for rows that have none."""


@dataclass(frozen=True, slots=True)
class TableMigration:
    """The table of a type, before and after."""

    target: TableType
    """The type as it is to be."""
    columns: tuple[Column, ...]
    before: str | None
    """The table that holds its rows so far; None when the type is new."""
    is_rewritten: bool
    """Whether its columns become others."""
    unproven: NodeType | EdgeType
    """The type with only those constraints that stored rows may break."""
    is_recounted: bool = False
    """Whether another number of edges is allowed for each source."""

    @property
    def is_new(self) -> bool:
        """Whether it needs a table that is not there yet."""
        return self.before != self.target.key

    def renamed_vectors(self) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
        """The properties with vectors that get another name, of their own or by their type: from, and to."""
        if self.before is None:
            return
        _, name = split_key(self.before)
        for column in self.columns:
            declared = self.target.owner.properties.get(column.field.name)
            if declared is None or column.source is None or declared.type.scalar is not Scalar.VECTOR:
                continue
            before, after = (name, column.source), (self.target.name, declared.name)
            if before != after:
                yield before, after


@dataclass(frozen=True, slots=True)
class Migration:
    """The steps from the accepted schema to another one, and what they do to tables."""

    schema: LiveSchema
    """The schema that is wanted."""
    plan: MigrationPlan
    tables: tuple[TableMigration, ...]
    dropped: tuple[str, ...]
    """The tables that are dropped, including those of renamed types."""
    reclaimed: tuple[str, ...]
    """The tables whose old versions are removed too: data loss is allowed, and they lose data."""


def plan_migration(
    live: LiveSchema, source: Source, locations: Mapping[str, str], *, allow_data_loss: bool = False
) -> Migration:
    """Plan the migration to a schema; `locations` are the tables the graph has or had, and their folders."""
    desired = compile_schema(source)
    refuse_colliding_paths(table_keys(desired))
    resolution = resolve(live.accepted, desired)
    schema = successor(live.accepted, source.text)
    plan = plan_resolved(live.accepted, desired, resolution, allow_data_loss)
    changes = _MigrationPlanner(live.accepted, schema.accepted, resolution, *_group_by_type(plan))
    nodes_first = sorted(table_keys(desired), key=lambda key: (split_key(key)[0] == "edge", key))
    tables = tuple(changes.table(key) for key in nodes_first)
    kept = {change.before for change in tables if not change.is_new}
    retired = _refuse_reused_names((change.target.key for change in tables if change.is_new), locations)
    return Migration(
        schema=schema,
        plan=replace(plan, steps=(*plan.steps, *retired)),
        tables=tables,
        dropped=tuple(key for key in table_keys(live.catalog) if key not in kept),
        reclaimed=tuple(sorted(_tables_to_reclaim(plan, tables))),
    )


def _refuse_reused_names(keys: Iterable[str], locations: Mapping[str, str]) -> Iterator[UnsupportedChange]:
    """New types in the place of one that the graph had before: its past is still there."""
    taken = set(locations.values())
    for key in keys:
        kind, name = split_key(key)
        if key in locations or table_path(kind, name) in taken:
            reason = f"reusing the name of {kind} type '{name}', which the graph had before,"
            yield UnsupportedChange(f"{kind}:{name}", f"{reason} {REFUSED}; choose another name")


def _tables_to_reclaim(plan: MigrationPlan, tables: Iterable[TableMigration]) -> Iterator[str]:
    before = {(it.target.kind, it.target.name): it.before for it in tables if it.before is not None}
    for step in plan.steps:
        match step:
            case DropType(type_kind="node" | "edge" as kind, name=name, mode="hard"):
                yield table_key(kind, name)
            case DropProperty(type_kind="node" | "edge" as kind, type_name=name, mode="hard"):
                yield before[kind, name]


def _group_by_type(plan: MigrationPlan) -> tuple[dict[str, list[Mapping[str, Any]]], set[str]]:
    """The constraints that a plan adds by table key, and the edge tables whose cardinality it changes."""
    added: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    recounted = set()
    for step in plan.steps:
        match step:
            case AddConstraint(type_kind="node" | "edge" as kind, type_name=name, constraint=constraint):
                added[table_key(kind, name)].append(constraint)
            case ChangeCardinality(type_name=name):
                recounted.add(table_key("edge", name))
    return added, recounted


@dataclass(frozen=True, slots=True)
class _MigrationPlanner:
    accepted: AcceptedSchema
    desired: AcceptedSchema
    resolution: Resolution
    added: Mapping[str, Sequence[Mapping[str, Any]]]
    """The constraints that types do not have so far, by table key."""
    recounted: Collection[str]
    """Edge tables whose cardinality changes."""

    def table(self, key: str) -> TableMigration:
        kind, name = split_key(key)
        target = table_type_of(self.desired, key)
        origin = self.resolution.type_origins.get((kind, name))
        before = None if origin is None else table_key(kind, origin)
        columns = tuple(self._plan_column(target, before, column) for column in target.schema)
        filled = {column.field.name for column in columns if column.fill is not None}
        return TableMigration(
            target,
            columns,
            before,
            is_rewritten=before is not None and self._needs_rewrite(before, columns),
            unproven=self._unproven_type(target, filled),
            is_recounted=target.key in self.recounted,
        )

    def _plan_column(self, target: TableType, before: str | None, column: pa.Field) -> Column:
        declared = target.owner.properties.get(column.name)
        if declared is None:
            return Column(column, column.name)
        source = self.resolution.property_origins.get((target.kind, target.name, declared.name))
        if before is None:
            return Column(column, None)
        if source is None:
            return Column(column, None, _default_column(declared))
        old = self._type_of(before).properties[source]
        required = old.type.nullable and not declared.type.nullable
        return Column(column, source, _default_column(declared) if required else None)

    def _type_of(self, key: str) -> NodeType | EdgeType:
        kind, name = split_key(key)
        catalog = self.accepted.catalog
        return catalog.nodes[name] if kind == "node" else catalog.edges[name]

    def _needs_rewrite(self, before: str, columns: Iterable[Column]) -> bool:
        """Whether stored columns have other names, types or rules about null; their order means nothing."""
        stored = {column.name: column for column in table_schema(self.accepted.catalog, before)}
        wanted = {column.field.name: column.field for column in columns}
        return stored != wanted or any(column.source != column.field.name for column in columns)

    def _unproven_type(self, target: TableType, filled: set[str]) -> NodeType | EdgeType:
        """What is new, and what is about values that only this change stores."""
        owner, added = target.owner, self.added.get(target.key, ())

        def is_open(rule: UniqueRule | RangeRule | CheckRule) -> bool:
            columns = rule.columns if isinstance(rule, UniqueRule) else (rule.column,)
            return constraint_value(rule) in added or not filled.isdisjoint(columns)

        uniques = tuple(filter(is_open, owner.uniques))
        if isinstance(owner, EdgeType):
            return replace(owner, uniques=uniques)
        ranges, checks = tuple(filter(is_open, owner.ranges)), tuple(filter(is_open, owner.checks))
        return replace(owner, uniques=uniques, ranges=ranges, checks=checks)


def _default_column(declared: Property) -> pa.Array | None:
    """The default of a property as a column of one row."""
    value = default_of(declared)
    return None if value is None else build_column([value], declared.type)


_ROW_ID = "_rowid"
_BLOB_BYTES = 64 * 2**20


def rewrite_rows(table: Table, change: TableMigration) -> Callable[[], pa.RecordBatchReader]:
    """Return a function that reads all rows of a table in the columns of the new schema, on each call."""

    def read() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(change.target.schema, read_batches(table, change.columns))

    return read


def read_batches(table: Table, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table with these columns."""
    stored = list(dict.fromkeys(column.source for column in columns if column.source is not None))
    blobs = [column.source for column in columns if column.source is not None and is_blob(column.field)]
    schema = pa.schema([column.field for column in columns])
    for batch in table.batches(stored, row_ids=bool(blobs)):
        for piece in _split_batch(batch, blobs):
            arrays = [_convert_column(table, piece, column) for column in columns]
            yield from to_writable(pa.Table.from_arrays(arrays, schema.names), schema).to_batches()


def _split_batch(batch: pa.RecordBatch, blobs: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield parts of a batch whose Blobs have a bounded number of bytes, or that have one row."""
    if not blobs:
        yield batch
        return
    weights = np.sum([blob_sizes(batch.column(name)).to_numpy() for name in blobs], axis=0)
    full = np.cumsum(weights) // _BLOB_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(full)) + 1).tolist(), batch.num_rows]
    yield from (batch.slice(begin, end - begin) for begin, end in pairwise(cuts))


def _convert_column(table: Table, batch: pa.RecordBatch, column: Column) -> pa.Array:
    kind = pa.large_binary() if is_blob(column.field) else column.field.type
    if column.source is None:
        return _repeat_value(column.fill, batch.num_rows, kind)
    if is_blob(column.field):
        return read_blob_bytes(table, column.source, batch.column(_ROW_ID))
    found = _cast_values(batch.column(column.source), kind)
    return found if column.fill is None else pc.coalesce(found, column.fill[0])


def _repeat_value(one: pa.Array | None, count: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(count, kind) if one is None else one.take(pa.array(np.zeros(count, np.int64)))


def _cast_values(values: pa.Array, kind: pa.DataType) -> pa.Array:
    # Arrow takes a date64 for a whole day, and would cut off the time of day.
    plain = values.view(pa.int64()) if pa.types.is_date64(values.type) else values
    return plain.cast(kind)
