"""Statements of a mutation made from Python values instead of text.

They are the statements that the checker makes of a query, and refuse the same things in the same words.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, cast, get_args

from omnigraph.errors import BadRequest, InvalidValue
from omnigraph.lang.query.resolved import (
    DeleteEdges,
    DeleteNodes,
    InsertEdge,
    InsertNode,
    UpdateEdges,
    UpdateNodes,
)
from omnigraph.lang.query.terms import ROW, Compare, Const, InList, NullCheck, Predicate, Prop, RelationOp
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.source import suggest_name
from omnigraph.lang.types import NUMBERS, STRING, Scalar, ValueType
from omnigraph.lang.values import convert, is_number

PropertyValues = Mapping[str, object]
Condition = tuple[str, str] | tuple[str, str, object]
"""`("age", ">", 90)`, `("role", "in", ["dev", "ops"])`, `("role", "is null")`, `("role", "is not null")`."""

_RELATIONS: tuple[str, ...] = get_args(RelationOp)
_NULL_CHECKS = {"is null": False, "is not null": True}
_ENDPOINTS = {"from": "src", "to": "dst"}
_FORMS = (
    "write (property, operator, value) with one of "
    f"{', '.join((*_RELATIONS, 'in'))}, or (property, 'is null') or (property, 'is not null')"
)

_MERE_NUMBERS = ("timedelta64", "datetime64[ns]", "datetime64[ps]", "datetime64[fs]", "datetime64[as]")
"""Types of NumPy whose values would be counts of some unit, and taken for counts of another."""


def insert_node(
    catalog: Catalog, type_name: str, values: PropertyValues, *, strict: bool = False
) -> InsertNode:
    """A node of a type."""
    node = catalog.nodes.get(type_name)
    if node is None:
        raise _no_such_type(catalog, type_name, "node")
    # Names are checked first: a misspelt one would otherwise be reported as missing.
    found = _make_constants(node, values)
    _require_all(node, values)
    return InsertNode(node.name, found, strict)


def insert_edge(
    catalog: Catalog, type_name: str, source: object, target: object, values: PropertyValues
) -> InsertEdge:
    """An edge of a type between two nodes given by their ids."""
    edge = catalog.edges.get(type_name)
    if edge is None:
        raise _no_such_type(catalog, type_name, "edge")
    found = _make_constants(edge, values)
    _require_all(edge, values)
    ends = _make_constant("from", STRING, source), _make_constant("to", STRING, target)
    return InsertEdge(edge.name, *ends, found)


def update_rows(
    catalog: Catalog, type_name: str, where: Condition, values: PropertyValues
) -> UpdateNodes | UpdateEdges:
    """New values for some properties of all nodes or edges of a type that pass a test."""
    node, edge = catalog.nodes.get(type_name), catalog.edges.get(type_name)
    if node is None and edge is None:
        raise _no_such_type(catalog, type_name, "node/edge")
    if not values:
        raise BadRequest(f"update of `{type_name}` sets nothing", remedy="name at least one property")
    if node is None:
        assert edge is not None
        _refuse_key(edge, values)
        return UpdateEdges(edge.name, _make_constants(edge, values), _make_predicate(edge, where))
    _refuse_key(node, values)
    return UpdateNodes(node.name, _make_constants(node, values), _make_predicate(node, where))


def _refuse_key(owner: NodeType | EdgeType, values: PropertyValues) -> None:
    for name in values:
        if name in owner.key:
            raise BadRequest(f"cannot update @key property '{name}' — delete and re-insert instead")


def delete_rows(catalog: Catalog, type_name: str, where: Condition) -> DeleteNodes | DeleteEdges:
    """All nodes or edges of a type that pass a test."""
    if type_name in catalog.nodes:
        return DeleteNodes(type_name, _make_predicate(catalog.nodes[type_name], where))
    if type_name in catalog.edges:
        return DeleteEdges(type_name, _make_predicate(catalog.edges[type_name], where))
    raise _no_such_type(catalog, type_name, "node/edge")


def plain_value(value: object) -> object:
    """A Python value in the form JSON would give it: dates as text, bytes as base64, arrays as lists."""
    match value:
        case datetime():
            if value.utcoffset() is None:
                raise InvalidValue(
                    f"the time {value.isoformat()} has no zone", remedy="give it one, such as `tzinfo=UTC`"
                )
            return value.isoformat()
        case date():
            return value.isoformat()
        case bytes() | bytearray() | memoryview():
            return f"base64:{base64.b64encode(value).decode()}"
        case list() | tuple():
            return [plain_value(item) for item in value]
    if str(getattr(value, "dtype", "")).startswith(_MERE_NUMBERS):
        raise InvalidValue(
            f"`{value}` of NumPy is no moment: it has no zone",
            remedy="give a `datetime` with a zone, or a text",
        )
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy, and what behaves like them
        return plain_value(cast(Any, value).tolist())
    return value


# --- values --------------------------------------------------------------------------------------


def _no_such_type(catalog: Catalog, name: str, kind: str) -> BadRequest:
    other = "insert_edge" if name in catalog.edges else "insert" if name in catalog.nodes else None
    known = [*(catalog.nodes if "node" in kind else ()), *(catalog.edges if "edge" in kind else ())]
    remedy = f"for `{name}` use `{other}`" if other else suggest_name(name, known)
    return BadRequest(f"unknown {kind} type `{name}`", remedy=remedy)


def _require_all(owner: NodeType | EdgeType, values: PropertyValues) -> None:
    for declared in owner.properties.values():
        if not declared.type.nullable and declared.name not in values:
            raise BadRequest(
                f"insert for `{owner.name}` must provide non-nullable property `{declared.name}`"
            )


def _make_constants(owner: NodeType | EdgeType, values: PropertyValues) -> tuple[tuple[str, Const], ...]:
    return tuple(
        (name, _make_constant(name, _find_type(owner, name), value)) for name, value in values.items()
    )


def _find_type(owner: NodeType | EdgeType, name: str) -> ValueType:
    declared = owner.properties.get(name)
    if declared is None:
        raise BadRequest(
            f"type `{owner.name}` has no property `{name}`", remedy=f"it has: {', '.join(owner.properties)}"
        )
    return declared.type


def _make_constant(name: str, type_: ValueType, value: object) -> Const:
    try:
        return Const(convert(plain_value(value), type_), type_)
    except InvalidValue as wrong:
        raise InvalidValue(f"property '{name}': {wrong.message}", remedy=wrong.remedy) from wrong


# --- tests ---------------------------------------------------------------------------------------


def _make_predicate(owner: NodeType | EdgeType, where: Condition) -> Predicate:
    match cast(object, where):  # a caller without a type checker may give anything
        case (str(name), str(op)) if op in _NULL_CHECKS:
            return NullCheck(_find_column(owner, name), _NULL_CHECKS[op])
        case (str(name), "in", value):
            column = _find_column(owner, name)
            return InList(column, _make_items(column, value))
        case (str(name), str(op), value) if op in _RELATIONS:
            column = _find_column(owner, name)
            return Compare(cast(RelationOp, op), column, _make_compared(column, value))
    raise BadRequest(f"{where!r} is not a test of rows", remedy=_FORMS)


def _find_column(owner: NodeType | EdgeType, name: str) -> Prop:
    if isinstance(owner, EdgeType) and name in _ENDPOINTS:
        return Prop(ROW, _ENDPOINTS[name], STRING)
    if len(name) > 2 and name[0] == name[-1] == "`":  # always a property, as in a query
        name = name[1:-1]
    type_ = _find_type(owner, name)
    if type_.scalar is Scalar.BLOB:
        raise BadRequest(f"blob property `{name}` cannot be used in WHERE predicates")
    return Prop(ROW, name, type_)


def _make_compared(column: Prop, value: object) -> Const:
    type_ = column.type.with_nullable(False)
    if type_.is_list or type_.scalar is Scalar.VECTOR:
        raise BadRequest(
            f"list equality is not supported for property `{column.name}`; select by another property"
        )
    if value is None:
        raise BadRequest("null never compares; use `is null`")
    found = plain_value(value)
    if type_.scalar in NUMBERS and is_number(found):
        return Const(found, type_)  # of whatever kind: numbers compare by value
    return _make_constant(column.name, type_, found)


def _make_items(column: Prop, value: object) -> Const:
    found = plain_value(value)
    if not isinstance(found, list):
        raise BadRequest(f"in requires a list, got {type(value).__name__}")
    items = tuple(cast(Any, _make_compared(column, item).value) for item in found)
    return Const(items, ValueType(column.type.scalar, is_list=True))
