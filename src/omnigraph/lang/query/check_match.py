"""Typing of a `match` block: bindings, traversals, filters and nested blocks, in source order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from omnigraph.lang.query import ast
from omnigraph.lang.query.check_paths import bind_path, check_optional_paths, check_path, refuse_paths
from omnigraph.lang.query.check_terms import check_predicate
from omnigraph.lang.query.check_values import check_match_value
from omnigraph.lang.query.expressions import OPERATOR_WORDS
from omnigraph.lang.query.resolved import Bind, EdgeDirection, Maybe, NotBlock, Step, Traverse, Where
from omnigraph.lang.query.scope import ANONYMOUS, Bound, Poisoned, Scope, TypeFault, raise_fault
from omnigraph.lang.query.terms import Compare, Has, Predicate, Prop
from omnigraph.lang.schema.catalog import EdgeType
from omnigraph.lang.source import Problems, suggest_name
from omnigraph.lang.types import Scalar

_FILTER_WORDS = frozenset({*OPERATOR_WORDS, "in", "is", "and", "or"})


class MatchChecker:
    """Turns clauses into steps and remembers which types they read."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._fresh = 0
        self.read_nodes: set[str] = set()
        self.read_edges: set[str] = set()

    def check_clauses(self, scope: Scope, clauses: tuple[ast.Clause, ...]) -> tuple[Step, ...]:
        """Check clauses one after the other; a wrong one is reported and left out."""
        found = []
        for clause in chain.from_iterable(map(_split_conjunction, clauses)):
            try:
                found.append(self._check_clause(scope, clause))
            except TypeFault as wrong:
                self._report_fault(wrong)
                scope.poison(*_defined_variables(clause))
            except Poisoned:
                scope.poison(*_defined_variables(clause))
        return tuple(found)

    def _report_fault(self, wrong: TypeFault) -> None:
        self._problems.add(wrong.message, wrong.at, code=wrong.code, help=wrong.help)

    def _check_clause(self, scope: Scope, clause: ast.Clause) -> Step:
        match clause:
            case ast.Binding():
                return self._check_binding(scope, clause)
            case ast.Traversal():
                return self._check_traversal(scope, clause)
            case ast.Negation():
                return self._check_negation(scope, clause)
            case ast.OptionalBlock():
                return self._check_optional(scope, clause)
            case _:
                return Where(check_predicate(scope, clause))

    # --- bindings --------------------------------------------------------------------------------

    def _check_binding(self, scope: Scope, clause: ast.Binding) -> Bind:
        refuse_paths(scope, clause.at, clause.var)
        if clause.type_name not in scope.catalog.nodes:
            known = suggest_name(clause.type_name, scope.catalog.nodes)
            raise_fault("T1", f"unknown node type `{clause.type_name}`", clause.at, help=known)
        var = self._name_variable(clause.var)
        self._check_rebinding(scope, clause, var)
        if scope.find(var) is None:
            scope.bind(var, Bound("node", clause.type_name))
        self.read_nodes.add(clause.type_name)
        tests = []
        for match in clause.matches:
            try:
                tests.append(self._property_test(scope, clause, var, match))
            except TypeFault as wrong:
                self._report_fault(wrong)
        return Bind(var, clause.type_name, tuple(tests))

    def _name_variable(self, var: str) -> str:
        """The variable itself, or a new name that no text can spell for each `$_`."""
        if var != ANONYMOUS:
            return var
        self._fresh += 1
        return f"{ANONYMOUS}#{self._fresh}"

    @staticmethod
    def _check_rebinding(scope: Scope, clause: ast.Binding, var: str) -> None:
        known = scope.find(var)
        if known is None:
            return
        if known.kind == "edge":
            raise_fault(
                "T23",
                f"variable `${var}` is bound to edge type `{known.type_name}` "
                f"and cannot be rebound as node type `{clause.type_name}`",
                clause.at,
            )
        if known.type_name != clause.type_name:
            raise_fault(
                None,
                f"variable `${var}` already bound to type `{known.type_name}`, "
                f"cannot rebind to `{clause.type_name}`",
                clause.at,
            )

    @staticmethod
    def _property_test(scope: Scope, clause: ast.Binding, var: str, match: ast.PropertyMatch) -> Predicate:
        declared = scope.catalog.nodes[clause.type_name].properties.get(match.name)
        if declared is None:
            raise_fault("T2", f"type `{clause.type_name}` has no property `{match.name}`", match.at)
        if declared.type.scalar is Scalar.BLOB:
            raise_fault(
                "T3",
                f"blob property `{clause.type_name}.{match.name}` cannot be used in match patterns",
                match.at,
            )
        value = check_match_value(scope, match.name, declared.type, match.value)
        column = Prop(var, match.name, declared.type)
        return Has(column, value) if declared.type.is_list else Compare("=", column, value)

    # --- traversals ------------------------------------------------------------------------------

    def _check_traversal(self, scope: Scope, clause: ast.Traversal) -> Traverse:
        edge = scope.catalog.find_edge(clause.edge)
        if edge is None:
            help_ = suggest_name(clause.edge, (name[0].lower() + name[1:] for name in scope.catalog.edges))
            if clause.edge in _FILTER_WORDS:
                help_ = "between two bare variables this word is an edge name; compare properties instead"
            raise_fault("T4", f"unknown edge type `{clause.edge}`", clause.at, help=help_)
        refuse_paths(scope, clause.at, clause.left, clause.right, clause.edge_var)
        check_path(scope, clause)
        _check_edge_binding(scope, clause)
        minimum, maximum = _hop_bounds(clause)
        if clause.undirected and edge.source != edge.target:
            raise_fault(
                "T22",
                f"undirected traversal `<{edge.name}>` requires a same-endpoint-type edge, but "
                f"`{edge.name}: {edge.source} -> {edge.target}` is asymmetric; use the directional form",
                clause.at,
            )
        step = self._check_orientation(scope, clause, edge, minimum, maximum)
        if step.edge_var is not None:
            scope.bind(step.edge_var, Bound("edge", edge.name))
        if clause.path is not None:
            step = replace(step, path=bind_path(scope, clause.path, step))
        self.read_edges.add(edge.name)
        self.read_nodes.update((edge.source, edge.target))
        return step

    def _check_orientation(
        self, scope: Scope, clause: ast.Traversal, edge: EdgeType, minimum: int, maximum: int
    ) -> Traverse:
        left, right = self._name_variable(clause.left), self._name_variable(clause.right)
        direction = _find_direction(scope, clause, edge, left, right)
        forward = direction != "in"
        left_type, right_type = (edge.source, edge.target) if forward else (edge.target, edge.source)
        _check_endpoint(scope, clause, edge, left, left_type)
        if scope.find(left) is None:
            scope.bind(left, Bound("node", left_type))
        _check_endpoint(scope, clause, edge, right, right_type)
        if scope.find(right) is None:
            scope.bind(right, Bound("node", right_type))
        edge_var = None if clause.edge_var == ANONYMOUS else clause.edge_var
        return Traverse(left, left_type, right, right_type, edge.name, direction, minimum, maximum, edge_var)

    # --- blocks ----------------------------------------------------------------------------------

    def _check_negation(self, scope: Scope, clause: ast.Negation) -> NotBlock:
        if not _refers_outside(scope, clause.clauses):
            raise_fault("T9", "negation block must reference at least one outer-bound variable", clause.at)
        return NotBlock(self.check_clauses(scope.copy(), clause.clauses), tuple(scope.bound))

    def _check_optional(self, scope: Scope, clause: ast.OptionalBlock) -> Maybe:
        if not _refers_outside(scope, clause.clauses):
            raise_fault("T9", "optional block must reference at least one outer-bound variable", clause.at)
        inner, before = scope.copy(), frozenset(scope.bound)
        steps = self.check_clauses(inner, clause.clauses)
        adds = [var for var in inner.bound if var not in scope.bound]
        for var in adds:
            scope.bind(var, replace(inner.bound[var], optional=True))
        scope.poison(*inner.poisoned)
        check_optional_paths(scope, inner, clause, before)
        return Maybe(steps, tuple(adds))


