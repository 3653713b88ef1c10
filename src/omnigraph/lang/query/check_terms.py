"""Typing of expressions: syntax to terms."""

from __future__ import annotations

from omnigraph.lang.query import ast
from omnigraph.lang.query.check_values import find_parameter, make_constant, refuse_blob
from omnigraph.lang.query.scope import ANONYMOUS, Scope, raise_fault
from omnigraph.lang.query.terms import (
    Calc,
    CaseFold,
    Column,
    Const,
    Distance,
    EntityId,
    Fusion,
    Instant,
    Minus,
    ParamRef,
    Prop,
    Relevance,
    Term,
    TextMatch,
    Total,
    has_total,
)
from omnigraph.lang.source import Span
from omnigraph.lang.types import F64, FLOATS, I64, INTEGERS, NUMBERS, STRING, Scalar, ValueType

DEFAULT_RRF_K = 60
DEFAULT_MAX_EDITS = 2

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
            return _check_variable(scope, expr)
        case ast.PropRef():
            return check_readable_property(scope, expr)
        case ast.AliasRef():
            return Column(expr.name, _ALIAS_TYPE)
        case ast.Arithmetic():
            return _check_arithmetic(scope, expr)
        case ast.Negate():
            argument = _check_number(scope, "-", expr.argument)
            return Minus(argument, (F64 if argument.type.scalar in FLOATS else I64).with_nullable())
        case _:
            return _check_call(scope, expr)


def _check_call(
    scope: Scope, expr: ast.CaseCall | ast.Aggregate | ast.Nearest | ast.Bm25 | ast.Rrf | ast.TextCall
) -> Term:
    match expr:
        case ast.CaseCall():
            return _check_case(scope, expr)
        case ast.Aggregate():
            return _check_total(scope, expr)
        case ast.Nearest():
            return check_distance(scope, expr)
        case ast.Bm25():
            return check_relevance(scope, expr)
        case ast.Rrf():
            return check_fusion(scope, expr)
        case ast.TextCall():
            return check_text_match(scope, expr)


def describe_term(scope: Scope, found: Term) -> str:
    """What a term is, in messages: its type, the node it stands for, or an aggregate."""
    if isinstance(found, EntityId):
        return f"node `{scope.bound[found.var].type_name}`"
    if isinstance(found, Column) or has_total(found):
        return "aggregate"
    return str(found.type)


def refuse_null(expr: ast.Expr) -> None:
    """`null` is no operand."""
    if isinstance(expr, ast.Null):
        raise_fault("T7", "null never compares; use `is null`", expr.at)


def _check_variable(scope: Scope, ref: ast.VarRef) -> Term:
    found = find_parameter(scope, ref)
    if found is not None:
        refuse_blob(found, ref.at)
        return found
    bound = scope.find(ref.name) if ref.name != ANONYMOUS else None
    if bound is None:
        raise_fault(None, f"variable `${ref.name}` is not bound", ref.at)
    if bound.kind == "edge":
        raise_fault(
            "T23", f"edge binding `${ref.name}` cannot be used bare; name one of its properties", ref.at
        )
    return EntityId(ref.name, STRING.with_nullable(bound.optional))


def check_property(scope: Scope, ref: ast.PropRef) -> Prop:
    """`$x.p`, of any type."""
    _, type_ = scope.property_type(ref)
    return Prop(ref.var, ref.name, type_)


def check_readable_property(scope: Scope, ref: ast.PropRef) -> Prop:
    """`$x.p` as a value; Blobs are not values."""
    found = check_property(scope, ref)
    if found.type.scalar is Scalar.BLOB:
        raise_fault(
            "T24",
            f"Blob property `${ref.var}.{ref.name}` is not available as a .gq read value; "
            "Blob values require a dedicated API",
            ref.at,
        )
    return found


# --- arithmetic, case, aggregates ----------------------------------------------------------------


def _check_number(scope: Scope, op: str, expr: ast.Expr) -> Term:
    refuse_null(expr)
    found = check_term(scope, expr)
    if isinstance(found, EntityId | Column) or not found.type.is_numeric:
        what = describe_term(scope, found) if isinstance(found, EntityId | Column) else found.type
        raise_fault("T26", f"{op} requires numeric operands, got {what}", expr.at)
    return found


def _check_arithmetic(scope: Scope, expr: ast.Arithmetic) -> Calc:
    left = _check_number(scope, expr.op, expr.left)
    right = _check_number(scope, expr.op, expr.right)
    exact = expr.op != "/" and left.type.scalar in INTEGERS and right.type.scalar in INTEGERS
    return Calc(expr.op, left, right, (I64 if exact else F64).with_nullable())


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
    if expr.fn in ("sum", "avg"):
        if is_node or not found.type.is_numeric:
            described = describe_term(scope, found)
            raise_fault("T8", f"{expr.fn} requires numeric type, got {described}", expr.argument.at)
        return Total(expr.fn, found, False, F64.with_nullable())
    if not is_node and not (found.type.is_numeric or found.type.is_text):
        raise_fault("T8", f"{expr.fn} requires numeric or string type, got {found.type}", expr.argument.at)
    return Total(expr.fn, found, False, found.type.with_nullable())


def _is_scalar(type_: ValueType) -> bool:
    return not type_.is_list and type_.scalar not in (Scalar.VECTOR, Scalar.BLOB)


# --- search --------------------------------------------------------------------------------------


