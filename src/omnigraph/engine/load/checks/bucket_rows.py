"""The stored rows that met the rows of a load with the same keys, as the checks ask for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.engine.constraints.stored_rows import COUNTED, EDGE, End
from omnigraph.engine.constraints.table_change import is_among
from omnigraph.engine.graph.columns import ID, SOURCE


@dataclass(frozen=True, slots=True)
class BucketRows:
    """Stored rows by table; a table that is not there has none."""

    tables: Mapping[str, pa.Table]

    def ids(self, key: str) -> pa.ChunkedArray:
        """Every id of a table."""
        return self._table(key, [ID]).column(ID)

    def existing(self, key: str, ids: pa.Array) -> pa.ChunkedArray:
        """Those of the ids that a table has."""
        return self._having(key, [ID], ID, ids).column(ID)

    def holders(self, key: str, columns: Sequence[str], rows: pa.Table) -> pa.Table:
        """`id` and the columns of rows that may equal one of the rows: all that met."""
        wanted = list(dict.fromkeys([ID, *columns]))
        return self._table(key, wanted, [rows.schema.field(name) for name in columns])

    def edges(self, key: str, ids: pa.Array) -> pa.Table:
        """`id` and `src` of the edges with these ids."""
        return self._having(key, [ID, SOURCE], ID, ids)

    def edges_at(self, key: str, end: End, nodes: pa.Array) -> pa.Table:
        """`id`, `src` and `dst` of the edges that start, or end, at one of these nodes."""
        return self._having(key, EDGE, end, nodes)

    def edge_counts(self, key: str, sources: pa.Array | None) -> pa.Table:
        """`src` and `count` of the nodes where edges start."""
        found = self._table(key, [SOURCE])
        if sources is not None:
            found = found.filter(pa.array(is_among(found.column(SOURCE), sources)))
        counted = found.group_by(SOURCE).aggregate([([], "count_all")])
        return pa.table([counted.column(SOURCE), counted.column("count_all")], schema=COUNTED)

    def _having(self, key: str, columns: list[str], column: str, values: pa.Array) -> pa.Table:
        found = self._table(key, list(dict.fromkeys([*columns, column])))
        return found.filter(pa.array(is_among(found.column(column), values))).select(columns)

    def _table(self, key: str, columns: list[str], fields: Sequence[pa.Field] = ()) -> pa.Table:
        found = self.tables.get(key)
        if found is not None:
            return found.select(columns)
        known = {field.name: field for field in fields}
        return pa.schema([known.get(name, pa.field(name, pa.string())) for name in columns]).empty_table()
