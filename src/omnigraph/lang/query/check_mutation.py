"""Typing of mutations."""

from __future__ import annotations

from typing import cast

from omnigraph.lang.query import ast
from omnigraph.lang.query.check_values import (
    check_assigned_value,
    check_in_items,
    check_literal,
    check_typed,
    find_mutation_parameter,
    refuse_blob,
)
from omnigraph.lang.query.resolved import (
    DeleteEdges,
    DeleteNodes,
    InsertEdge,
    InsertNode,
    ResolvedMutation,
    Statement,
    UpdateEdges,
    UpdateNodes,
)
from omnigraph.lang.query.scope import NULL_TEST, Scope, TypeFault, raise_fault
from omnigraph.lang.query.terms import (
    ROW,
    Compare,
    Const,
    InList,
    Instant,
    NullCheck,
    Predicate,
    Prop,
    RelationOp,
    Term,
)
from omnigraph.lang.schema.catalog import EdgeType, NodeType, Property
from omnigraph.lang.source import Problems, Span, suggest_name
from omnigraph.lang.types import STRING, Scalar, ValueType

_ENDPOINTS = {"from": "src", "to": "dst"}

# Stands for an endpoint whose value was refused; the mutation is then never used.
_NO_VALUE = Const(None, STRING)


def check_mutation(query: ast.Query, scope: Scope, problems: Problems) -> ResolvedMutation:
    """Check every statement, then that the query does not both write and delete."""
    assert isinstance(query.body, tuple)
    found: list[Statement] = []
    for item in query.body:
        try:
            found.append(_check_statement(scope, item, problems))
        except TypeFault as wrong:
            problems.add(wrong.message, wrong.at, code=wrong.code, help=wrong.help)
    if not problems.found:
        _check_one_direction(query.name, query.body, problems)
    return ResolvedMutation(tuple(found), scope.parameters)


def _check_one_direction(name: str, body: tuple[ast.Mutation, ...], problems: Problems) -> None:
    deletes = [item for item in body if isinstance(item, ast.Delete)]
    if deletes and len(deletes) < len(body):
        problems.add(
            f"mutation '{name}' on the same query mixes inserts/updates and deletes; split into separate "
            "mutations: (1) inserts and updates, then (2) deletes",
            deletes[0].at,
        )


def _check_statement(scope: Scope, item: ast.Mutation, problems: Problems) -> Statement:
    node = scope.catalog.nodes.get(item.type_name)
    edge = scope.catalog.edges.get(item.type_name)
    if node is None and edge is None:
        known = suggest_name(item.type_name, [*scope.catalog.nodes, *scope.catalog.edges])
        raise_fault("T10", f"unknown node/edge type `{item.type_name}`", item.at, help=known)
    match item:
        case ast.Insert():
            if node is not None:
                return _insert_node(scope, node, item, problems)
            return _insert_edge(scope, cast(EdgeType, edge), item, problems)
        case ast.Update():
            if node is not None:
                return _update_nodes(scope, node, item, problems)
            return _update_edges(scope, cast(EdgeType, edge), item, problems)
        case ast.Delete():
            if node is not None:
                return DeleteNodes(node.name, _check_where(scope, node, item.where))
            return DeleteEdges(item.type_name, _check_where(scope, cast(EdgeType, edge), item.where))


# --- assignments ---------------------------------------------------------------------------------


def _refuse_duplicates(owner: NodeType | EdgeType, assignments: tuple[ast.Assignment, ...]) -> None:
    seen = set()
    for item in assignments:
        name = item.name, _is_end(owner, item)
        if name in seen:
            raise_fault("T13", f"duplicate assignment for property `{item.name}`", item.at)
        seen.add(name)


def _is_end(owner: NodeType | EdgeType, item: ast.Assignment | ast.Predicate) -> bool:
    """Whether a name is an end of an edge; in backquotes it is a property."""
    return isinstance(owner, EdgeType) and item.name in _ENDPOINTS and not item.quoted


def _find_property(owner: NodeType | EdgeType, name: str, at: Span) -> Property:
    declared = owner.properties.get(name)
    if declared is None:
        names = ", ".join(owner.properties)
        known = f"it has: {names}" if names else "it has no properties"
        raise_fault("T11", f"type `{owner.name}` has no property `{name}`", at, help=known)
    return declared


def _check_values(
    scope: Scope, owner: NodeType | EdgeType, assignments: tuple[ast.Assignment, ...], problems: Problems
) -> tuple[dict[str, Term], dict[str, Term]]:
    """The assigned values by property, and those of ends by end; each wrong one is reported."""
    values: dict[str, Term] = {}
    ends: dict[str, Term] = {}
    for item in assignments:
        is_end = _is_end(owner, item)
        try:
            type_ = STRING if is_end else _find_property(owner, item.name, item.at).type
            found = check_assigned_value(scope, item.name, type_, item.value)
            (ends if is_end else values)[item.name] = found
        except TypeFault as wrong:
            problems.add(wrong.message, wrong.at, code=wrong.code, help=wrong.help)
    return values, ends


