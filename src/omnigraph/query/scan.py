"""Find the nodes of a type that pass their own tests: by key, through an index, or on columns in memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.query.terms import Predicate
from omnigraph.query.context import QueryContext
from omnigraph.query.expressions.pushdown import lance_filter, list_needed_columns
from omnigraph.query.frame import Positions, all_rows
from omnigraph.query.key_lookup import KeyLookup
from omnigraph.query.rows import Rows
from omnigraph.storage.indexes import read_coverage

LARGE = 200_000
"""Tables from this size on use an index on disk before columns are read into memory."""


_SMALL_ENTRY = 256  # bytes, about


@dataclass(frozen=True, slots=True)
class Candidates:
    """The rows a variable can be, by its own tests."""

    positions: Positions
    total: int
    """How many positions the table has."""
    how: str
    """How they were found, for `explain`."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.positions)

    def mask(self) -> NDArray[np.bool_]:
        """For each position of the table whether it is one of them."""
        flags = np.zeros(self.total, dtype=np.bool_)
        flags[self.positions] = True
        return flags


def find_candidates(
    context: QueryContext, var: str, tests: tuple[Predicate, ...], known: KeyLookup | None = None
) -> Candidates:
    """Return the rows of a variable's type that pass all its own tests; `known` is its key lookup."""
    rows = context.rows(var)
    if not tests:
        return Candidates(rows.positions(), rows.count, "all")
    if known is not None:
        rest = tuple(test for test in tests if test is not known.test)
        places = rows.find_few(known.ids)
        return _apply_tests(context, var, places[places >= 0], rest, "by key")
    found = _find_by_index(context, var, tests)
    if found is not None:
        positions, rest, columns = found
        return _apply_tests(context, var, positions, rest, f"by index on {', '.join(columns)}")
    return _apply_tests(context, var, rows.positions(), tests, "on columns in memory")


def _apply_tests(
    context: QueryContext, var: str, positions: Positions, tests: tuple[Predicate, ...], how: str
) -> Candidates:
    frame = context.filter(all_rows(var, positions), tests)
    return Candidates(frame.variables[var], context.rows(var).count, how)


# --- by an index on disk -------------------------------------------------------------------------


def _find_by_index(
    context: QueryContext, var: str, tests: tuple[Predicate, ...]
) -> tuple[Positions, tuple[Predicate, ...], tuple[str, ...]] | None:
    rows = context.rows(var)
    if rows.count < LARGE:
        return None
    indexed = _index_columns(context, rows)
    asked = tuple(test for test in tests if indexed.issuperset(list_needed_columns([test])))
    columns = list_needed_columns(asked)
    if not columns or all(rows.is_cached(name) for name in columns):
        return None
    where, rest = lance_filter(var, asked, context.bindings)
    if where is None:
        return None
    found = rows.table.scan([], where=where, row_ids=True).column("_rowid").to_numpy()
    kept = tuple(test for test in tests if test not in asked or test in rest)
    return rows.positions_of(found), kept, columns


def _index_columns(context: QueryContext, rows: Rows) -> frozenset[str]:
    """The columns with an index that answers comparisons."""
    return context.sources.memory.get_or_make(
        (*rows.identity, "indexed"),
        lambda: frozenset(
            name
            for found in read_coverage(rows.table).values()
            if found.type.upper().startswith("BTREE") and found.is_complete
            for name in found.columns
        ),
        lambda _: _SMALL_ENTRY,
    )