def _split_conjunction(clause: ast.Clause) -> Iterator[ast.Clause]:
    """Conditions joined by `and` mean what they mean one after the other."""
    if isinstance(clause, ast.Junction) and clause.word == "and":
        for condition in clause.conditions:
            yield from _split_conjunction(condition)
    else:
        yield clause


def _check_edge_binding(scope: Scope, clause: ast.Traversal) -> None:
    var = clause.edge_var
    for end in (clause.left, clause.right):
        known = scope.find(end) if end != ANONYMOUS else None
        if known is not None and known.kind == "edge":
            raise_fault(
                "T23", f"edge binding `${end}` cannot be used as a traversal endpoint; bind a node", clause.at
            )
    if var is None:
        return
    if clause.hops is not None and (clause.hops.minimum, clause.hops.maximum) != (1, 1):
        raise_fault(
            "T23",
            f"edge binding `${var}` cannot be combined with traversal bounds; a path has many edges",
            clause.at,
        )
    if var == ANONYMOUS:
        return
    if var in (clause.left, clause.right):
        raise_fault(
            "T23", f"edge binding `${var}` cannot reuse a traversal endpoint name; choose another", clause.at
        )
    if scope.find(var) is not None:
        raise_fault(
            "T23", f"variable `${var}` is already bound; an edge binding needs a fresh name", clause.at
        )


