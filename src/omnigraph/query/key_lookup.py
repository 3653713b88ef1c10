"""Tests that name nodes by key, and the ids they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from omnigraph.engine.rows.predicate import Bindings, Comparison, MatchesNothing, OneOf, Test, bind_predicate
from omnigraph.errors import InvalidValue
from omnigraph.lang.query.terms import Compare, ParamRef, Predicate, Prop
from omnigraph.lang.schema.keys import render_scalar
from omnigraph.lang.types import INTEGERS, Scalar
from omnigraph.lang.values import Atom
from omnigraph.query.expressions.pushdown import columns_needed, is_expressible


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
            return _ids_named_by(bind_predicate(self.test, bindings), self.key)
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
        if columns_needed([test]) == key and is_expressible(test, var)
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
