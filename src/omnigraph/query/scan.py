"""The nodes of a type that pass their own tests: by key, through an index, or on columns in memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from omnigraph.engine.layout import split_key
from omnigraph.engine.write.predicate import Nothing, OneOf, Relation, Test, settle
from omnigraph.errors import InvalidValue
from omnigraph.lang.query.terms import Predicate
from omnigraph.lang.schema.keys import render_scalar
from omnigraph.lang.values import Atom
from omnigraph.query.expressions.pushdown import columns_needed, is_expressible, lance_filter
from omnigraph.query.frame import Positions, all_rows
from omnigraph.query.reading import Reading
from omnigraph.query.rows import Rows
from omnigraph.storage.indexes import coverage

LARGE = 200_000
"""From so many rows on an index on disk is asked before columns are read into memory."""


_SMALL_ENTRY = 256  # bytes, about


@dataclass(frozen=True, slots=True)
class Candidates:
    """The rows a variable can stand for, judged by the tests of it alone."""

    positions: Positions
    total: int
    """How many positions the table has."""
    is_all: bool
    how: str
    """Where they were found, for `explain`."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.positions)

    def mask(self) -> NDArray[np.bool_]:
        """For each position of the table whether it is one of them."""
        flags = np.zeros(self.total, dtype=np.bool_)
        flags[self.positions] = True
        return flags


def candidates(reading: Reading, var: str, tests: tuple[Predicate, ...]) -> Candidates:
    """The rows of a variable's type that pass all its own tests."""
    rows = reading.rows(var)
    if not tests:
        return Candidates(rows.positions(), rows.count, True, "all")
    keyed = _keyed(reading, var, tests)
    if keyed is not None:
        rest = tuple(test for test in tests if test is not keyed[0])
        places = rows.find(keyed[1])
        return _passing(reading, var, places[places >= 0], rest, "by key")
    found = _indexed(reading, var, tests)
    if found is not None:
        positions, rest, columns = found
        return _passing(reading, var, positions, rest, f"by index on {', '.join(columns)}")
    return _passing(reading, var, rows.positions(), tests, "on columns in memory")


def is_point(reading: Reading, var: str, tests: tuple[Predicate, ...]) -> bool:
    """Whether the tests name the rows by their key."""
    return _keyed(reading, var, tests) is not None


def _passing(
    reading: Reading, var: str, positions: Positions, tests: tuple[Predicate, ...], how: str
) -> Candidates:
    frame = reading.passing(all_rows(var, positions), tests)
    return Candidates(frame.variables[var], reading.rows(var).count, False, how)


# --- by key --------------------------------------------------------------------------------------


def _keyed(reading: Reading, var: str, tests: tuple[Predicate, ...]) -> tuple[Predicate, pa.Array] | None:
    """A test for equality with key values, and the ids that these make."""
    kind, name = split_key(reading.tables[var])
    key = reading.sources.catalog.nodes[name].key if kind == "node" else ()
    if len(key) != 1:
        return None
    for test in tests:
        if columns_needed([test]) == key and is_expressible(test, var):
            ids = _ids(settle(test, reading.bindings), key[0])
            if ids is not None:
                return test, pa.array(ids, pa.string())
    return None


def _ids(test: Test, column: str) -> list[str] | None:
    match test:
        case Nothing():
            return []
        case Relation(column=name, type=type_, op="=", value=value) if name == column:
            wanted: tuple[Atom, ...] = (value,)
        case OneOf(column=name, type=type_, values=values) if name == column and not type_.is_list:
            wanted = values
        case _:
            return None
    try:
        return list(dict.fromkeys(render_scalar(each, type_) for each in wanted))
    except InvalidValue:
        return None  # a value that no key can have; the column itself answers


# --- by an index on disk -------------------------------------------------------------------------


def _indexed(
    reading: Reading, var: str, tests: tuple[Predicate, ...]
) -> tuple[Positions, tuple[Predicate, ...], tuple[str, ...]] | None:
    rows = reading.rows(var)
    if rows.count < LARGE:
        return None
    indexed = _index_columns(reading, rows)
    asked = tuple(test for test in tests if indexed.issuperset(columns_needed([test])))
    columns = columns_needed(asked)
    if not columns or all(rows.is_hot(name) for name in columns):
        return None
    where, rest = lance_filter(var, asked, reading.bindings)
    if where is None:
        return None
    found = rows.table.scan([], where=where, row_ids=True).column("_rowid").to_numpy()
    kept = tuple(test for test in tests if test not in asked or test in rest)
    return rows.positions_of(found), kept, columns


def _index_columns(reading: Reading, rows: Rows) -> frozenset[str]:
    """The columns with an index that answers comparisons."""
    return reading.sources.memory.get_or_make(
        (*rows.identity, "indexed"),
        lambda: frozenset(
            name
            for found in coverage(rows.table).values()
            if found.type.upper().startswith("BTREE") and found.is_complete
            for name in found.columns
        ),
        lambda _: _SMALL_ENTRY,
    )
