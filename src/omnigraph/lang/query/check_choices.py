"""Typing of expressions that choose between values: the type they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from omnigraph.lang.query import ast
from omnigraph.lang.query.scope import raise_fault
from omnigraph.lang.query.terms import Column, Const, EntityId, ParamRef, Prop, Term
from omnigraph.lang.types import F64, I64, INTEGERS, NUMBERS, Scalar, ValueType
from omnigraph.lang.values import integer_bounds


def share_type(what: str, chosen: Sequence[tuple[ast.Expr, Term]]) -> ValueType:
    """The type of whichever value is chosen, nullable if all are; a fault where they share none."""
    values = [(expr, found) for expr, found in chosen if not _is_null(found)]
    for expr, found in values:
        if isinstance(found, EntityId | Column) or found.type.scalar in (Scalar.VECTOR, Scalar.BLOB):
            got = found.type if isinstance(found, Prop | ParamRef | Const) else "a node or a column"
            raise_fault("T33", f"{what} chooses between single values and lists, got {got}", expr.at)
    if not values:
        raise_fault("T33", f"{what} needs a value besides null", chosen[0][0].at)
    first = values[0][1].type
    for expr, found in values:
        numbers = first.scalar in NUMBERS and found.type.scalar in NUMBERS and not first.is_list
        if found.type.is_list != first.is_list or not (found.type.scalar is first.scalar or numbers):
            types = f"{first.with_nullable(False)} and {found.type.with_nullable(False)}"
            raise_fault("T33", f"{what} needs values of one type, got {types}", expr.at)
    shared = _widest([found for _, found in values])
    return replace(shared, nullable=all(_is_null(found) or found.type.nullable for _, found in chosen))


def _is_null(found: Term) -> bool:
    return isinstance(found, Const) and found.value is None


def _widest(values: list[Term]) -> ValueType:
    """Whole numbers that are written down take the type of what they stand beside, if they fit."""
    first = values[0].type
    types = {found.type.scalar for found in values if not isinstance(found, Const)}
    if len(types) == 1 and (scalar := next(iter(types))) in INTEGERS:
        low, high = integer_bounds(scalar)
        written = [found.value for found in values if isinstance(found, Const)]
        if all(isinstance(value, int) and low <= value <= high for value in written):
            return ValueType(scalar)
    scalars = {found.type.scalar for found in values}
    if len(scalars) == 1:
        return ValueType(first.scalar, is_list=first.is_list)
    return I64 if scalars <= INTEGERS - {Scalar.U64} else F64
