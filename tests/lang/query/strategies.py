"""Hypothesis strategies for query trees and broken query texts."""

from __future__ import annotations

import re

from hypothesis import strategies as st

from omnigraph.lang.query import ast
from omnigraph.lang.query.expressions import (
    AGGREGATES,
    CASE_CALLS,
    DATE_PARTS,
    INTERVALS,
    OPERATOR_WORDS,
    PATH_CALLS,
    TEXT_CALLS,
)
from omnigraph.lang.types import BOOL, DATE, DATETIME, F64, I64, SCALARS, STRING, Scalar, ValueType
from tests.lang.casefile import cases_in

# Mostly the names of F.pg, so that many trees get past the first check; words of the grammar and of
# the functions besides, because they are names wherever they are not expected.
WORDS = [
    "not",
    "optional",
    "distinct",
    "null",
    "in",
    "is",
    "as",
    "asc",
    "count",
    "now",
    "date",
    "match",
    "or",
    "and",
    "case",
    "when",
    "end",
]
VARIABLES = ["p", "p", "p", "q", "t", "m", "_", "x", "not", "limit"]
PROPERTIES = ["handle", "age", "score", "joined", "role", "email", "tags", "slug", "title", "since", "note"]
EDGES = [
    "mentors",
    "memberOf",
    "memberof",
    "contains",
    "starts_with",
    "in",
    "is",
    "optional",
    "as",
    "or",
    "like",
]
TYPES = ["Person", "Team", "Log", "Mentors", "MemberOf", "Nope", "X_1", "String"]
ODD_NAMES = ["_", "__", "a1", "_b", "camelCase", "x_Y_9", "nothing", "l" * 254, "distinct_", "trueish"]

# Names come from lists instead of patterns: a drawn character costs as much as a drawn clause.
lower = st.sampled_from(PROPERTIES + WORDS + ODD_NAMES)
variable = st.sampled_from(VARIABLES + ODD_NAMES)
type_name = st.sampled_from(TYPES)
edge = st.sampled_from(EDGES + ODD_NAMES)
text = st.sampled_from(["", "ada", '"', "\\", "\n\r\t", "é\u2028", "//", "/*", "}", "$p"]) | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4
)


# --- expressions -----------------------------------------------------------------------------------

literal = st.one_of(
    st.builds(ast.Literal, st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), st.just(I64)),
    st.builds(ast.Literal, st.floats(allow_nan=False, allow_infinity=False), st.just(F64)),
    st.builds(ast.Literal, text, st.sampled_from([STRING, DATE, DATETIME])),
    st.builds(ast.Literal, st.booleans(), st.just(BOOL)),
)
lists = st.recursive(
    st.builds(ast.ListLiteral, st.lists(literal, max_size=3).map(tuple)),
    lambda inner: st.builds(ast.ListLiteral, st.lists(literal | inner, max_size=3).map(tuple)),
    max_leaves=4,
)
var_ref = st.builds(ast.VarRef, variable)
prop_ref = st.builds(ast.PropRef, variable, lower)
# `query name (` begins the next query wherever it stands.
alias = st.builds(ast.AliasRef, lower.filter(lambda word: word not in ("true", "false", "null", "query")))
value = st.one_of(literal, lists, st.builds(ast.Null), st.builds(ast.Now), var_ref)
leaf = st.one_of(prop_ref, prop_ref, var_ref, literal, lists, alias, st.builds(ast.Null), st.builds(ast.Now))


operators = st.sampled_from(["=", "!=", "<", "<=", ">", ">=", *OPERATOR_WORDS])


def _no_text(found: ast.Expr) -> bool:
    """A text alone in `date(…)` makes a literal."""
    return not (isinstance(found, ast.Literal) and found.type == STRING)


def _tests(operand: st.SearchStrategy[ast.Expr]) -> st.SearchStrategy[ast.Condition]:
    return st.one_of(
        st.builds(ast.Comparison, operand, operators, operand),
        st.builds(ast.NullTest, operand, st.booleans()),
    )


