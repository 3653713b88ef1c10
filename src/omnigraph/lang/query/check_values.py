"""Typing of constants and of values meant for a property."""

from __future__ import annotations

from omnigraph.lang.query import ast
from omnigraph.lang.query.scope import Scope, raise_fault
from omnigraph.lang.query.terms import Const, ConstantValue, Instant, ParamRef, Term
from omnigraph.lang.source import Span
from omnigraph.lang.types import DATETIME, NUMBERS, STRING, Scalar, ValueType, are_compatible


def infer_list_type(literal: ast.ListLiteral) -> ValueType:
    """The type of a list literal: a list of its first item's type."""
    if not literal.items:
        return ValueType(Scalar.STRING, is_list=True)
    types = []
    for item in literal.items:
        if isinstance(item, ast.ListLiteral):
            raise_fault(None, "nested list literals are not supported", item.at)
        types.append(item.type)
    for item, found in zip(literal.items, types, strict=True):
        if not are_compatible(types[0], found):
            raise_fault(None, "list literal elements must share a compatible scalar type", item.at)
    # Numbers of both kinds may meet in a list; it is then a list of floats.
    scalar = Scalar.F64 if any(t.scalar is Scalar.F64 for t in types) else types[0].scalar
    return ValueType(scalar, is_list=True)


def make_list_constant(literal: ast.ListLiteral, type_: ValueType | None = None) -> Const:
    """A list literal as a constant, of its own type or of the vector type it is meant for."""
    own = infer_list_type(literal)
    values: list[ConstantValue] = [item.value for item in literal.items if isinstance(item, ast.Literal)]
    return Const(tuple(values), type_ or own)


def make_constant(literal: ast.Literal | ast.ListLiteral) -> Const:
    """A literal as a constant."""
    if isinstance(literal, ast.ListLiteral):
        return make_list_constant(literal)
    return Const(literal.value, literal.type)


def find_parameter(scope: Scope, ref: ast.VarRef) -> ParamRef | None:
    """The parameter behind `$x`, or None when there is none of that name."""
    type_ = scope.parameters.get(ref.name)
    if type_ is None:
        return None
    return ParamRef(ref.name, type_)


def refuse_blob(ref: ParamRef, at: Span) -> None:
    """Blob parameters may be assigned, never read."""
    if ref.type.scalar is Scalar.BLOB:
        raise_fault(
            "T24",
            f"Blob parameter `${ref.name}` is not available as a .gq read value; "
            "Blob values require a dedicated API",
            at,
        )


def check_literal(
    name: str, target: ValueType, value: ast.Literal | ast.ListLiteral, *, check_enum: bool
) -> Const:
    """A literal that is compared with or stored in a property of type `target`."""
    if target.scalar is Scalar.VECTOR and isinstance(value, ast.ListLiteral):
        return _vector_literal(name, target, value)
    found = make_constant(value)
    if target.scalar is Scalar.BLOB or not _is_assignable(target, found):
        raise_fault("T3", f"property `{name}` has type {target} but got {found.type}", value.at)
    if check_enum and target.enum_values:
        check_enum_values(name, target, value)
    return found


def _is_assignable(target: ValueType, found: Const) -> bool:
    if found.value == () and target.is_list:
        return True
    return are_compatible(target, found.type)


def check_enum_values(name: str, target: ValueType, value: ast.Literal | ast.ListLiteral) -> None:
    """A literal meant for an enum must be one of its values."""
    if isinstance(value, ast.Literal) and value.value not in target.enum_values:
        raise_fault(
            "T3",
            f"property `{name}` expects one of [{', '.join(target.enum_values)}], got '{value.value}'",
            value.at,
        )


def _vector_literal(name: str, target: ValueType, value: ast.ListLiteral) -> Const:
    own = infer_list_type(value)
    if value.items and own.scalar not in NUMBERS:
        raise_fault("T3", f"property `{name}` has type {target} but got {own}", value.at)
    if len(value.items) != target.dimension:
        raise_fault(
            "T3",
            f"property `{name}` has type {target.with_nullable(False)} "
            f"but got vector literal with {len(value.items)} elements",
            value.at,
        )
    return make_list_constant(value, target.with_nullable(False))


def check_typed(name: str, target: ValueType, value: ParamRef | Instant, at: Span) -> Term:
    """A parameter or `now()` that is compared with or stored in a property of type `target`."""
    same_length = value.type.dimension == target.dimension
    if not are_compatible(value.type, target) or not same_length:
        raise_fault("T7", f"cannot assign/compare {value.type} with {target} for property `{name}`", at)
    return value


