"""The expression half of the `.gq` parser: values, calls, arithmetic and conditions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias, cast, get_args

from omnigraph.lang.query import ast
from omnigraph.lang.query.foreign_syntax import FUNCTIONS as FOREIGN_FUNCTIONS
from omnigraph.lang.source import Source, Span, suggest_name
from omnigraph.lang.tokens import FLOAT, INT, LOWER, STR, VAR, Cursor, parse_integer, unescape
from omnigraph.lang.types import BOOL, DATE, DATETIME, F64, I64, STRING

MAX_OPERATORS = 128
"""Operators in one expression; keeps every walk over the tree far from Python's recursion limit."""

MAX_CONDITIONS = 256
"""Conditions joined in one clause."""

_I64_MAX = 2**63 - 1

RELATIONS = (">=", "<=", "!=", ">", "<", "=")
OPERATOR_WORDS = ("contains", "starts_with", "ends_with", "like", "ilike", "matches")
AGGREGATES = get_args(ast.AggregateFn)
TEXT_CALLS = ("search", "fuzzy", "match_text")
CASE_CALLS = ("lower", "upper")
LITERAL_CALLS = {"date": DATE, "datetime": DATETIME}
DATE_PARTS = get_args(ast.DatePartFn)
INTERVALS = get_args(ast.IntervalFn)
PATH_CALLS = get_args(ast.PathFn)
FUNCTIONS = (
    *AGGREGATES,
    *TEXT_CALLS,
    *CASE_CALLS,
    *LITERAL_CALLS,
    *DATE_PARTS,
    *INTERVALS,
    *PATH_CALLS,
    "bm25",
    "coalesce",
    "nearest",
    "now",
    "rrf",
)

_LIST_FUNCTIONS = f"functions are {', '.join(sorted(FUNCTIONS))}"

Operand: TypeAlias = ast.Expr | ast.Condition
"""What parentheses can hold where a condition may stand."""


