"""Typing of a read: what is matched, returned, ordered and cut."""

from __future__ import annotations

from omnigraph.lang.query import ast
from omnigraph.lang.query.check_match import MatchChecker
from omnigraph.lang.query.check_terms import check_term
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
from omnigraph.lang.types import INTEGERS, ValueType

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
    ranking, order = returns.check_order(outputs)
    limit = returns.check_count("limit", read.limit)
    offset = returns.check_count("offset", read.offset)
    named = {var: bound.kind for var, bound in scope.bound.items() if not var.startswith(f"{ANONYMOUS}#")}
    return ResolvedRead(
        steps=steps,
        variables=named,
        outputs=outputs,
        distinct=read.distinct,
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
                self._returned.append((projection, self._check_output(projection)))
            except TypeFault as wrong:
                self._report_fault(wrong)
            except Poisoned:
                continue
        outputs = tuple(output for _, output in self._returned)
        if any(has_total(output.term) for output in outputs):
            self._check_groups()
        return outputs

    def _check_output(self, projection: ast.Projection) -> Output:
        found = check_term(self._scope, projection.expr)
        name = projection.alias or runtime_name(found)
        return Output(name, projection.alias or _label_column(found), found, projection.alias is not None)

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


def _check_outside_aggregates(projection: ast.Projection, found: Part, keys: set[Term]) -> None:
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
        case CaseFold(fn=fn) | TextMatch(fn=fn) | DatePart(part=fn):
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
