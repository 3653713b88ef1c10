"""What the checks of whole change sets ask about rows that are stored already."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.table_types import ID, SOURCE, TARGET, TableType
from omnigraph.engine.rows.predicate import one_of
from omnigraph.lang.types import STRING, ValueType

End = Literal["src", "dst"]
EDGE = [ID, SOURCE, TARGET]
COUNTED = pa.schema([(SOURCE, pa.string()), ("count", pa.int64())])
KEYS_PER_SCAN = 8192


class StoredRows(Protocol):
    """The state before a change."""

    def ids(self, key: str) -> pa.ChunkedArray:
        """Every id of a table."""
        ...

    def existing(self, key: str, ids: pa.Array) -> pa.ChunkedArray:
        """Those of the ids that a table has."""
        ...

    def holders(self, key: str, columns: Sequence[str], rows: pa.Table) -> pa.Table:
        """`id` and the columns of at least the stored rows that equal one of the rows in all columns."""
        ...

    def edges(self, key: str, ids: pa.Array) -> pa.Table:
        """`id`, `src` and `dst` of the edges with these ids."""
        ...

    def edges_at(self, key: str, end: End, nodes: pa.Array) -> pa.Table:
        """`id`, `src` and `dst` of the edges that start, or end, at one of these nodes."""
        ...

    def edge_counts(self, key: str, sources: pa.Array | None) -> pa.Table:
        """`src` and `count`: how many edges start at each of these nodes; None asks for all that have any."""
        ...


class Scannable(Protocol):
    """A table that can be read."""

    @property
    def schema(self) -> pa.Schema: ...

    def scan(self, columns: Sequence[str] | None = None, *, where: str | None = None) -> pa.Table: ...

    def count(self, where: str | None = None) -> int: ...


@dataclass(frozen=True, slots=True)
class StoredTables:
    """The stored rows as a graph's tables have them at a pinned version."""

    open: Callable[[str], Scannable]
    """A table by its key."""
    targets: Mapping[str, TableType]
    """The types behind the tables."""

    def ids(self, key: str) -> pa.ChunkedArray:
        """Every id of a table."""
        return self.open(key).scan([ID]).column(ID)

    def existing(self, key: str, ids: pa.Array) -> pa.ChunkedArray:
        """Those of the ids that a table has."""
        return self._rows_with(key, [ID], ID, ids).column(ID)

    def holders(self, key: str, columns: Sequence[str], rows: pa.Table) -> pa.Table:
        """`id` and the columns of rows that equal one of the rows at least in one column."""
        distinct = {name: pc.unique(rows.column(name)) for name in columns}
        selective = max(columns, key=lambda name: len(distinct[name]))
        wanted = list(dict.fromkeys([ID, *columns]))
        return self._rows_with(key, wanted, selective, distinct[selective])

    def edges(self, key: str, ids: pa.Array) -> pa.Table:
        """`id`, `src` and `dst` of the edges with these ids."""
        return self._rows_with(key, EDGE, ID, ids)

    def edges_at(self, key: str, end: End, nodes: pa.Array) -> pa.Table:
        """`id`, `src` and `dst` of the edges that start, or end, at one of these nodes."""
        return self._rows_with(key, EDGE, end, nodes)

    def edge_counts(self, key: str, sources: pa.Array | None) -> pa.Table:
        """`src` and `count` of the nodes where edges start."""
        if sources is None:
            found = self.open(key).scan([SOURCE])
        else:
            found = self._rows_with(key, [SOURCE], SOURCE, sources)
        counted = found.group_by(SOURCE).aggregate([([], "count_all")])
        return pa.table([counted.column(SOURCE), counted.column("count_all")], schema=COUNTED)

    def _rows_with(self, key: str, columns: list[str], column: str, values: pa.Array) -> pa.Table:
        """The rows whose value in a column is one of these; reads the whole table when many are asked for."""
        table = self.open(key)
        values = pc.unique(values)
        if not len(values) or not table.count():
            return pa.schema([table.schema.field(name) for name in columns]).empty_table()
        if len(values) > KEYS_PER_SCAN:
            values = _with_both_zeros(values)
            found = table.scan(list(dict.fromkeys([*columns, column])))
            return found.filter(pc.is_in(found.column(column), value_set=values)).select(columns)
        return table.scan(columns, where=one_of(column, _plain(values), self._type_of(key, column)))

    def _type_of(self, key: str, column: str) -> ValueType:
        declared = self.targets[key].owner.properties.get(column)
        return STRING if declared is None else declared.type


def _with_both_zeros(values: pa.Array) -> pa.Array:
    """Lance takes both zeros for equal, Arrow's sets of values do not."""
    if not pa.types.is_floating(values.type):
        return values
    zeros = pa.array([0.0, -0.0], values.type)
    return pa.concat_arrays([values, zeros]) if pc.any(pc.equal(values, 0.0)).as_py() else values


def _plain(values: pa.Array) -> list[str | bool | int | float]:
    """Values as filters are written with: dates and moments as numbers."""
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    found: list[str | bool | int | float] = values.to_pylist()
    return found