def _insert_node(scope: Scope, node: NodeType, item: ast.Insert, problems: Problems) -> InsertNode:
    _refuse_duplicates(node, item.assignments)
    values, _ = _check_values(scope, node, item.assignments, problems)
    _check_required(node, {assignment.name for assignment in item.assignments}, item)
    return InsertNode(node.name, tuple(values.items()), item.verb == "create")


def _insert_edge(scope: Scope, edge: EdgeType, item: ast.Insert, problems: Problems) -> InsertEdge:
    _refuse_duplicates(edge, item.assignments)
    values, ends = _check_values(scope, edge, item.assignments, problems)
    given = {one.name for one in item.assignments if _is_end(edge, one)}
    for end in _ENDPOINTS:
        if end not in given:
            raise_fault(
                "T12", f"{item.verb} for `{edge.name}` must provide required endpoint `{end}`", item.at
            )
    _check_required(edge, {one.name for one in item.assignments if not _is_end(edge, one)}, item)
    source, target = (ends.get(end, _NO_VALUE) for end in _ENDPOINTS)
    return InsertEdge(edge.name, source, target, tuple(values.items()), item.verb == "create")


def _check_required(owner: NodeType | EdgeType, assigned: set[str], item: ast.Insert) -> None:
    for declared in owner.properties.values():
        if declared.type.nullable or declared.name in assigned:
            continue
        if declared.embed is None:
            raise_fault(
                "T12",
                f"{item.verb} for `{owner.name}` must provide non-nullable property `{declared.name}`",
                item.at,
                help=_how_to_assign(owner, declared.name),
            )
        if declared.embed.source not in assigned:
            raise_fault(
                "T12",
                f"{item.verb} for `{owner.name}` must provide non-nullable property `{declared.name}` "
                f"or @embed source `{declared.embed.source}`",
                item.at,
            )


def _how_to_assign(owner: NodeType | EdgeType, name: str) -> str:
    if isinstance(owner, EdgeType) and name in _ENDPOINTS:
        return f"`{name}` is an end of the edge; the property is written in backquotes"
    return f"add `{name}: VALUE`, or declare it with `?` if it may be missing"


def _update_nodes(scope: Scope, node: NodeType, item: ast.Update, problems: Problems) -> UpdateNodes:
    _refuse_duplicates(node, item.assignments)
    values, _ = _check_values(scope, node, item.assignments, problems)
    for assignment in item.assignments:
        if assignment.name in node.key:
            raise_fault(
                None,
                f"cannot update @key property '{assignment.name}' — delete and re-insert instead",
                assignment.at,
            )
    return UpdateNodes(node.name, tuple(values.items()), _check_where(scope, node, item.where))


def _update_edges(scope: Scope, edge: EdgeType, item: ast.Update, problems: Problems) -> UpdateEdges:
    _refuse_duplicates(edge, item.assignments)
    for assignment in item.assignments:
        if _is_end(edge, assignment):
            raise_fault(
                "T16",
                f"cannot update the end `{assignment.name}` of `{edge.name}` — delete and re-insert instead",
                assignment.at,
                help=_how_to_assign(edge, assignment.name) if assignment.name in edge.properties else None,
            )
        if assignment.name in edge.key:
            raise_fault(
                None,
                f"cannot update @key property '{assignment.name}' — delete and re-insert instead",
                assignment.at,
            )
    values, _ = _check_values(scope, edge, item.assignments, problems)
    return UpdateEdges(edge.name, tuple(values.items()), _check_where(scope, edge, item.where))


# --- predicates ----------------------------------------------------------------------------------


def _check_where(scope: Scope, owner: NodeType | EdgeType, where: ast.Predicate) -> Predicate:
    column = _check_column(owner, where)
    match where:
        case ast.NullPredicate():
            return NullCheck(column, where.negated)
        case ast.InPredicate():
            items = where.items
            if isinstance(items, ast.VarRef):
                find_mutation_parameter(scope, items)
            return InList(column, check_in_items(scope, column.type, items, where.at))
        case ast.ComparePredicate():
            value = _check_compared_value(scope, where.name, column.type, where.value)
            return Compare(cast(RelationOp, where.op), column, value)


def _check_column(owner: NodeType | EdgeType, where: ast.Predicate) -> Prop:
    if _is_end(owner, where):
        return Prop(ROW, _ENDPOINTS[where.name], STRING)
    declared = _find_property(owner, where.name, where.at)
    if declared.type.scalar is Scalar.BLOB:
        raise_fault("T11", f"blob property `{where.name}` cannot be used in WHERE predicates", where.at)
    return Prop(ROW, declared.name, declared.type)


def _check_compared_value(scope: Scope, name: str, target: ValueType, value: ast.Value) -> Term:
    if target.is_list or target.scalar is Scalar.VECTOR:
        raise_fault(
            "T3",
            f"list equality is not supported for property `{name}`; select by another property",
            value.at,
        )
    match value:
        case ast.Null():
            raise_fault("T7", "null never compares; use `is null`", value.at, help=NULL_TEST)
        case ast.Literal() | ast.ListLiteral():
            return check_literal(name, target, value, check_enum=False)
        case ast.Now():
            return check_typed(name, target, Instant(), value.at)
        case ast.VarRef():
            found = find_mutation_parameter(scope, value)
            refuse_blob(found, value.at)
            return check_typed(name, target, found, value.at)
