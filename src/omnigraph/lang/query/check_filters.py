"""Typing of filters: comparisons, null tests, membership and text filters."""

from __future__ import annotations

from omnigraph.lang.query import ast
from omnigraph.lang.query.check_terms import (
    check_property,
    check_term,
    check_text_match,
    describe_term,
    refuse_null,
)
from omnigraph.lang.query.check_values import check_in_items
from omnigraph.lang.query.patterns import find_fault
from omnigraph.lang.query.scope import Scope, raise_fault
from omnigraph.lang.query.terms import (
    AllOf,
    AnyOf,
    Column,
    Compare,
    Const,
    Distance,
    EntityId,
    Fusion,
    Has,
    Holds,
    InList,
    Not,
    NullCheck,
    ParamRef,
    PatternTest,
    Predicate,
    RelationOp,
    Relevance,
    Term,
    TextTest,
    has_total,
    walk,
)
from omnigraph.lang.source import Span
from omnigraph.lang.types import Scalar, are_compatible


def check_predicate(scope: Scope, clause: ast.Condition) -> Predicate:
    """Resolve and type a condition."""
    match clause:
        case ast.Junction(word=word, conditions=conditions):
            tests = tuple(check_predicate(scope, each) for each in conditions)
            return AllOf(tests) if word == "and" else AnyOf(tests)
        case ast.NotTest(condition=condition):
            return Not(check_predicate(scope, condition))
        case ast.Comparison():
            return _check_comparison(scope, clause)
        case ast.NullTest():
            return _null_test(scope, clause)
        case ast.InTest():
            return _in_test(scope, clause)
        case ast.TextFilter():
            return Holds(check_text_match(scope, clause.call))


def _check_operand(scope: Scope, expr: ast.Expr) -> Term:
    refuse_null(expr)
    # Blobs get a message of their own below instead of the one about reading values.
    found = check_property(scope, expr) if isinstance(expr, ast.PropRef) else check_term(scope, expr)
    _refuse_scores(found, expr.at)
    return found


def _refuse_scores(found: Term, at: Span) -> None:
    for part in walk(found):
        if isinstance(part, Distance | Relevance | Fusion):
            raise_fault(
                None,
                f"unsupported expression in filter: {_CALLS[type(part)]}(…)",
                at,
                help="rank with it in `order`, or return it as a value",
            )


_CALLS: dict[type, str] = {Distance: "nearest", Relevance: "bm25", Fusion: "rrf"}


def _check_comparison(scope: Scope, clause: ast.Comparison) -> Predicate:
    left, right = _check_operand(scope, clause.left), _check_operand(scope, clause.right)
    if not (_is_value(left) and _is_value(right)):
        raise_fault(
            "T7",
            "filter comparisons require scalar operands, "
            f"got {describe_term(scope, left)} and {describe_term(scope, right)}",
            clause.at,
        )
    if Scalar.BLOB in (left.type.scalar, right.type.scalar):
        raise_fault("T7", "blob comparisons in filters are not supported", clause.at)
    match clause.op:
        case "contains":
            return _check_contains(left, right, clause.at)
        case ("starts_with" | "ends_with") as affix:
            return _check_affix(affix, left, right, clause.at)
        case ("like" | "ilike" | "matches") as pattern:
            return _check_pattern(pattern, left, right, clause)
        case op:
            return _check_relation(op, left, right, clause)


def _check_relation(op: RelationOp, left: Term, right: Term, clause: ast.Comparison) -> Compare:
    if left.type.is_list or right.type.is_list:
        raise_fault(
            "T7",
            "list comparisons in filters are not supported; use `contains` for list membership",
            clause.at,
        )
    if Scalar.VECTOR in (left.type.scalar, right.type.scalar):
        raise_fault("T7", "vector comparisons in filters are not supported", clause.at)
    if not are_compatible(left.type, right.type):
        raise_fault("T7", f"cannot compare {left.type} with {right.type}", clause.at)
    return Compare(op, left, right)


def _is_value(found: Term) -> bool:
    return not isinstance(found, EntityId | Column) and not has_total(found)


def _check_contains(left: Term, right: Term, at: Span) -> Predicate:
    if Scalar.VECTOR in (left.type.scalar, right.type.scalar):
        raise_fault("T7", "vector membership filters are not supported", at)
    if left.type.is_list:
        if right.type.is_list:
            raise_fault("T7", "contains requires a scalar right operand", at)
        if not are_compatible(left.type.item, right.type):
            raise_fault("T7", f"cannot test membership of {right.type} in {left.type}", at)
        return Has(left, right)
    if not left.type.is_text:
        raise_fault(
            "T7",
            "contains requires a list property (membership) or a String property (substring) "
            f"on the left, got {left.type}",
            at,
        )
    if not right.type.is_text:
        raise_fault("T7", f"string contains requires a String right operand, got {right.type}", at)
    return TextTest("contains", left, right)


def _check_affix(op: ast.AffixOp, left: Term, right: Term, at: Span) -> TextTest:
    if not left.type.is_text:
        raise_fault("T7", f"{op} requires a String property on the left, got {left.type}", at)
    if not right.type.is_text:
        raise_fault("T7", f"{op} requires a String right operand, got {right.type}", at)
    return TextTest(op, left, right)


def _check_pattern(op: ast.PatternOp, left: Term, right: Term, clause: ast.Comparison) -> PatternTest:
    if not left.type.is_text:
        raise_fault("T32", f"{op} requires a String on the left, got {left.type}", clause.left.at)
    if not isinstance(right, Const | ParamRef) or not right.type.is_text:
        got = f", got {right.type}" if not right.type.is_text else ""
        raise_fault("T32", f"the pattern of {op} must be a String literal or parameter{got}", clause.right.at)
    fault = find_fault(op, str(right.value)) if isinstance(right, Const) else None
    if fault is not None:
        raise_fault("T32", f"invalid pattern of {op}: {fault}", clause.right.at)
    return PatternTest(op, left, right)


def _null_test(scope: Scope, clause: ast.NullTest) -> NullCheck:
    expr = clause.argument
    found = check_property(scope, expr) if isinstance(expr, ast.PropRef) else check_term(scope, expr)
    _refuse_scores(found, expr.at)
    if isinstance(found, Column) or has_total(found):
        raise_fault(
            "T7",
            f"filter comparisons require scalar operands, got {describe_term(scope, found)} and null",
            clause.at,
        )
    return NullCheck(found, clause.negated)


def _in_test(scope: Scope, clause: ast.InTest) -> InList:
    left = _check_operand(scope, clause.argument)
    if isinstance(left, Column) or has_total(left):
        raise_fault("T7", "filter comparisons require scalar operands, got aggregate and a list", clause.at)
    if isinstance(left, EntityId):
        raise_fault("T28", f"cannot test {describe_term(scope, left)} in a list", clause.at)
    return InList(left, check_in_items(scope, left.type, clause.items, clause.at))