class ExpressionParser(Cursor):
    """Parses expressions and conditions; the query parser builds on it."""

    def __init__(self, source: Source) -> None:
        self._operators = 0
        self._conditions = 0
        self._open_cases = 0
        super().__init__(source)

    def parse_expression(self) -> ast.Expr:
        """One whole expression, read as far as it goes."""
        self._restart_count()
        return self._parse_sum()

    def _restart_count(self) -> None:
        """A new expression counts its own operators; one inside `case` counts with the one around it."""
        if not self._open_cases:
            self._operators = 0

    def _parse_sum(self, first: ast.Expr | None = None, start: int | None = None) -> ast.Expr:
        """A sum; `first`, if given, is its first operand, which has been read from `start` on."""
        start = self.start if start is None else start
        left = self._parse_product(first, start)
        while self.kind in ("+", "-"):
            op = cast(ast.ArithmeticOp, self._parse_operator())
            left = ast.Arithmetic(op, left, self._parse_product(), at=self.since(start))
        return left

    def _parse_product(self, first: ast.Expr | None = None, start: int | None = None) -> ast.Expr:
        start = self.start if start is None else start
        left = self._parse_signed() if first is None else first
        while self.kind in ("*", "/"):
            op = cast(ast.ArithmeticOp, self._parse_operator())
            left = ast.Arithmetic(op, left, self._parse_signed(), at=self.since(start))
        return left

    def _parse_operator(self) -> str:
        self._operators += 1
        if self._operators > MAX_OPERATORS:
            self.fail(f"an expression has at most {MAX_OPERATORS} operators")
        op = self.kind
        self.advance()
        return op

    def _parse_signed(self) -> ast.Expr:
        if self.kind != "-":
            return self._parse_primary()
        start = self.start
        with self.nested():
            self._parse_operator()
            if self.kind in (INT, FLOAT):
                return self._parse_number(start, negative=True)
            return ast.Negate(self._parse_signed(), at=self.since(start))

    def _parse_primary(self) -> ast.Expr:
        if self.kind == VAR:
            return self._variable_or_property()
        if self.kind == LOWER:
            return self._parse_word()
        if self.kind == "(":
            return self._parse_parenthesised()
        if self.kind in (STR, INT, FLOAT, "["):
            return self._parse_constant()
        return self.expected("an expression", help=self._suggest_expression())

    def _suggest_expression(self) -> str | None:
        """How to write what SQL and programming languages write with the current token."""
        before = self._text[: self.start].rstrip()
        if self.kind == "*" and before.endswith("("):
            return "count a variable: `count($p)`"
        if self.kind == "=" and before.endswith("="):
            return "equality is one `=`"
        if self.kind == "." and before[-1:].isalnum():
            return "variables begin with `$`, like `$p.name`"
        return None

    def _parse_parenthesised(self) -> ast.Expr:
        with self.nested():
            self.take("(")
            inner = self._parse_sum()
            self.take(")")
        return inner

    def _variable_or_property(self) -> ast.VarRef | ast.PropRef:
        var = self.parse_variable()
        if not self.accept("."):
            return var
        name = self.take(LOWER, "a property name")
        return ast.PropRef(var.name, name, at=self.since(var.at.start))

    def parse_variable(self) -> ast.VarRef:
        """`$x`."""
        span = self.span
        return ast.VarRef(self.take(VAR)[1:], at=span)

    def _parse_word(self) -> ast.Expr:
        start, name = self.start, self.take(LOWER)
        if name in ("true", "false"):
            return ast.Literal(name == "true", BOOL, at=self.since(start))
        if self.kind == "(":
            with self.nested():
                return self._parse_call(name, start)
        if name == "null":
            return ast.Null(at=self.since(start))
        if name == "case" and self.word("when"):
            return self._parse_case(start)
        return ast.AliasRef(name, at=self.since(start))

    def _parse_case(self, start: int) -> ast.CaseWhen:
        with self.nested():
            self._open_cases += 1
            try:
                branches = []
                while self.word("when"):
                    branches.append(self._parse_branch())
                otherwise = self._parse_sum() if self.accept(LOWER, "else") else None
                if not self.word("end"):
                    self.expected("`when`, `else` or `end`" if otherwise is None else "`end`")
                self.advance()
            finally:
                self._open_cases -= 1
        return ast.CaseWhen(tuple(branches), otherwise, at=self.since(start))

    def _parse_branch(self) -> ast.CaseBranch:
        start = self.start
        self.take_word("when")
        condition = self._require_condition(self._parse_alternatives())
        self.take_word("then")
        return ast.CaseBranch(condition, self._parse_sum(), at=self.since(start))

    # --- conditions ------------------------------------------------------------------------------

    def parse_condition(self) -> ast.Condition:
        """Tests joined by `and` and `or`, with parentheses and `not (...)`; `and` binds stronger."""
        self._conditions = 0
        self._restart_count()
        return self._require_condition(self._parse_alternatives())

    def _parse_alternatives(self) -> Operand:
        return self._parse_junction("or", self._parse_conjunction)

    def _parse_conjunction(self) -> Operand:
        return self._parse_junction("and", self._parse_test)

    def _parse_junction(self, word: ast.JunctionWord, parse: Callable[[], Operand]) -> Operand:
        start = self.start
        first = parse()
        if not self.word(word):
            return first
        found = [self._require_condition(first)]
        while self.accept(LOWER, word):
            self._restart_count()
            found.append(self._require_condition(parse()))
        return ast.Junction(word, tuple(found), at=self.since(start))

    def _parse_test(self) -> Operand:
        """One test; a value where no test follows, which parentheses around it may still need."""
        start = self.start
        if self.word("not") and self.peek()[0][0] == "(":
            self.advance()
            inner = self._require_condition(self._parse_group())
            return ast.NotTest(inner, at=self.since(start))
        if self.kind != "(":
            return self._finish_test(self._parse_sum(), start)
        inside = self._parse_group()
        if isinstance(inside, ast.CONDITIONS):
            if self.kind in (*RELATIONS, "+", "-", "*", "/"):
                self.fail(
                    f"a condition is not a value, found `{self.text}`",
                    help="join conditions by `and` and `or`",
                )
            return inside
        return self._finish_test(self._parse_sum(inside, start), start)

    def _parse_group(self) -> Operand:
        with self.nested():
            self.take("(")
            inner = self._parse_alternatives()
            self.take(")")
        return inner

    def _finish_test(self, left: ast.Expr, start: int) -> Operand:
        if self.kind in RELATIONS or (self.kind == LOWER and self.text in OPERATOR_WORDS):
            op = cast(ast.CompareOp, self.text)
            self.advance()
            return ast.Comparison(left, op, self.parse_expression(), at=self.since(start))
        if self.word("is"):
            return ast.NullTest(left, self.parse_null_test(), at=self.since(start))
        if self.accept(LOWER, "in"):
            return ast.InTest(left, self.parse_items(), at=self.since(start))
        return left

    def _require_condition(self, found: Operand) -> ast.Condition:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            self.fail(f"a clause has at most {MAX_CONDITIONS} conditions")
        if isinstance(found, ast.CONDITIONS):
            return found
        if isinstance(found, ast.TextCall):
            return ast.TextFilter(found, at=found.at)
        return self.expected("a comparison", help="filters compare two values, like `$p.age > 3`")

    def parse_null_test(self) -> bool:
        """`is null`; whether it is `is not null`."""
        self.take_word("is")
        negated = self.accept(LOWER, "not")
        self.take_word("null")
        return negated

    def parse_items(self) -> ast.ListLiteral | ast.VarRef:
        """What follows `in`."""
        if self.kind == VAR:
            return self.parse_variable()
        if self.kind != "[":
            self.expected("a list or a list parameter")
        return self.list_literal()

    # --- constants -------------------------------------------------------------------------------

    def parse_value(self) -> ast.Value:
        """What a property match, an assignment or a predicate may hold."""
        if self.kind == VAR:
            return self.parse_variable()
        start = self.start
        if self.word("null"):
            self.advance()
            return ast.Null(at=self.since(start))
        if self.word("now"):
            self.advance()
            self.take("(")
            self.take(")")
            return ast.Now(at=self.since(start))
        return self._parse_constant()

    def _parse_constant(self) -> ast.Literal | ast.ListLiteral:
        start = self.start
        if self.kind == "[":
            return self.list_literal()
        if self.accept("-"):
            return self._parse_number(start, negative=True)
        if self.kind in (INT, FLOAT):
            return self._parse_number(start, negative=False)
        if self.kind == STR:
            span = self.span
            return ast.Literal(unescape(self.take(STR), span), STRING, at=span)
        if self.word("true") or self.word("false"):
            return ast.Literal(self.take(LOWER) == "true", BOOL, at=self.since(start))
        if self.kind == LOWER and self.text in LITERAL_CALLS:
            return self._parse_dated(self.take(LOWER), start)
        return self.expected("a value")

    def _parse_number(self, start: int, *, negative: bool) -> ast.Literal:
        sign = -1 if negative else 1
        text = self.text
        if self.kind == FLOAT:
            self.advance()
            value = float(text)
            if not math.isfinite(value):
                self.fail(f"invalid number: {text[:30]}", self.since(start))
            return ast.Literal(sign * value, F64, at=self.since(start))
        self.take(INT, "a number")
        whole = parse_integer(text, _I64_MAX + 1 if negative else _I64_MAX)
        if whole is None:
            self.fail(f"invalid integer: {'-' if negative else ''}{text[:30]}", self.since(start))
        return ast.Literal(sign * whole, I64, at=self.since(start))

    def list_literal(self) -> ast.ListLiteral:
        """`[1, 2]`."""
        start = self.start
        with self.nested():
            self.take("[")
            items: list[ast.Literal | ast.ListLiteral] = []
            while self.kind != "]":
                if items:
                    self.take(",", "`,` or `]`")
                items.append(self._parse_constant())
            self.advance()
        return ast.ListLiteral(tuple(items), at=self.since(start))

    def _parse_dated(self, name: str, start: int) -> ast.Literal:
        self.take("(")
        span = self.span
        text = unescape(self.take(STR), span)
        self.take(")")
        return ast.Literal(text, LITERAL_CALLS[name], at=self.since(start))

    # --- calls -----------------------------------------------------------------------------------

    def _parse_call(self, name: str, start: int) -> ast.Expr:
        if name in LITERAL_CALLS and self.peek()[0][0] == STR:
            return self._parse_dated(name, start)
        if name not in FUNCTIONS:
            known = FOREIGN_FUNCTIONS.get(name)
            help_ = f"did you mean `{known}`?" if known else suggest_name(name, FUNCTIONS) or _LIST_FUNCTIONS
            self.fail(f"unknown function `{name}`", Span(start, start + len(name)), help_)
        self.take("(")
        call = self._parse_arguments(name)
        self.take(")", "`)`")
        return replace(call, at=self.since(start))

    def _parse_arguments(self, name: str) -> ast.Expr:
        if name == "now":
            return ast.Now()
        if name in AGGREGATES:
            return self._parse_aggregate(cast(ast.AggregateFn, name))
        if name in CASE_CALLS:
            return ast.CaseCall(cast(ast.CaseFn, name), self._parse_sum())
        if name in DATE_PARTS or name in LITERAL_CALLS:
            return ast.DateCall(cast(ast.DatePartFn, name), self._parse_sum())
        if name in INTERVALS:
            return ast.Interval(cast(ast.IntervalFn, name), self._parse_sum())
        if name in PATH_CALLS:
            return ast.PathCall(cast(ast.PathFn, name), self._parse_sum())
        if name == "coalesce":
            return self._parse_coalesce()
        if name == "nearest":
            return self._parse_nearest()
        if name == "rrf":
            return self._parse_rrf()
        field = self._parse_sum()
        self.take(",")
        query = self._parse_sum()
        if name == "bm25":
            return ast.Bm25(field, query)
        max_edits = self._parse_sum() if name == "fuzzy" and self.accept(",") else None
        return ast.TextCall(cast(ast.TextFn, name), field, query, max_edits)

    def _parse_coalesce(self) -> ast.Coalesce:
        found = [self._parse_sum()]
        while self.accept(","):
            found.append(self._parse_sum())
        return ast.Coalesce(tuple(found))

    def _parse_aggregate(self, fn: ast.AggregateFn) -> ast.Aggregate:
        distinct = False
        if fn in ("count", "collect") and self.word("distinct"):
            ((following, _),) = self.peek()
            distinct = following != ")"
            if distinct:
                self.advance()
        return ast.Aggregate(fn, self._parse_sum(), distinct)

    def _parse_nearest(self) -> ast.Nearest:
        target = (
            self._variable_or_property() if self.kind == VAR else self.expected("a property like `$d.vector`")
        )
        if not isinstance(target, ast.PropRef):
            self.expected("`.` and a property name")
        self.take(",")
        return ast.Nearest(target, self._parse_sum())

    def _parse_rrf(self) -> ast.Rrf:
        first = self._parse_ranking()
        self.take(",")
        second = self._parse_ranking()
        k = self._parse_sum() if self.accept(",") else None
        return ast.Rrf(first, second, k)

    def _parse_ranking(self) -> ast.Nearest | ast.Bm25:
        start = self.start
        if not (self.word("nearest") or self.word("bm25")):
            self.expected("`nearest(…)` or `bm25(…)`")
        name = self.take(LOWER)
        if self.kind != "(":
            self.expected("`(`")
        return cast("ast.Nearest | ast.Bm25", self._parse_call(name, start))
