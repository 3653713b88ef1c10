"""Typing of searches: `nearest`, `bm25`, `rrf` and the tests of texts."""

from __future__ import annotations

from omnigraph.lang.query import ast
from omnigraph.lang.query.check_names import check_variable, describe_term, refuse_null
from omnigraph.lang.query.check_values import make_constant
from omnigraph.lang.query.scope import ANONYMOUS, Scope, raise_fault
from omnigraph.lang.query.terms import (
    Const,
    Distance,
    EntityId,
    Fusion,
    ParamRef,
    Prop,
    Relevance,
    Term,
    TextMatch,
)
from omnigraph.lang.schema.catalog import Language
from omnigraph.lang.source import Span
from omnigraph.lang.types import F64, I64, INTEGERS, NUMBERS, Scalar, ValueType

DEFAULT_RRF_K = 60
DEFAULT_MAX_EDITS = 2


def _check_search_argument(scope: Scope, expr: ast.Expr, code: str, what: str) -> Const | ParamRef:
    """A search argument: it must be known before any row is read."""
    refuse_null(expr)
    if isinstance(expr, ast.Literal | ast.ListLiteral):
        return make_constant(expr)
    if isinstance(expr, ast.VarRef):
        found = check_variable(scope, expr)
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
    metric = scope.catalog.nodes[bound.type_name].properties[ref.name].metric
    return Distance(Prop(ref.var, ref.name, target), query, F64.with_nullable(), metric)


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


def check_relevance(scope: Scope, expr: ast.Bm25, field: Term) -> Relevance:
    """`bm25($d.text, query)`."""
    searched, query = _text_arguments(scope, "T20", "bm25", field, expr)
    return Relevance(searched, query, F64.with_nullable(), _language_of(scope, searched))


def check_text_match(scope: Scope, expr: ast.TextCall, field: Term) -> TextMatch:
    """`search`, `match_text` or `fuzzy`."""
    code = "T20" if expr.fn == "match_text" else "T19"
    searched, query = _text_arguments(scope, code, expr.fn, field, expr)
    edits: Const | ParamRef | None = Const(DEFAULT_MAX_EDITS, I64) if expr.fn == "fuzzy" else None
    if expr.max_edits is not None:
        edits = _whole_number(scope, expr.max_edits, "T19", "fuzzy max_edits")
    found = ValueType(Scalar.BOOL, nullable=True)
    return TextMatch(expr.fn, searched, query, edits, found, _language_of(scope, searched))


def _language_of(scope: Scope, searched: Prop) -> Language:
    return scope.catalog.nodes[scope.bound[searched.var].type_name].properties[searched.name].language


def check_fusion(
    scope: Scope, expr: ast.Rrf, first: Distance | Relevance, second: Distance | Relevance
) -> Fusion:
    """`rrf(first, second, k)`."""
    k: Const | ParamRef = Const(DEFAULT_RRF_K, I64)
    if expr.k is not None:
        k = _whole_number(scope, expr.k, "T21", "rrf k")
        if isinstance(k, Const) and isinstance(k.value, int) and k.value <= 0:
            raise_fault("T21", "rrf k must be greater than 0", expr.k.at)
    return Fusion(first, second, k)


def _whole_number(scope: Scope, expr: ast.Expr, code: str, what: str) -> Const | ParamRef:
    found = _check_search_argument(scope, expr, code, what)
    if found.type.is_list or found.type.scalar not in INTEGERS:
        raise_fault(code, f"{what} must be an integer scalar, got {found.type}", expr.at)
    return found


def _text_arguments(
    scope: Scope, code: str, fn: str, field: Term, expr: ast.Bm25 | ast.TextCall
) -> tuple[Prop, Const | ParamRef]:
    searched = _text_field(scope, code, fn, field, expr.field.at)
    query = _check_search_argument(scope, expr.query, code, f"{fn} query")
    if not query.type.is_text:
        raise_fault(code, f"{fn} query must be String, got {query.type}", expr.query.at)
    return searched, query


def _text_field(scope: Scope, code: str, fn: str, found: Term, at: Span) -> Prop:
    if not found.type.is_text or isinstance(found, EntityId):
        raise_fault(code, f"{fn} field must be String, got {describe_term(scope, found)}", at)
    if not isinstance(found, Prop):
        raise_fault(code, f"{fn} field must be a String property", at)
    if scope.bound[found.var].kind == "edge":
        raise_fault(
            "T23",
            f"{fn} cannot target edge property `${found.var}.{found.name}`; full text belongs to nodes",
            at,
        )
    return found
