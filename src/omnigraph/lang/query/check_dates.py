"""Typing of dates: their parts, and arithmetic with them."""

from __future__ import annotations

from typing import NoReturn

from omnigraph.lang.query import ast
from omnigraph.lang.query.scope import raise_fault
from omnigraph.lang.query.terms import Column, DateCast, DatePart, Elapsed, EntityId, Shift, Term
from omnigraph.lang.types import DATE, DATETIME, F64, I64, INTEGERS, Scalar, ValueType

_OF_DATES = frozenset({"years", "months", "weeks", "days"})
_OF_DAY = frozenset({"hour", "minute", "second"})


def is_date(found: Term) -> bool:
    """Whether a term is a single Date or DateTime."""
    return found.type.scalar in (Scalar.DATE, Scalar.DATETIME) and not found.type.is_list


def check_date_call(expr: ast.DateCall, found: Term) -> DatePart | DateCast:
    """`year(e)` and the like, `date(e)`, `datetime(e)`."""
    if isinstance(found, EntityId | Column) or not is_date(found):
        raise_fault("T34", f"{expr.fn} requires a Date or DateTime, got {found.type}", expr.argument.at)
    if expr.fn in _OF_DAY and found.type.scalar is Scalar.DATE:
        raise_fault("T34", f"{expr.fn} requires a DateTime, got {found.type}", expr.argument.at)
    if expr.fn == "date":
        return DateCast(found, DATE.with_nullable())
    if expr.fn == "datetime":
        return DateCast(found, DATETIME.with_nullable(found.type.nullable))
    return DatePart(expr.fn, found, I64.with_nullable(found.type.nullable))


def refuse_interval(expr: ast.Interval) -> NoReturn:
    """An interval has no value of its own."""
    raise_fault(
        "T34",
        f"`{expr.unit}` is added to or subtracted from a Date or DateTime",
        expr.at,
        help=f"write `$p.day + {expr.unit}(3)`",
    )


def check_shift(op: str, moment: Term, interval: ast.Interval, amount: Term, at: ast.Syntax) -> Shift:
    """`date + days(3)`, `date - months(1)`."""
    if op not in ("+", "-"):
        refuse_interval(interval)
    if isinstance(moment, EntityId | Column) or not is_date(moment):
        got = "a node" if isinstance(moment, EntityId) else moment.type
        raise_fault("T34", f"`{interval.unit}` needs a Date or DateTime beside it, got {got}", at.at)
    if moment.type.scalar is Scalar.DATE and interval.unit not in _OF_DATES:
        found = f"`{interval.unit}` needs a DateTime beside it, got {moment.type}"
        raise_fault("T34", found, at.at, help=f"write `datetime(…) {op} {interval.unit}(…)`")
    if isinstance(amount, EntityId | Column) or not (
        amount.type.scalar in INTEGERS and not amount.type.is_list
    ):
        raise_fault("T34", f"{interval.unit} requires an integer, got {amount.type}", interval.amount.at)
    return Shift(moment, amount, interval.unit, op == "-", _plain(moment.type).with_nullable())


def check_elapsed(left: Term, right: Term, at: ast.Syntax) -> Elapsed:
    """`date - date`."""
    if left.type.scalar is not right.type.scalar:
        raise_fault(
            "T34",
            f"cannot subtract {right.type} from {left.type}",
            at.at,
            help="make both the same kind by `date(…)` or `datetime(…)`",
        )
    days = left.type.scalar is Scalar.DATE
    return Elapsed(left, right, (I64 if days else F64).with_nullable())


def _plain(type_: ValueType) -> ValueType:
    return DATE if type_.scalar is Scalar.DATE else DATETIME
