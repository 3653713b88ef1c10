"""The fast path for the commonest read: properties of one node by its key, from memory.

It gives the same rows as the matcher. The matcher takes over whatever is not in memory or not as simple,
and leaves in memory what the next such read needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from omnigraph.engine.graph.columns import ID
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.rows.predicate import Bindings
from omnigraph.errors import StorageFailure
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.terms import Compare, EntityId, Prop, Term
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.query.frame import NO_ROW
from omnigraph.query.key_lookup import KeyTest, find_key_tests
from omnigraph.query.result import OneRow
from omnigraph.query.rows import Rows


@dataclass(frozen=True, slots=True)
class PointLookup:
    """A plan that returns properties of the node with one key."""

    var: str
    table: str
    """The key of the node's table."""
    test: KeyTest
    columns: tuple[str, ...]
    schema: pa.Schema

    def describe(self) -> str:
        """Return what is looked up, for `explain`."""
        return f"${self.var}: {self.table}"

    def look_up(self, rows: Rows, bindings: Bindings) -> OneRow | None:
        """Return the row, or an empty result; None when memory alone cannot answer."""
        try:
            places = rows.id_positions()
        except StorageFailure:
            return None  # ids of newer rows were cleaned up, or worse: the matcher finds out and reports it
        if places is None:
            return None
        columns, together = [], rows.count
        for name in self.columns:
            column = rows.cached_column(name)
            if column is None:
                return None
            columns.append(column)
            together = min(together, len(column.first))
        ids = self.test.ids(bindings)
        if ids is None:
            return None
        place = places.find(ids[0]) if ids else NO_ROW
        if place < together:
            return OneRow([column.first for column in columns], place, self.schema)
        return OneRow([column.cell(place) for column in columns], 0, self.schema)


def find_point_lookup(plan: p.Plan, schema: pa.Schema, catalog: Catalog) -> PointLookup | None:
    """Return the point lookup that a plan amounts to; None for any other plan."""
    if not isinstance(plan, p.Project) or not isinstance(plan.input, p.Scan):
        return None
    scan = plan.input
    columns = [_column(output.term, scan.var) for output in plan.columns]
    named = find_key_tests(scan.where, scan.var, catalog.nodes[scan.type_name].key)
    if len(scan.where) != 1 or not named or None in columns:
        return None
    if not isinstance(named[0].test, Compare) or named[0].test.op != "=":
        return None  # others may name several nodes
    names = tuple(name for name in columns if name is not None)
    return PointLookup(scan.var, table_key("node", scan.type_name), named[0], names, schema)


def _column(term: Term, var: str) -> str | None:
    """Return the column that a term names; None for any other term."""
    match term:
        case Prop(var=owner, name=name) if owner == var:
            return name
        case EntityId(var=owner) if owner == var:
            return ID
    return None
