"""Typing of names: variables, parameters and properties."""

from __future__ import annotations

from omnigraph.lang.query import ast
from omnigraph.lang.query.check_values import find_parameter, refuse_blob
from omnigraph.lang.query.scope import ANONYMOUS, NULL_TEST, PATH_VALUES, Scope, raise_fault
from omnigraph.lang.query.terms import Column, EntityId, Prop, Term, has_total
from omnigraph.lang.types import STRING, Scalar


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
        raise_fault("T7", "null never compares; use `is null`", expr.at, help=NULL_TEST)


def check_variable(scope: Scope, ref: ast.VarRef) -> Term:
    """`$x`: a parameter, or the id of a node."""
    found = find_parameter(scope, ref)
    if found is not None:
        refuse_blob(found, ref.at)
        return found
    if scope.find_path(ref.name) is not None:
        raise_fault("T36", f"path `${ref.name}` is no value by itself", ref.at, PATH_VALUES)
    bound = scope.find(ref.name) if ref.name != ANONYMOUS else None
    if bound is None:
        raise_fault(None, f"variable `${ref.name}` is not bound", ref.at, scope.suggest_variable(ref.name))
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
