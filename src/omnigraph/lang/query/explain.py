"""Plans and terms as text a person can read."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.lang.query import plan as p
from omnigraph.lang.query.printer import format_float
from omnigraph.lang.query.resolved import Count
from omnigraph.lang.query.terms import (
    ROW,
    AllOf,
    AnyOf,
    Calc,
    CaseFold,
    CaseWhen,
    Coalesce,
    Column,
    Compare,
    Const,
    DateCast,
    DatePart,
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
    PathPart,
    PatternTest,
    Predicate,
    Prop,
    Relevance,
    Shift,
    ShortestPath,
    Term,
    TextMatch,
    TextTest,
    Total,
)
from omnigraph.lang.tokens import escape

_ARROWS = {"out": ("-[", "]->"), "in": ("<-[", "]-"), "both": ("-[", "]-")}


def explain(plan: p.Plan) -> str:
    """The plan as an indented tree, the result on top and what feeds it below."""
    return "\n".join(_render_lines(plan, 0))


def _render_lines(plan: p.Plan, depth: int) -> Iterator[str]:
    yield f"{'  ' * depth}{_render_headline(plan)}"
    for role, below in p.inputs(plan):
        if role in ("input", "left", "right"):
            yield from _render_lines(below, depth + 1)
        else:
            yield f"{'  ' * (depth + 1)}{role}:"
            yield from _render_lines(below, depth + 2)


def _render_headline(plan: p.Plan) -> str:
    name = type(plan).__name__
    details = _render_details(plan)
    return f"{name} {details}" if details else name


def _render_details(plan: p.Plan) -> str:
    match plan:
        case p.Scan():
            return f"${plan.var}: {plan.type_name}{_render_where(plan.where)}"
        case p.Outer():
            return ", ".join(f"${var}" for var in plan.variables)
        case p.Expand():
            return _render_expand(plan)
        case p.Filter():
            return " and ".join(show_predicate(test) for test in plan.where)
        case p.OptionalJoin():
            return f"adds {', '.join(f'${var}' for var in plan.adds)}" if plan.adds else ""
        case p.Search() | p.Fuse():
            return f"by {show_term(plan.by)}{_render_cut(plan.limit, plan.offset)}"
        case p.Project():
            return _render_columns(plan.columns)
        case p.Limit():
            return _render_cut(plan.limit, plan.offset).strip()
        case _:
            return _render_grouping(plan)


def _render_grouping(plan: p.Plan) -> str:
    match plan:
        case p.Order():
            ties = f"; ties {', '.join(f'${var}' for var in plan.ties)}" if plan.ties else ""
            return f"{_render_keys(plan.keys)}{ties}"
        case p.Sort():
            return _render_keys(plan.keys)
        case p.Aggregate():
            keys = f" by {', '.join(show_term(key) for key in plan.keys)}" if plan.keys else ""
            having = f" having {' and '.join(map(show_predicate, plan.having))}" if plan.having else ""
            return f"{_render_columns(plan.columns)}{keys}{having}"
    return ""


def _render_where(tests: tuple[Predicate, ...]) -> str:
    return f" where {' and '.join(show_predicate(test) for test in tests)}" if tests else ""


def _render_expand(plan: p.Expand) -> str:
    hops = "" if (plan.minimum, plan.maximum) == (1, 1) else f"{{{plan.minimum},{plan.maximum}}}"
    edge_var = f"${plan.edge_var}: " if plan.edge_var else ""
    before, after = _ARROWS[plan.direction]
    verb = f"{'test ' if plan.closes else ''}{'' if plan.path is None else f'${plan.path.name} = shortest '}"
    edge = f"{before}{edge_var}{plan.edge_type}{hops}{after}"
    return f"{verb}${plan.source} {edge} ${plan.target}: {plan.target_type}"


def _render_cut(limit: Count | None, offset: Count | None) -> str:
    counts = (("limit", limit), ("offset", offset))
    return "".join(f" {word} {_render_count(count)}" for word, count in counts if count is not None)


def _render_count(count: Count) -> str:
    return str(count) if isinstance(count, int) else show_term(count)


def _render_columns(columns: tuple[p.Output, ...]) -> str:
    return ", ".join(f"{show_term(column.term)} as {column.name}" for column in columns)


def _render_keys(keys: tuple[p.Key, ...]) -> str:
    return ", ".join(f"{show_term(key.term)}{' desc' if key.descending else ''}" for key in keys)


# --- terms ---------------------------------------------------------------------------------------


def show_predicate(test: Predicate) -> str:
    """A predicate in the notation of the query language."""
    match test:
        case Compare(op=op, left=left, right=right):
            return f"{show_term(left)} {op} {show_term(right)}"
        case TextTest(op=op, text=text, part=part):
            return f"{show_term(text)} {op} {show_term(part)}"
        case PatternTest(op=pattern_op, text=text, pattern=pattern):
            return f"{show_term(text)} {pattern_op} {show_term(pattern)}"
        case Has(items=items, item=item):
            return f"{show_term(items)} has {show_term(item)}"
        case NullCheck(argument=argument, negated=negated):
            return f"{show_term(argument)} is {'not ' if negated else ''}null"
        case InList(argument=argument, items=values):
            return f"{show_term(argument)} in {show_term(values)}"
        case Holds(match=match):
            return show_term(match)
        case AllOf(tests=tests):
            return f"({' and '.join(map(show_predicate, tests))})"
        case AnyOf(tests=tests):
            return f"({' or '.join(map(show_predicate, tests))})"
        case Not(test=inner):
            return f"not ({show_predicate(inner)})"


def show_term(term: Term) -> str:
    """A term in the notation of the query language."""
    match term:
        case Const(value=value):
            return _render_constant(value)
        case ParamRef(name=name):
            return f"${name}"
        case Instant():
            return "now()"
        case Prop(var=var, name=name):
            return name if var == ROW else f"${var}.{name}"
        case EntityId(var=var):
            return f"${var}"
        case Column(name=name):
            return name
        case Calc(op=op, left=left, right=right):
            return f"({show_term(left)} {op} {show_term(right)})"
        case Minus(argument=argument):
            return f"-{show_term(argument)}"
        case _:
            return _show_call(term)


def _show_call(term: Term) -> str:
    match term:
        case CaseFold(fn=fn, argument=argument):
            return f"{fn}({show_term(argument)})"
        case DatePart(part=part, argument=argument):
            return f"{part}({show_term(argument)})"
        case DateCast(argument=argument, type=type_):
            return f"{type_.scalar.lower()}({show_term(argument)})"
        case Shift(argument=argument, amount=amount, unit=unit, backward=backward):
            return f"({show_term(argument)} {'-' if backward else '+'} {unit}({show_term(amount)}))"
        case Elapsed(left=left, right=right):
            return f"({show_term(left)} - {show_term(right)})"
        case PathPart(fn=fn, path=path):
            return f"{fn}({show_term(path)})"
        case ShortestPath(name=name):
            return f"${name}"
        case Coalesce(arguments=arguments):
            return f"coalesce({', '.join(map(show_term, arguments))})"
        case CaseWhen():
            return _show_case(term)
        case _:
            return _show_aggregate_or_search(term)


def _show_case(term: CaseWhen) -> str:
    pairs = zip(term.tests, term.values, strict=True)
    branches = (f"when {show_predicate(test)} then {show_term(value)}" for test, value in pairs)
    last = "" if term.otherwise is None else f" else {show_term(term.otherwise)}"
    return f"case {' '.join(branches)}{last} end"


def _show_aggregate_or_search(term: Term) -> str:
    match term:
        case Total(fn=fn, argument=argument, distinct=distinct):
            return f"{fn}({'distinct ' if distinct else ''}{show_term(argument)})"
        case Distance(target=target, query=query, metric=metric):
            by = "" if metric == "l2" else f" by {metric}"
            return f"nearest({show_term(target)}, {show_term(query)}){by}"
        case Relevance(field=field, query=query, language=language):
            return f"bm25({show_term(field)}, {show_term(query)}){_show_language(language)}"
        case Fusion(first=first, second=second, k=k):
            return f"rrf({show_term(first)}, {show_term(second)}, {show_term(k)})"
        case TextMatch(fn=fn, field=field, query=query, max_edits=edits, language=language):
            more = f", {show_term(edits)}" if edits is not None else ""
            return f"{fn}({show_term(field)}, {show_term(query)}{more}){_show_language(language)}"
    raise AssertionError(f"no text for {type(term).__name__}")


def _show_language(language: str) -> str:
    return "" if language == "english" else f" as {language}"


def _render_constant(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_render_constant(item) for item in value)}]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return escape(value)
    return format_float(value) if isinstance(value, float) else str(value)
