"""Typing of expressions and conditions: syntax to terms and predicates."""

from __future__ import annotations

from omnigraph.lang.query import ast
from omnigraph.lang.query.check_choices import share_type
from omnigraph.lang.query.check_dates import (
    check_date_call,
    check_elapsed,
    check_shift,
    is_date,
    refuse_interval,
)
from omnigraph.lang.query.check_names import (
    check_property,
    check_readable_property,
    check_variable,
    describe_term,
    refuse_null,
)
from omnigraph.lang.query.check_paths import check_path_call
from omnigraph.lang.query.check_search import check_distance, check_fusion, check_relevance, check_text_match
from omnigraph.lang.query.check_values import check_in_items, make_constant
from omnigraph.lang.query.patterns import find_fault
from omnigraph.lang.query.scope import Scope, raise_fault
from omnigraph.lang.query.terms import (
    AllOf,
    AnyOf,
    Calc,
    CaseFold,
    CaseWhen,
    Coalesce,
    Column,
    Compare,
    Const,
    Distance,
    Elapsed,
    EntityId,
    Fusion,
    Has,
    Holds,
    InList,
    Instant,
    Minus,
    Not,
    NullCheck,
    ParamRef,
    PatternTest,
    Predicate,
    RelationOp,
    Relevance,
    Shift,
    Term,
    TextMatch,
    TextTest,
    Total,
    has_total,
    walk,
)
from omnigraph.lang.source import Span
from omnigraph.lang.types import F64, FLOATS, I64, INTEGERS, STRING, Scalar, ValueType, are_compatible

# An alias stands for a column that does not exist yet where terms are computed; its type is a guess
# that only the descriptor shows.
_ALIAS_TYPE = I64.with_nullable()


def check_term(scope: Scope, expr: ast.Expr) -> Term:
    """Resolve and type an expression."""
    match expr:
        case ast.Literal() | ast.ListLiteral():
            return make_constant(expr)
        case ast.Null():
            return Const(None, STRING.with_nullable())
        case ast.Now():
            return Instant()
        case ast.VarRef():
            return check_variable(scope, expr)
        case ast.PropRef():
            return check_readable_property(scope, expr)
        case ast.AliasRef():
            return Column(expr.name, _ALIAS_TYPE)
        case ast.Arithmetic():
            return _check_arithmetic(scope, expr)
        case ast.Interval():
            refuse_interval(expr)
        case ast.Negate():
            argument = _check_number(scope, "-", expr.argument)
            return Minus(argument, (F64 if argument.type.scalar in FLOATS else I64).with_nullable())
        case _:
            return _check_call(scope, expr)


def _check_call(
    scope: Scope,
    expr: ast.CaseCall
    | ast.DateCall
    | ast.PathCall
    | ast.Coalesce
    | ast.CaseWhen
    | ast.Aggregate
    | ast.Nearest
    | ast.Bm25
    | ast.Rrf
    | ast.TextCall,
) -> Term:
    match expr:
        case ast.CaseCall():
            return _check_case(scope, expr)
        case ast.DateCall():
            return check_date_call(expr, _check_operand(scope, expr.argument))
        case ast.PathCall():
            return check_path_call(scope, expr)
        case ast.Coalesce():
            return _check_coalesce(scope, expr)
        case ast.CaseWhen():
            return _check_case_when(scope, expr)
        case ast.Aggregate():
            return _check_total(scope, expr)
        case ast.Nearest():
            return check_distance(scope, expr)
        case ast.Bm25():
            return check_relevance(scope, expr, _check_field(scope, expr.field))
        case ast.Rrf():
            return check_fusion(
                scope, expr, _check_ranking(scope, expr.first), _check_ranking(scope, expr.second)
            )
        case ast.TextCall():
            return _check_text_call(scope, expr)


def _check_ranking(scope: Scope, expr: ast.Nearest | ast.Bm25) -> Distance | Relevance:
    if isinstance(expr, ast.Nearest):
        return check_distance(scope, expr)
    return check_relevance(scope, expr, _check_field(scope, expr.field))