def _larger(inner: st.SearchStrategy[ast.Expr]) -> st.SearchStrategy[ast.Expr]:
    nearest = st.builds(ast.Nearest, prop_ref, inner)
    bm25 = st.builds(ast.Bm25, inner, inner)
    rank = nearest | bm25
    return st.one_of(
        st.builds(ast.Arithmetic, st.sampled_from("+-*/"), inner, inner),
        st.builds(ast.Negate, inner),
        st.builds(ast.CaseCall, st.sampled_from(CASE_CALLS), inner),
        st.builds(ast.DateCall, st.sampled_from([*DATE_PARTS, "date", "datetime"]), inner.filter(_no_text)),
        st.builds(ast.Interval, st.sampled_from(INTERVALS), inner),
        st.builds(ast.PathCall, st.sampled_from(PATH_CALLS), inner),
        st.builds(ast.Coalesce, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(
            ast.CaseWhen,
            st.lists(st.builds(ast.CaseBranch, _tests(inner), inner), min_size=1, max_size=2).map(tuple),
            st.none() | inner,
        ),
        st.builds(ast.Aggregate, st.sampled_from(AGGREGATES), inner),
        st.builds(ast.Aggregate, st.sampled_from(["count", "collect"]), inner, st.just(True)),
        st.builds(ast.TextCall, st.sampled_from(TEXT_CALLS), inner, inner),
        st.builds(ast.TextCall, st.just("fuzzy"), inner, inner, inner),
        rank,
        st.builds(ast.Rrf, rank, rank, st.none() | inner),
    )


expr = st.recursive(leaf, _larger, max_leaves=4)
text_call = st.builds(ast.TextCall, st.sampled_from(TEXT_CALLS), expr, expr)


# --- clauses ---------------------------------------------------------------------------------------

items = lists | var_ref
binding = st.builds(
    ast.Binding,
    variable,
    type_name,
    st.lists(st.builds(ast.PropertyMatch, lower, value), max_size=2).map(tuple),
)
hops = st.builds(ast.Hops, st.integers(0, 2**32 - 1) | st.integers(1, 3), st.none() | st.integers(1, 5))
traversal = st.builds(
    ast.Traversal,
    variable,
    edge,
    variable,
    st.none() | variable,
    st.booleans(),
    st.none() | hops,
    st.none() | variable,
)
filters = st.one_of(
    st.builds(ast.Comparison, expr, operators, expr),
    st.builds(ast.NullTest, expr, st.booleans()),
    st.builds(ast.InTest, expr, items),
    st.builds(ast.TextFilter, text_call),
)
conditions = st.recursive(
    filters,
    lambda inner: st.one_of(
        st.builds(
            ast.Junction, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3).map(tuple)
        ),
        st.builds(ast.NotTest, inner),
    ),
    max_leaves=4,
)
plain = st.one_of(binding, traversal, filters, conditions)
clause = st.recursive(
    plain,
    lambda inner: st.builds(
        lambda kind, inside: kind(tuple(inside)),
        st.sampled_from([ast.Negation, ast.OptionalBlock]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=4,
)


# --- queries ---------------------------------------------------------------------------------------

count = st.none() | st.integers(0, 2**64 - 1) | var_ref
order_term = st.one_of(
    st.builds(ast.OrderTerm, prop_ref | alias, st.sampled_from([None, "asc", "desc"])),
    st.builds(ast.OrderTerm, st.just(ast.AliasRef("null")), st.sampled_from([None, "asc", "desc"])),
    st.builds(ast.OrderTerm, expr.filter(lambda found: not isinstance(found, ast.Null))),
)
# Most reads begin with a sound binding, or nearly all of them would fail at the first name.
start = st.just(ast.Binding("p", "Person"))
projection = st.one_of(
    st.builds(ast.Projection, expr, st.none() | lower),
    st.builds(ast.Projection, st.builds(ast.AllProperties, variable)),
)
reads = st.builds(
    ast.Read,
    st.tuples(start | clause, st.lists(clause, max_size=3)).map(lambda found: (found[0], *found[1])),
    st.lists(projection, min_size=1, max_size=3).map(tuple),
    st.booleans(),
    st.lists(conditions, max_size=1).map(tuple),
    st.lists(order_term, max_size=2).map(tuple),
    count,
    count,
)
assignments = st.lists(st.builds(ast.Assignment, lower, value, st.booleans()), min_size=1, max_size=3).map(
    tuple
)
relations = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
predicates = st.one_of(
    st.builds(ast.ComparePredicate, lower, relations, value, st.booleans()),
    st.builds(ast.NullPredicate, lower, st.booleans(), st.booleans()),
    st.builds(ast.InPredicate, lower, items, st.booleans()),
)
mutation = st.one_of(
    st.builds(ast.Insert, type_name, assignments),
    st.builds(ast.Update, type_name, assignments, predicates),
    st.builds(ast.Delete, type_name, predicates),
)
parameter_types = st.one_of(
    st.builds(ValueType, st.sampled_from(list(SCALARS.values())), st.booleans(), st.booleans()),
    st.builds(ValueType, st.just(Scalar.VECTOR), st.booleans(), dimension=st.integers(1, 2**31 - 1)),
)
queries = st.builds(
    ast.Query,
    lower,
    st.lists(st.builds(ast.Parameter, variable, parameter_types), max_size=3).map(tuple),
    reads | st.lists(mutation, min_size=1, max_size=3).map(tuple),
    st.none() | text,
    st.none() | text,
)
files = st.lists(queries, max_size=2).map(tuple).map(ast.QueryFile)


# --- broken texts ----------------------------------------------------------------------------------

CORPUS = sorted(
    {sections["query"] for case in cases_in("*.gqt") if "error" not in (sections := dict(case.sections))}
)
FRAGMENTS = [
    "{", "}", "(", ")", "[", "]", ":", ",", ".", "..", "<", ">", "=", "!=", ">=", "+", "-", "*", "/", "@",
    "?", '"', "\\", "//", "/*", "*/", "\n", "\r\n", "\t", "#", "'", ";", "$", "$p", "$_", "$P", "$p.age",
    "Person", "person", "not {", "optional {", "match {", "return {", "order {", "limit ", "offset ",
    "distinct ", "null", "is null", "in [", "in $l", "contains ", "starts_with ", "count(", "or ", "not (",
    "count(distinct ", "nearest(", "bm25(", "rrf(", "search(", "lower(", "now()", "date(", "true", "1",
    "1.5", "-1", "9" * 25, "1e5", "query q() {", "insert ", "update ", "delete ", "set {", "where ", "as ",
    "asc", "desc", "mentors", "{1,2}", "{0,}", "\0", "\ud800", "\ufeff", "é", "\u2028", "\U0001d518",
]  # fmt: skip
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\$?\w+|\s+|.', re.DOTALL)

changes = st.lists(
    st.tuples(
        st.sampled_from(["insert", "delete", "replace", "repeat", "swap"]),
        st.floats(0, 1),
        st.integers(1, 20),
        st.sampled_from(FRAGMENTS) | st.text(max_size=3),
    ),
    min_size=1,
    max_size=6,
)


def mutate(source: str, edits: list[tuple[str, float, int, str]]) -> str:
    """The text with characters inserted, deleted, replaced or repeated, or tokens exchanged."""
    for edit, place, length, fragment in edits:
        if edit == "swap":
            source = _swap(source, place, length)
            continue
        at = int(place * len(source))
        new = {"delete": "", "repeat": source[at : at + length] * 2}.get(edit, fragment)
        source = source[:at] + new + source[at + (0 if edit == "insert" else length) :]
    return source


def _swap(source: str, place: float, distance: int) -> str:
    tokens = _TOKEN.findall(source)
    if tokens:
        one = int(place * (len(tokens) - 1))
        other = (one + distance) % len(tokens)
        tokens[one], tokens[other] = tokens[other], tokens[one]
    return "".join(tokens)
