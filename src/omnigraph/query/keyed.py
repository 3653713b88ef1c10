"""Tests that name nodes by their key, and the ids that they ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from omnigraph.engine.write.predicate import Bindings, Nothing, OneOf, Relation, Test, settle
from omnigraph.errors import InvalidValue
from omnigraph.lang.query.terms import Compare, ParamRef, Predicate, Prop
from omnigraph.lang.schema.keys import render_scalar
from omnigraph.lang.types import INTEGERS, Scalar
from omnigraph.lang.values import Atom
from omnigraph.query.expressions.pushdown import columns_needed, is_expressible


@dataclass(frozen=True, slots=True)
class KeyTest:
    """A test of nothing but the key, against values known beforehand."""

    test: Predicate
    key: str
    given: tuple[str, Callable[[Any], str]] | None
    """The parameter whose value is the id once it is a text, where no rule of comparison can matter."""

    def ids(self, bindings: Bindings) -> list[str] | None:
        """The ids of the nodes that can pass; None where it is not a test of equality."""
        if self.given is None:
            return _ids(settle(self.test, bindings), self.key)
        name, text_of = self.given
        value = bindings.parameters[name]
        return [] if value is None else [text_of(value)]


@dataclass(frozen=True, slots=True)
class Keyed:
    """A test that names rows by their key, and their ids."""

    test: Predicate
    ids: list[str]


def key_tests(tests: Iterable[Predicate], var: str, key: tuple[str, ...]) -> tuple[KeyTest, ...]:
    """The tests of a variable that may name its rows by a key of one column."""
    if len(key) != 1:
        return ()
    return tuple(
        KeyTest(test, key[0], _given(test))
        for test in tests
        if columns_needed([test]) == key and is_expressible(test, var)
    )


def keyed(tests: tuple[KeyTest, ...], bindings: Bindings) -> Keyed | None:
    """The first of these tests that is one of equality, with the ids it asks for."""
    for each in tests:
        ids = each.ids(bindings)
        if ids is not None:
            return Keyed(each.test, ids)
    return None


def _given(test: Predicate) -> tuple[str, Callable[[Any], str]] | None:
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
