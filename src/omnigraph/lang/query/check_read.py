"""Typing of a read: what is matched, returned, ordered and cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from omnigraph.lang.query import ast
from omnigraph.lang.query.check_match import MatchChecker
from omnigraph.lang.query.check_names import check_property
from omnigraph.lang.query.check_terms import check_predicate, check_term
from omnigraph.lang.query.printer import print_expr
from omnigraph.lang.query.resolved import Count, OrderBy, Output, ResolvedRead
from omnigraph.lang.query.scope import ANONYMOUS, Poisoned, Scope, TypeFault, raise_fault
from omnigraph.lang.query.terms import (
    Calc,
    CaseFold,
    CaseWhen,
    Coalesce,
    Column,
    Const,
    DateCast,
    DatePart,
    Distance,
    Elapsed,
    EntityId,
    Fusion,
    Instant,
    Minus,
    ParamRef,
    Part,
    PathPart,
    Predicate,
    Prop,
    Ranking,
    Relevance,
    Shift,
    Term,
    TextMatch,
    Total,
    children,
    has_total,
    variables,
    walk,
)
from omnigraph.lang.source import Problems
from omnigraph.lang.types import INTEGERS, Scalar, ValueType

_CALL_NAMES: dict[type, str] = {
    Distance: "nearest",
    Relevance: "bm25",
    Fusion: "rrf",
    Coalesce: "coalesce",
    CaseWhen: "case",
}


def check_read(read: ast.Read, scope: Scope, problems: Problems) -> ResolvedRead:
    """Check a read and report what is wrong with it to `problems`."""
    matcher = MatchChecker(problems)
    steps = matcher.check_clauses(scope, read.match)
    returns = _ReturnChecker(read, scope, problems)
    outputs = returns.check_outputs()
    having = returns.check_having(outputs)
    ranking, order = returns.check_order(outputs)
    limit = returns.check_count("limit", read.limit)
    offset = returns.check_count("offset", read.offset)
    named = {var: bound.kind for var, bound in scope.bound.items() if not var.startswith(f"{ANONYMOUS}#")}
    return ResolvedRead(
        steps=steps,
        variables=named,
        outputs=outputs,
        distinct=read.distinct,
        having=having,
        ranking=ranking,
        order=order,
        limit=limit,
        offset=offset,
        parameters=scope.parameters,
        read_nodes=tuple(sorted(matcher.read_nodes)),
        read_edges=tuple(sorted(matcher.read_edges)),
    )


class _ReturnChecker:
    def __init__(self, read: ast.Read, scope: Scope, problems: Problems) -> None:
        self._read = read
        self._scope = scope
        self._problems = problems
        self._returned: list[tuple[ast.Projection, Output]] = []

    def _report_fault(self, wrong: TypeFault) -> None:
        self._problems.add(wrong.message, wrong.at, code=wrong.code, help=wrong.help)

    # --- return ----------------------------------------------------------------------------------

    def check_outputs(self) -> tuple[Output, ...]:
        for projection in self._read.returns:
            try:
                self._returned += ((projection, output) for output in self._check_projection(projection))
            except TypeFault as wrong:
                self._report_fault(wrong)
            except Poisoned:
                continue
        outputs = tuple(output for _, output in self._returned)
        if any(has_total(output.term) for output in outputs):
            self._check_groups()
        return outputs

    def _check_projection(self, projection: ast.Projection) -> list[Output]:
        if isinstance(projection.expr, ast.AllProperties):
            return self._list_properties(projection.expr)
        found = check_term(self._scope, projection.expr)
        name = projection.alias or runtime_name(found)
        return [Output(name, projection.alias or _label_column(found), found, projection.alias is not None)]

    def _list_properties(self, expr: ast.AllProperties) -> list[Output]:
        """A column for each property that is a value."""
        bound = self._scope.find(expr.var) if expr.var != ANONYMOUS else None
        if bound is None:
            hint = self._scope.suggest_variable(expr.var)
            raise_fault("T6", f"variable `${expr.var}` is not bound", expr.at, hint)
        catalog = self._scope.catalog
        owner = (catalog.nodes if bound.kind == "node" else catalog.edges)[bound.type_name]
        refs = [ast.PropRef(expr.var, name, at=expr.at) for name in owner.properties]
        found = [check_property(self._scope, ref) for ref in refs]
        values = [prop for prop in found if prop.type.scalar is not Scalar.BLOB]
        if not values:
            raise_fault("T6", f"`{bound.type_name}` has no property that is a value", expr.at)
        return [Output(runtime_name(prop), prop.name, prop, False) for prop in values]

    # --- having ----------------------------------------------------------------------------------

    def check_having(self, outputs: tuple[Output, ...]) -> tuple[Predicate, ...]:
        found = []
        for condition in self._read.having:
            try:
                found.append(self._check_having(condition, outputs))
            except TypeFault as wrong:
                self._report_fault(wrong)
            except Poisoned:
                continue
        return tuple(found)

    def _check_having(self, condition: ast.Condition, outputs: tuple[Output, ...]) -> Predicate:
        if not any(has_total(output.term) for output in outputs):
            help_ = "return an aggregate, or put the condition into `match`"
            raise_fault("T35", "having selects groups, and nothing is aggregated", condition.at, help=help_)
        named = {each.alias: each.expr for each in self._read.returns if each.alias is not None}
        test = check_predicate(self._scope, _replace_aliases(condition, named), totals=True)
        keys = {output.term for output in outputs if not has_total(output.term)}
        _check_outside_aggregates(condition, test, keys)
        return test

    def _check_groups(self) -> None:
        keys = {output.term for _, output in self._returned if not has_total(output.term)}
        for projection, output in self._returned:
            try:
                if not has_total(output.term):
                    _check_group_key(projection, output.term)
                else:
                    _check_outside_aggregates(projection, output.term, keys)
            except TypeFault as wrong:
                self._report_fault(wrong)

    # --- order -----------------------------------------------------------------------------------

    def check_order(self, outputs: tuple[Output, ...]) -> tuple[Ranking | None, tuple[OrderBy, ...]]:
        terms = self._order_terms()
        if terms is None:
            return None, ()
        try:
            ranking = self._find_ranking(terms, outputs)
            self._check_returned_rrf(ranking)
            if self._read.distinct:
                self._check_distinct_order(terms, outputs, ranking)
        except TypeFault as wrong:
            self._report_fault(wrong)
            return None, ()
        return ranking, terms

    def _order_terms(self) -> tuple[OrderBy, ...] | None:
        """The order terms, or None when one of them is wrong."""
        found = []
        for item in self._read.order:
            try:
                found.append(
                    OrderBy(check_term(self._scope, item.expr), item.direction, print_expr(item.expr))
                )
            except TypeFault as wrong:
                self._report_fault(wrong)
            except Poisoned:
                continue
        return tuple(found) if len(found) == len(self._read.order) else None

    def _find_ranking(self, terms: tuple[OrderBy, ...], outputs: tuple[Output, ...]) -> Ranking | None:
        """The ranking of the first order term, itself or behind the alias of a returned one."""
        scores = [_find_score(item.term, outputs) for item in terms]
        for item, score in zip(self._read.order, scores, strict=True):
            if score is not None:
                self._check_limit(item, score)
        self._check_nearest_aliases(scores)
        found = scores[0] if scores else None
        if found is None:
            return None
        item = self._read.order[0]
        if isinstance(item.expr, ast.AliasRef):
            _check_best_first(item, found)
        for var in sorted(variables(found)):
            if self._scope.bound[var].optional:
                raise_fault("T25", f"ranking variable `${var}` is optional", item.at)
        return found

    def _check_limit(self, item: ast.OrderTerm, ranking: Ranking) -> None:
        if self._read.limit is not None or isinstance(ranking, Relevance):
            return
        if isinstance(ranking, Distance):
            raise_fault("T17", "nearest ordering requires a limit clause", item.at)
        raise_fault("T21", "rrf ordering requires a limit clause", item.at)

    def _check_nearest_aliases(self, scores: list[Ranking | None]) -> None:
        """Only the alias that is the ranking itself may stand beside nearest."""
        aliases = [
            item
            for position, (item, score) in enumerate(zip(self._read.order, scores, strict=True))
            if isinstance(item.expr, ast.AliasRef) and (position > 0 or score is None)
        ]
        if aliases and any(isinstance(score, Distance) for score in scores):
            message = "alias-based ordering is not supported together with nearest in phase 1"
            raise_fault("T18", message, aliases[0].at)

    def _check_returned_rrf(self, ranking: Ranking | None) -> None:
        for projection, output in self._returned:
            for part in walk(output.term):
                if isinstance(part, Fusion) and part != ranking:
                    raise_fault(
                        "T31", "rrf can be returned only when it is the first order term", projection.at
                    )

    def _check_distinct_order(
        self, terms: tuple[OrderBy, ...], outputs: tuple[Output, ...], ranking: Ranking | None
    ) -> None:
        returned = {output.term for output in outputs}
        for position, (item, found) in enumerate(zip(self._read.order, terms, strict=True)):
            is_ranking = position == 0 and ranking is not None
            if not (is_ranking or isinstance(found.term, Column) or found.term in returned):
                raise_fault("T29", f"distinct order term `{found.source}` is not returned", item.at)

    # --- limit, offset ---------------------------------------------------------------------------

    def check_count(self, word: str, value: int | ast.VarRef | None) -> Count | None:
        if not isinstance(value, ast.VarRef):
            return value
        type_ = self._scope.parameters.get(value.name)
        if type_ is None or type_.nullable or type_.is_list or type_.scalar not in INTEGERS:
            message = f"T30: {word} `${value.name}` must be a non-nullable integer parameter"
            self._problems.add(message, value.at, code="T30")
            return None
        return ParamRef(value.name, type_)


def find_output(outputs: tuple[Output, ...], name: str) -> Output | None:
    """The returned column of this name."""
    return next((output for output in outputs if output.name == name), None)


def _find_score(found: Term, outputs: tuple[Output, ...]) -> Ranking | None:
    """The rank call an order term is, or is the alias of."""
    if isinstance(found, Column):
        aliased = find_output(outputs, found.name)
        found = aliased.term if aliased is not None else found
    return found if isinstance(found, Distance | Relevance | Fusion) else None


def _check_best_first(item: ast.OrderTerm, ranking: Ranking) -> None:
    best = ("asc", None) if isinstance(ranking, Distance) else ("desc",)
    if item.direction not in best:
        name = _CALL_NAMES[type(ranking)]
        raise_fault("T31", f"{name} ranks best first; write `{print_expr(item.expr)} {best[0]}`", item.at)


def _check_group_key(projection: ast.Projection, found: Term) -> None:
    if not any(isinstance(part, Prop | EntityId | ParamRef) for part in walk(found)):
        raise_fault(
            "T9",
            "non-aggregate expressions in an aggregate query must be property accesses or variables",
            projection.at,
        )


Tree = TypeVar("Tree", bound=ast.Syntax)


def _replace_aliases(part: Tree, named: Mapping[str, ast.Expr | ast.AllProperties]) -> Tree:
    """The same syntax with what each name of a column stands for in its place."""
    changed: dict[str, Any] = {}
    for field in fields(part):
        held = getattr(part, field.name)
        if isinstance(held, tuple) and field.name != "at":
            changed[field.name] = tuple(
                _replace_alias(each, named) if isinstance(each, ast.Syntax) else each for each in held
            )
        elif isinstance(held, ast.Syntax):
            changed[field.name] = _replace_alias(held, named)
    return replace(part, **changed) if changed else part


def _replace_alias(part: ast.Syntax, named: Mapping[str, ast.Expr | ast.AllProperties]) -> ast.Syntax:
    if not isinstance(part, ast.AliasRef):
        return _replace_aliases(part, named)
    if part.name not in named:
        raise_fault(
            "T35",
            f"no column is called `{part.name}`",
            part.at,
            help=f"columns are called: {', '.join(named)}" if named else "name one by `as`",
        )
    return replace(named[part.name], at=part.at)


def _check_outside_aggregates(projection: ast.Syntax, found: Part, keys: set[Term]) -> None:
    if found in keys or isinstance(found, Total):
        return
    if isinstance(found, Prop | EntityId):
        written = f"${found.var}.{found.name}" if isinstance(found, Prop) else f"${found.var}"
        raise_fault(
            "T9",
            f"`{written}` beside an aggregate must be returned as a column of its own to group by it",
            projection.at,
        )
    for child in children(found):
        _check_outside_aggregates(projection, child, keys)


def runtime_name(found: Term) -> str:
    """The name of an unaliased column in a result."""
    match found:
        case Prop(var=var, name=name):
            return f"{var}.{name}"
        case EntityId(var=var):
            return var
        case ParamRef(name=name) | Column(name=name):
            return name
        case Const():
            return "literal"
        case Instant():
            return "__nanograph_now"
        case Total(argument=argument):
            return runtime_name(argument)
        case Calc() | Minus() | Shift() | Elapsed():
            return "expr"
    return _call_name(found)


def _call_name(found: Term) -> str:
    match found:
        case CaseFold(fn=fn) | TextMatch(fn=fn) | DatePart(part=fn) | PathPart(fn=fn):
            return fn
        case DateCast(type=type_):
            return type_.scalar.lower()
    return _CALL_NAMES[type(found)]


def _label_column(found: Term) -> str:
    """The name of an unaliased column in the operation descriptor."""
    match found:
        case Prop(name=name):
            return name
        case Instant():
            return "now"
        case Total(fn=fn):
            return fn
    return runtime_name(found)


def output_type(output: Output, outputs: tuple[Output, ...]) -> ValueType:
    """The type of a column; one that repeats another column by its alias takes its type from there."""
    if isinstance(output.term, Column):
        named = find_output(outputs, output.term.name)
        if named is not None and named is not output and not isinstance(named.term, Column):
            return named.term.type
    return output.term.type