def check_match_value(scope: Scope, name: str, target: ValueType, value: ast.Value) -> Term:
    """The value of a property match `{ name: value }`; a scalar against a list means membership."""
    found = _check_match_value(scope, name, target, value)
    if target.scalar is Scalar.VECTOR:
        raise_fault(
            "T3", f"list equality is not supported for property `{name}`; rank by `nearest`", value.at
        )
    return found


def _check_match_value(scope: Scope, name: str, target: ValueType, value: ast.Value) -> Term:
    match value:
        case ast.Null():
            raise_fault("T3", "null never matches; use `is null`", value.at)
        case ast.Literal() if target.is_list:
            if not are_compatible(target.item, value.type):
                raise_fault(
                    "T3",
                    f"property `{name}` has type {target} but membership match got {value.type}",
                    value.at,
                )
            return make_constant(value)
        case ast.ListLiteral() if target.is_list:
            raise_fault(
                "T3",
                f"list equality is not supported for property `{name}`; "
                "use a scalar value to match list membership",
                value.at,
            )
        case ast.Literal() | ast.ListLiteral():
            return check_literal(name, target, value, check_enum=True)
        case ast.Now():
            return _typed_match(name, target, Instant(), value.at)
        case ast.VarRef():
            found = find_parameter(scope, value)
            if found is None:
                raise_fault(
                    None,
                    f"variable `${value.name}` is not bound",
                    value.at,
                    help="property matches take constants and parameters; compare variables in a filter",
                )
            refuse_blob(found, value.at)
            return _typed_match(name, target, found, value.at)


def _typed_match(name: str, target: ValueType, value: ParamRef | Instant, at: Span) -> Term:
    if not target.is_list:
        return check_typed(name, target, value, at)
    if value.type.is_list:
        raise_fault(
            "T7",
            f"list equality is not supported for property `{name}`; "
            "use a scalar parameter for membership matching",
            at,
        )
    if not are_compatible(target.item, value.type):
        raise_fault(
            "T7", f"cannot compare {value.type} membership against {target} for property `{name}`", at
        )
    return value


def check_assigned_value(scope: Scope, name: str, target: ValueType, value: ast.Value) -> Term:
    """The value of an assignment `name: value`."""
    match value:
        case ast.Null():
            if not target.nullable:
                raise_fault("T3", f"property `{name}` is non-nullable but got null", value.at)
            return Const(None, target)
        case ast.Literal() | ast.ListLiteral():
            return check_literal(name, target, value, check_enum=True)
        case ast.Now():
            return check_typed(name, target, Instant(DATETIME), value.at)
        case ast.VarRef():
            found = find_mutation_parameter(scope, value)
            if target.scalar is Scalar.BLOB and found.type.with_nullable(False) == STRING:
                return found
            return check_typed(name, target, found, value.at)


def find_mutation_parameter(scope: Scope, ref: ast.VarRef) -> ParamRef:
    """The parameter behind `$x` in a mutation, where nothing else can be meant."""
    found = find_parameter(scope, ref)
    if found is None:
        raise_fault("T14", f"mutation variable `${ref.name}` must be a declared query parameter", ref.at)
    return found


def check_in_items(
    scope: Scope, argument: ValueType, items: ast.ListLiteral | ast.VarRef, at: Span
) -> Const | ParamRef:
    """The right side of `in`, checked against the type of the left side."""
    if isinstance(items, ast.VarRef):
        return _in_parameter(scope, argument, items, at)
    found = make_list_constant(items)
    if items.items and not _require_testable(argument, found.type):
        raise_fault("T28", f"cannot test {argument} in {found.type}", at)
    if not items.items and (argument.is_list or argument.scalar in (Scalar.VECTOR, Scalar.BLOB)):
        raise_fault("T28", f"cannot test {argument} in {found.type}", at)
    return found


def _in_parameter(scope: Scope, argument: ValueType, items: ast.VarRef, at: Span) -> ParamRef:
    found = find_parameter(scope, items)
    if found is None:
        bound = scope.find(items.name)
        if bound is None:
            raise_fault(None, f"variable `${items.name}` is not bound", items.at)
        raise_fault(
            "T28",
            f"in requires a list literal or list parameter, got {bound.kind} `{bound.type_name}`",
            items.at,
        )
    if not found.type.is_list:
        raise_fault("T28", f"in requires a list literal or list parameter, got {found.type}", items.at)
    refuse_blob(found, items.at)
    if not _require_testable(argument, found.type):
        raise_fault("T28", f"cannot test {argument} in {found.type}", at)
    return found


def _require_testable(argument: ValueType, items: ValueType) -> bool:
    return (
        not argument.is_list
        and argument.scalar not in (Scalar.VECTOR, Scalar.BLOB)
        and are_compatible(argument, items.item)
    )