def _check_text_call(scope: Scope, expr: ast.TextCall) -> TextMatch:
    return check_text_match(scope, expr, _check_field(scope, expr.field))


def _check_field(scope: Scope, expr: ast.Expr) -> Term:
    refuse_null(expr)
    return check_property(scope, expr) if isinstance(expr, ast.PropRef) else check_term(scope, expr)


# --- arithmetic, case, aggregates ----------------------------------------------------------------


def _check_number(scope: Scope, op: str, expr: ast.Expr) -> Term:
    found = _check_operand(scope, expr)
    _require_number(scope, op, expr, found)
    return found


def _check_operand(scope: Scope, expr: ast.Expr) -> Term:
    refuse_null(expr)
    return check_term(scope, expr)


def _require_number(scope: Scope, op: str, expr: ast.Expr, found: Term) -> None:
    if isinstance(found, EntityId | Column) or not found.type.is_numeric:
        what = describe_term(scope, found) if isinstance(found, EntityId | Column) else found.type
        help_ = "dates take intervals, such as `days(3)`" if is_date(found) else None
        raise_fault("T26", f"{op} requires numeric operands, got {what}", expr.at, help=help_)


def _check_arithmetic(scope: Scope, expr: ast.Arithmetic) -> Calc | Shift | Elapsed:
    if isinstance(expr.left, ast.Interval) or isinstance(expr.right, ast.Interval):
        return _check_shift(scope, expr)
    left = _check_operand(scope, expr.left)
    if not (expr.op == "-" and is_date(left)):
        _require_number(scope, expr.op, expr.left, left)
    right = _check_operand(scope, expr.right)
    if is_date(left) and is_date(right):
        return check_elapsed(left, right, expr)
    _require_number(scope, expr.op, expr.left, left)
    _require_number(scope, expr.op, expr.right, right)
    exact = expr.op != "/" and left.type.scalar in INTEGERS and right.type.scalar in INTEGERS
    return Calc(expr.op, left, right, (I64 if exact else F64).with_nullable())


def _check_shift(scope: Scope, expr: ast.Arithmetic) -> Shift:
    moment, interval = expr.left, expr.right
    if isinstance(moment, ast.Interval):
        if expr.op != "+":
            refuse_interval(moment)
        moment, interval = interval, moment
    assert isinstance(interval, ast.Interval)
    found, amount = _check_operand(scope, moment), _check_operand(scope, interval.amount)
    return check_shift(expr.op, found, interval, amount, moment)


def _check_coalesce(scope: Scope, expr: ast.Coalesce) -> Coalesce:
    found = tuple(check_term(scope, argument) for argument in expr.arguments)
    return Coalesce(found, share_type("coalesce", list(zip(expr.arguments, found, strict=True))))


def _check_case_when(scope: Scope, expr: ast.CaseWhen) -> CaseWhen:
    tests = tuple(check_predicate(scope, branch.condition, totals=True) for branch in expr.branches)
    chosen = [(branch.value, check_term(scope, branch.value)) for branch in expr.branches]
    values = tuple(found for _, found in chosen)
    otherwise = None if expr.otherwise is None else check_term(scope, expr.otherwise)
    if expr.otherwise is not None and otherwise is not None:
        chosen.append((expr.otherwise, otherwise))
    shared = share_type("case", chosen)
    nullable = otherwise is None or any(found.type.nullable for _, found in chosen)
    return CaseWhen(tests, values, otherwise, shared.with_nullable(nullable))


def _check_case(scope: Scope, expr: ast.CaseCall) -> CaseFold:
    refuse_null(expr.argument)
    found = check_term(scope, expr.argument)
    if isinstance(found, EntityId | Column) or not found.type.is_text:
        what = describe_term(scope, found) if isinstance(found, EntityId | Column) else found.type
        raise_fault("T27", f"{expr.fn} requires a String, got {what}", expr.argument.at)
    return CaseFold(expr.fn, found, STRING.with_nullable(found.type.nullable))


