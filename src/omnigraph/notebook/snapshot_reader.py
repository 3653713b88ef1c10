"""Read rows of a graph at one snapshot by id; nothing is cached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.graph.columns import ID, SOURCE, TARGET
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.snapshot_tables import explain_failure, open_table
from omnigraph.engine.rows.predicate_sql import one_of
from omnigraph.errors import StorageFailure
from omnigraph.lang.schema.catalog import Catalog, EdgeType

_MOST_ASKED = 1000
"""So many ids at most are put into one filter."""


@dataclass(frozen=True, slots=True)
class SnapshotReader:
    """A graph at a snapshot."""

    graph: OpenGraph
    snapshot: Snapshot
    catalog: Catalog

    def nodes(self, type_name: str, ids: Sequence[str], columns: Sequence[str]) -> pa.Table:
        """The nodes of a type with these ids, in no promised order."""
        key = table_key("node", type_name)
        found = [self._rows(key, [ID, *columns], one_of(ID, some)) for some in _some(ids)]
        return pa.concat_tables(found or [self._rows(key, [ID, *columns], "false")])

    def edges_at(self, edge: EdgeType, end: str, ids: Sequence[str], limit: int) -> pa.Table:
        """The ends of up to so many edges that have one of these nodes at an end, `src` or `dst`."""
        key, left = table_key("edge", edge.name), limit
        found = []
        for some in _some(ids):
            found.append(self._rows(key, [SOURCE, TARGET], one_of(end, some), left))
            left -= found[-1].num_rows
            if left <= 0:
                break
        return pa.concat_tables(found or [self._rows(key, [SOURCE, TARGET], "false")])

    def edges_between(self, edge: EdgeType, sources: Sequence[str], targets: Sequence[str]) -> pa.Table:
        """The ends of the edges of a type that join these nodes."""
        key, wanted = table_key("edge", edge.name), pa.array(targets, pa.string())
        found = []
        for some in _some(sources):
            where = one_of(SOURCE, some)
            if 0 < len(targets) <= _MOST_ASKED:
                where = f"{where} AND {one_of(TARGET, targets)}"
            rows = self._rows(key, [SOURCE, TARGET], where)
            found.append(rows.filter(pc.is_in(rows.column(TARGET), value_set=wanted)))
        return pa.concat_tables(found or [self._rows(key, [SOURCE, TARGET], "false")])

    def _rows(self, key: str, columns: Sequence[str], where: str, limit: int | None = None) -> pa.Table:
        table = open_table(self.graph, self.snapshot, key)
        try:
            return table.scan(columns, where=where, limit=limit)
        except StorageFailure as failure:
            raise explain_failure(self.graph, self.snapshot, key, failure) from failure


def _some(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + _MOST_ASKED] for start in range(0, len(ids), _MOST_ASKED))
