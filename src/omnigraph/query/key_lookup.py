"""Tests that name nodes by key, and the ids they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from omnigraph.deferred_dataclass import dataclass
from omnigraph.engine.graph.layout import table_key
from omnigraph.engine.graph.table_types import ID
from omnigraph.engine.rows.predicate import Bindings, Comparison, MatchesNothing, OneOf, Test, bind_predicate
from omnigraph.errors import InvalidValue, StorageFailure
from omnigraph.lang.query import plan as p
from omnigraph.lang.query.terms import AllOf, AnyOf, Compare, EntityId, ParamRef, Predicate, Prop, Term
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.keys import render_scalar
from omnigraph.lang.types import INTEGERS, Scalar
from omnigraph.lang.values import Atom
from omnigraph.query.expressions.pushdown import is_expressible, list_needed_columns
from omnigraph.query.frame import NO_ROW
from omnigraph.query.result import OneRow
from omnigraph.query.row_growth import GrowingColumn
from omnigraph.query.rows import Rows


@dataclass(frozen=True, slots=True)
class KeyTest:
    """A test of the key alone, against constants and parameters."""

    test: Predicate
    key: str
    given: tuple[str, Callable[[Any], str]] | None
    """The parameter whose value as text is the id, and how to make it text; None where it needs binding."""

    def ids(self, bindings: Bindings) -> list[str] | None:
        """Return the ids of the nodes that can pass; None when it is not an equality test."""
        if self.given is None:
            return _ids_of(self.test, self.key, bindings)
        name, text_of = self.given
        value = bindings.parameters[name]
        return [] if value is None else [text_of(value)]


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """A test that names rows by key, and their ids."""

    test: Predicate
    ids: list[str]


def find_key_tests(tests: Iterable[Predicate], var: str, key: tuple[str, ...]) -> tuple[KeyTest, ...]:
    """Return the tests of a variable that may name its rows by a key of one column."""
    if len(key) != 1:
        return ()
    return tuple(
        KeyTest(test, key[0], _find_parameter(test))
        for test in tests
        if list_needed_columns([test]) == key and is_expressible(test, var)
    )


def find_key_lookup(tests: tuple[KeyTest, ...], bindings: Bindings) -> KeyLookup | None:
    """Return the first equality test, with the ids it names; None without one."""
    for each in tests:
        ids = each.ids(bindings)
        if ids is not None:
            return KeyLookup(each.test, ids)
    return None


def _find_parameter(test: Predicate) -> tuple[str, Callable[[Any], str]] | None:
    if not isinstance(test, Compare) or test.op != "=":
        return None
    column, given = (test.left, test.right) if isinstance(test.left, Prop) else (test.right, test.left)
    if not isinstance(column, Prop) or not isinstance(given, ParamRef) or given.type.is_list:
        return None
    kinds = {column.type.scalar, given.type.scalar}
    if kinds == {Scalar.STRING}:
        return given.name, _as_it_is
    # A number that the key cannot hold has an id that no node has.
    return (given.name, str) if kinds <= INTEGERS else None


def _as_it_is(text: str) -> str:
    return text


def _ids_of(test: Predicate, key: str, bindings: Bindings) -> list[str] | None:
    if isinstance(test, AllOf):
        return None
    if not isinstance(test, AnyOf):
        return _ids_named_by(bind_predicate(test, bindings), key)
    named = [_ids_of(each, key, bindings) for each in test.tests]
    if any(ids is None for ids in named):
        return None
    return list(dict.fromkeys(id_ for ids in named if ids is not None for id_ in ids))


def _ids_named_by(test: Test, column: str) -> list[str] | None:
    match test:
        case MatchesNothing():
            return []
        case Comparison(column=name, type=type_, op="=", value=value) if name == column:
            wanted: tuple[Atom, ...] = (value,)
        case OneOf(column=name, type=type_, values=values) if name == column and not type_.is_list:
            wanted = values
        case _:
            return None
    try:
        return list(dict.fromkeys(render_scalar(each, type_) for each in wanted))
    except InvalidValue:
        return None  # a value that no key can have; the column itself answers


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
            columns = None if places is None else self._cached_columns(rows)
        except StorageFailure:
            return (
                None  # values of newer rows were cleaned up, or worse: the matcher finds out and reports it
            )
        ids = None if places is None or columns is None else self.test.ids(bindings)
        if places is None or columns is None or ids is None:
            return None
        together = min((len(column.first) for column in columns), default=rows.count)
        place = places.find(ids[0]) if ids else NO_ROW
        if place < together:
            return OneRow([column.first for column in columns], place, self.schema)
        return OneRow([column.cell(place) for column in columns], 0, self.schema)

    def _cached_columns(self, rows: Rows) -> list[GrowingColumn] | None:
        """Return the columns of the result; None unless all are in memory."""
        columns = []
        for name in self.columns:
            column = rows.cached_column(name)
            if column is None:
                return None
            columns.append(column)
        return columns


def find_point_lookup(plan: p.Plan, schema: pa.Schema, catalog: Catalog) -> PointLookup | None:
    """Return the point lookup that a plan amounts to; None for any other plan."""
    if not isinstance(plan, p.Project) or not isinstance(plan.input, p.Scan):
        return None
    scan = plan.input
    columns = [_find_column(output.term, scan.var) for output in plan.columns]
    named = find_key_tests(scan.where, scan.var, catalog.nodes[scan.type_name].key)
    if len(scan.where) != 1 or not named or None in columns:
        return None
    if not isinstance(named[0].test, Compare) or named[0].test.op != "=":
        return None  # others may name several nodes
    names = tuple(name for name in columns if name is not None)
    return PointLookup(scan.var, table_key("node", scan.type_name), named[0], names, schema)


def _find_column(term: Term, var: str) -> str | None:
    """Return the column that a term names; None for any other term."""
    match term:
        case Prop(var=owner, name=name) if owner == var:
            return name
        case EntityId(var=owner) if owner == var:
            return ID
    return None