def _check_total(scope: Scope, expr: ast.Aggregate) -> Total:
    refuse_null(expr.argument)
    found = check_term(scope, expr.argument)
    if isinstance(found, Column) or has_total(found):
        raise_fault("T8", f"{expr.fn} cannot take another aggregate or an alias", expr.argument.at)
    is_node = isinstance(found, EntityId)
    if expr.fn == "count":
        if expr.distinct and not is_node and not _is_scalar(found.type):
            raise_fault("T8", f"count(distinct) requires a scalar, got {found.type}", expr.argument.at)
        return Total("count", found, expr.distinct, I64.with_nullable())
    if expr.fn == "collect":
        if not is_node and not _is_scalar(found.type):
            raise_fault("T8", f"collect requires a scalar, got {found.type}", expr.argument.at)
        return Total("collect", found, expr.distinct, ValueType(found.type.scalar, is_list=True))
    if expr.fn in ("sum", "avg"):
        if is_node or not found.type.is_numeric:
            described = describe_term(scope, found)
            raise_fault("T8", f"{expr.fn} requires numeric type, got {described}", expr.argument.at)
        return Total(expr.fn, found, False, F64.with_nullable())
    if not is_node and not (found.type.is_numeric or found.type.is_text or is_date(found)):
        raise_fault("T8", f"{expr.fn} requires numeric or string type, got {found.type}", expr.argument.at)
    return Total(expr.fn, found, False, found.type.with_nullable())


def _is_scalar(type_: ValueType) -> bool:
    return not type_.is_list and type_.scalar not in (Scalar.VECTOR, Scalar.BLOB)


# --- conditions ----------------------------------------------------------------------------------


def check_predicate(scope: Scope, clause: ast.Condition, *, totals: bool = False) -> Predicate:
    """Resolve and type a condition; `totals` says whether its operands may be aggregates."""
    match clause:
        case ast.Junction(word=word, conditions=conditions):
            tests = tuple(check_predicate(scope, each, totals=totals) for each in conditions)
            return AllOf(tests) if word == "and" else AnyOf(tests)
        case ast.NotTest(condition=condition):
            return Not(check_predicate(scope, condition, totals=totals))
        case ast.Comparison():
            return _check_comparison(scope, clause, totals)
        case ast.NullTest():
            return _null_test(scope, clause, totals)
        case ast.InTest():
            return _in_test(scope, clause, totals)
        case ast.TextFilter():
            return Holds(_check_text_call(scope, clause.call))


def _check_compared(scope: Scope, expr: ast.Expr) -> Term:
    # Blobs get a message of their own below instead of the one about reading values.
    found = _check_field(scope, expr)
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


def _check_comparison(scope: Scope, clause: ast.Comparison, totals: bool) -> Predicate:
    left, right = _check_compared(scope, clause.left), _check_compared(scope, clause.right)
    if not (_is_value(left, totals) and _is_value(right, totals)):
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
        help_ = "compare values of one type: numbers have no quotes, texts do"
        raise_fault("T7", f"cannot compare {left.type} with {right.type}", clause.at, help_)
    return Compare(op, left, right)


def _is_value(found: Term, totals: bool) -> bool:
    return not isinstance(found, EntityId | Column) and (totals or not has_total(found))


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


def _null_test(scope: Scope, clause: ast.NullTest, totals: bool) -> NullCheck:
    expr = clause.argument
    found = check_property(scope, expr) if isinstance(expr, ast.PropRef) else check_term(scope, expr)
    _refuse_scores(found, expr.at)
    if isinstance(found, Column) or (has_total(found) and not totals):
        raise_fault(
            "T7",
            f"filter comparisons require scalar operands, got {describe_term(scope, found)} and null",
            clause.at,
        )
    return NullCheck(found, clause.negated)


def _in_test(scope: Scope, clause: ast.InTest, totals: bool) -> InList:
    left = _check_compared(scope, clause.argument)
    if isinstance(left, Column) or (has_total(left) and not totals):
        raise_fault("T7", "filter comparisons require scalar operands, got aggregate and a list", clause.at)
    if isinstance(left, EntityId):
        raise_fault("T28", f"cannot test {describe_term(scope, left)} in a list", clause.at)
    return InList(left, check_in_items(scope, left.type, clause.items, clause.at))
