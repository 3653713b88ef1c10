"""Properties of one node by its key, answered from memory at once: the commonest read, and the shortest.

Nothing is decided here that the matcher does not decide the same way. Whatever is not in memory, or is not
as simple as this, it answers, and leaves in memory what the next such read needs.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from omnigraph.engine.columns import ID
from omnigraph.engine.layout import table_key
from omnigraph.engine.write.predicate import Bindings
from omnigraph.errors import StorageFailure
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.terms import Compare, EntityId, Prop, Term
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.query.frame import NO_ROW
from omnigraph.query.keyed import KeyTest, key_tests
from omnigraph.query.result import OneRow
from omnigraph.query.rows import Rows


@dataclass(frozen=True, slots=True)
class Point:
    """A plan that returns properties of the node with one key."""

    var: str
    table: str
    """The key of the node's table."""
    test: KeyTest
    columns: tuple[str, ...]
    schema: pa.Schema

    def shown(self) -> str:
        """What is looked up, for `explain`."""
        return f"${self.var}: {self.table}"

    def found(self, rows: Rows, bindings: Bindings) -> OneRow | None:
        """The row, or none; None when that cannot be told from memory alone."""
        try:
            places = rows.places()
        except StorageFailure:
            return None  # ids of newer rows were cleaned up, or worse: the matcher tells which
        if places is None:
            return None
        columns, together = [], rows.count
        for name in self.columns:
            column = rows.known(name)
            if column is None:
                return None
            columns.append(column)
            together = min(together, len(column.first))
        ids = self.test.ids(bindings)
        if ids is None:
            return None
        place = places.of(ids[0]) if ids else NO_ROW
        if place < together:
            return OneRow([column.first for column in columns], place, self.schema)
        return OneRow([column.cell(place) for column in columns], 0, self.schema)


def point_of(plan: p.Plan, schema: pa.Schema, catalog: Catalog) -> Point | None:
    """A plan as a point, if it is one."""
    if not isinstance(plan, p.Project) or not isinstance(plan.input, p.Scan):
        return None
    scan = plan.input
    columns = [_column(output.term, scan.var) for output in plan.columns]
    named = key_tests(scan.where, scan.var, catalog.nodes[scan.type_name].key)
    if len(scan.where) != 1 or not named or None in columns:
        return None
    if not isinstance(named[0].test, Compare) or named[0].test.op != "=":
        return None  # others may name several nodes
    names = tuple(name for name in columns if name is not None)
    return Point(scan.var, table_key("node", scan.type_name), named[0], names, schema)


def _column(term: Term, var: str) -> str | None:
    """The column that a returned term is, if it is one as it stands."""
    match term:
        case Prop(var=owner, name=name) if owner == var:
            return name
        case EntityId(var=owner) if owner == var:
            return ID
    return None