def _check_search_argument(scope: Scope, expr: ast.Expr, code: str, what: str) -> Const | ParamRef:
    """A search argument: it must be known before any row is read."""
    refuse_null(expr)
    if isinstance(expr, ast.Literal | ast.ListLiteral):
        return make_constant(expr)
    if isinstance(expr, ast.VarRef):
        found = _check_variable(scope, expr)
        if isinstance(found, ParamRef):
            return found
    return raise_fault(code, f"{what} must be a literal or parameter", expr.at)


def check_distance(scope: Scope, expr: ast.Nearest) -> Distance:
    """`nearest($d.v, query)`."""
    ref = expr.target
    bound = scope.find(ref.var) if ref.var != ANONYMOUS else None
    if bound is not None and bound.kind == "edge":
        raise_fault(
            "T23", f"nearest cannot target edge binding `${ref.var}`; vectors belong to nodes", ref.at
        )
    bound, target = scope.property_type(ref, code="T15")
    if target.scalar is not Scalar.VECTOR:
        raise_fault(
            "T15",
            f"nearest requires a Vector property, got {bound.type_name}.{ref.name}: {target}",
            ref.at,
        )
    query = _check_search_argument(scope, expr.query, "T15", "nearest query")
    _check_nearest_query(target, query, expr.query.at)
    return Distance(Prop(ref.var, ref.name, target), query, F64.with_nullable())


def _check_nearest_query(target: ValueType, query: Const | ParamRef, at: Span) -> None:
    wanted = f"Vector({target.dimension})"
    mismatch = f"nearest vector dimension mismatch: property is {wanted}, "
    if isinstance(query, Const) and isinstance(query.value, tuple):
        if query.value and query.type.scalar not in NUMBERS:
            raise_fault("T15", f"nearest query must be {wanted} or String, got {query.type}", at)
        if len(query.value) != target.dimension:
            raise_fault("T15", f"{mismatch}query literal has {len(query.value)} elements", at)
    elif query.type.scalar is Scalar.VECTOR:
        if query.type.dimension != target.dimension:
            raise_fault("T15", f"{mismatch}query is Vector({query.type.dimension})", at)
    elif not query.type.is_text:
        raise_fault("T15", f"nearest query must be {wanted} or String, got {query.type}", at)


def check_relevance(scope: Scope, expr: ast.Bm25) -> Relevance:
    """`bm25($d.text, query)`."""
    field, query = _text_arguments(scope, "T20", "bm25", expr.field, expr.query)
    return Relevance(field, query, F64.with_nullable())


def check_text_match(scope: Scope, expr: ast.TextCall) -> TextMatch:
    """`search`, `match_text` or `fuzzy`."""
    code = "T20" if expr.fn == "match_text" else "T19"
    field, query = _text_arguments(scope, code, expr.fn, expr.field, expr.query)
    edits: Const | ParamRef | None = Const(DEFAULT_MAX_EDITS, I64) if expr.fn == "fuzzy" else None
    if expr.max_edits is not None:
        edits = _whole_number(scope, expr.max_edits, "T19", "fuzzy max_edits")
    return TextMatch(expr.fn, field, query, edits, ValueType(Scalar.BOOL, nullable=True))


def check_fusion(scope: Scope, expr: ast.Rrf) -> Fusion:
    """`rrf(first, second, k)`."""
    first, second = _check_ranking(scope, expr.first), _check_ranking(scope, expr.second)
    k: Const | ParamRef = Const(DEFAULT_RRF_K, I64)
    if expr.k is not None:
        k = _whole_number(scope, expr.k, "T21", "rrf k")
        if isinstance(k, Const) and isinstance(k.value, int) and k.value <= 0:
            raise_fault("T21", "rrf k must be greater than 0", expr.k.at)
    return Fusion(first, second, k)


def _check_ranking(scope: Scope, expr: ast.Nearest | ast.Bm25) -> Distance | Relevance:
    return check_distance(scope, expr) if isinstance(expr, ast.Nearest) else check_relevance(scope, expr)


def _whole_number(scope: Scope, expr: ast.Expr, code: str, what: str) -> Const | ParamRef:
    found = _check_search_argument(scope, expr, code, what)
    if found.type.is_list or found.type.scalar not in INTEGERS:
        raise_fault(code, f"{what} must be an integer scalar, got {found.type}", expr.at)
    return found


def _text_arguments(
    scope: Scope, code: str, fn: str, field_expr: ast.Expr, query_expr: ast.Expr
) -> tuple[Prop, Const | ParamRef]:
    field = _text_field(scope, code, fn, field_expr)
    query = _check_search_argument(scope, query_expr, code, f"{fn} query")
    if not query.type.is_text:
        raise_fault(code, f"{fn} query must be String, got {query.type}", query_expr.at)
    return field, query


def _text_field(scope: Scope, code: str, fn: str, expr: ast.Expr) -> Prop:
    refuse_null(expr)
    found = check_property(scope, expr) if isinstance(expr, ast.PropRef) else check_term(scope, expr)
    if not found.type.is_text or isinstance(found, EntityId):
        raise_fault(code, f"{fn} field must be String, got {describe_term(scope, found)}", expr.at)
    if not isinstance(found, Prop):
        raise_fault(code, f"{fn} field must be a String property", expr.at)
    if scope.bound[found.var].kind == "edge":
        raise_fault(
            "T23",
            f"{fn} cannot target edge property `${found.var}.{found.name}`; full text belongs to nodes",
            expr.at,
        )
    return found