def _hop_bounds(clause: ast.Traversal) -> tuple[int, int]:
    if clause.hops is None:
        return 1, 1
    low, high = clause.hops.minimum, clause.hops.maximum
    if low < 1:
        raise_fault("T15", "traversal min hop bound must be >= 1", clause.at)
    if high is None:
        raise_fault("T15", "unbounded traversal is disabled; use bounded traversal {min,max}", clause.at)
    if high < low:
        raise_fault("T15", f"invalid traversal bounds {{{low},{high}}}; max must be >= min", clause.at)
    return low, high


def _find_direction(
    scope: Scope, clause: ast.Traversal, edge: EdgeType, left: str, right: str
) -> EdgeDirection:
    """Which way to walk, seen from the left variable; the first bound end decides."""
    if clause.undirected:
        return "both"
    for var, near, far in ((left, edge.source, edge.target), (right, edge.target, edge.source)):
        known = scope.find(var)
        if known is None:
            continue
        if known.type_name == near:
            return "out"
        if known.type_name == far:
            return "in"
        raise_fault(
            "T5",
            f"variable `${var}` has type `{known.type_name}`, which is not an endpoint of edge "
            f"`{edge.name}: {edge.source} -> {edge.target}`",
            clause.at,
        )
    return "out"


def _check_endpoint(scope: Scope, clause: ast.Traversal, edge: EdgeType, var: str, expected: str) -> None:
    known = scope.find(var)
    if known is not None and known.type_name != expected:
        raise_fault(
            "T5",
            f"variable `${var}` has type `{known.type_name}` but edge `{edge.name}` expects `{expected}`",
            clause.at,
        )


def _defined_variables(clause: ast.Clause) -> tuple[str | None, ...]:
    match clause:
        case ast.Binding(var=var):
            return (var,)
        case ast.Traversal(left=left, right=right, edge_var=edge_var, path=path):
            return (left, right, edge_var, path)
        case ast.OptionalBlock(clauses=clauses):
            return tuple(name for inner in clauses for name in _defined_variables(inner))
    return ()


def _refers_outside(scope: Scope, clauses: tuple[ast.Clause, ...]) -> bool:
    outside = scope.bound.keys() | scope.paths.keys() | scope.poisoned
    return any(name in outside for clause in clauses for name in find_mentioned(clause, scope))


def find_mentioned(clause: ast.Clause, scope: Scope) -> Iterator[str]:
    """The variables a clause itself names, without those of blocks inside it."""
    match clause:
        case ast.Binding(var=var):
            yield var
        case ast.Traversal(left=left, right=right):
            yield left
            yield right
        case ast.Comparison(left=first, right=second):
            yield from _find_names(first, scope)
            yield from _find_names(second, scope)
        case ast.NullTest(argument=argument) | ast.InTest(argument=argument):
            yield from _find_names(argument, scope)
        case ast.TextFilter(call=call):
            yield from _find_names(call, scope)
        case ast.Junction(conditions=conditions):
            for condition in conditions:
                yield from find_mentioned(condition, scope)
        case ast.NotTest(condition=condition):
            yield from find_mentioned(condition, scope)


def _find_names(expr: ast.Expr, scope: Scope) -> Iterator[str]:
    match expr:
        case ast.PropRef(var=var):
            yield var
        case ast.VarRef(name=name) if name not in scope.parameters:
            yield name
        case ast.Arithmetic(left=left, right=right):
            yield from _find_names(left, scope)
            yield from _find_names(right, scope)
        case ast.Negate(argument=inner) | ast.CaseCall(argument=inner) | ast.Aggregate(argument=inner):
            yield from _find_names(inner, scope)
        case ast.DateCall(argument=inner) | ast.Interval(amount=inner) | ast.PathCall(argument=inner):
            yield from _find_names(inner, scope)
        case ast.Coalesce(arguments=arguments):
            for each in arguments:
                yield from _find_names(each, scope)
        case ast.CaseWhen():
            yield from _find_case_names(expr, scope)
        case ast.TextCall(field=field) | ast.Bm25(field=field):
            yield from _find_names(field, scope)
        case ast.Nearest(target=target):
            yield target.var


def _find_case_names(expr: ast.CaseWhen, scope: Scope) -> Iterator[str]:
    for branch in expr.branches:
        yield from find_mentioned(branch.condition, scope)
        yield from _find_names(branch.value, scope)
    if expr.otherwise is not None:
        yield from _find_names(expr.otherwise, scope)
