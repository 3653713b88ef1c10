"""`.gq` text to syntax tree: queries, clauses and mutations by recursive descent.

A mistake in one clause, block or query does not hide the next one: the parser records it, skips to
where the next construct can begin, and goes on, up to `MAX_DIAGNOSTICS` mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar, cast

from omnigraph.lang.query import ast
from omnigraph.lang.query.expressions import OPERATOR_WORDS, RELATIONS, ExpressionParser
from omnigraph.lang.query.foreign_syntax import AFTER_MATCH, AFTER_RETURN, FIRST_WORDS, STATEMENT_WORDS
from omnigraph.lang.source import Problems, Source, TooManyProblems
from omnigraph.lang.tokens import (
    END,
    INT,
    LOWER,
    MAX_NAME_CHARS,
    STR,
    UPPER,
    VAR,
    SyntaxFault,
    parse_integer,
    unescape,
)
from omnigraph.lang.types import MAX_VECTOR_DIMENSION, SCALARS, Scalar, ValueType, vector_type

MAX_CLAUSES = 256
"""Clauses in one query, nested ones included; keeps plans shallow enough to walk by recursion."""

_MAX_SKIPPED = 50_000
"""Tokens that recovery passes over in one file before it gives up on the rest."""

_U32_MAX = 2**32 - 1
_U64_MAX = 2**64 - 1
_QUOTED_NAME = re.compile(f"`[a-z_][A-Za-z0-9_]{{0,{MAX_NAME_CHARS - 1}}}`")
_INSERTS = ("insert", "upsert", "create")
_STATEMENTS = (*_INSERTS, "update", "delete")
_CLAUSE_WORDS = ("not", "optional", "search", "fuzzy", "match_text")

Item = TypeVar("Item")


def parse_queries(source: Source) -> ast.QueryFile:
    """Parse a query file, or raise one `ParseError` with everything that is wrong."""
    problems = Problems(source)
    parser = _QueryParser(source, problems)
    try:
        file = parser.parse_file()
    except TooManyProblems:
        problems.raise_if_any(truncated=True)
        raise
    problems.raise_if_any()
    return file


def _never_resume() -> bool:
    return False


class _QueryParser(ExpressionParser):
    def __init__(self, source: Source, problems: Problems) -> None:
        super().__init__(source)
        self._problems = problems
        self._clauses_read = 0
        self._skipped = 0

    # --- recovery --------------------------------------------------------------------------------

    def _attempt(self, parse: Callable[[], Item], can_resume: Callable[[], bool]) -> Item | None:
        """Run `parse`; when it fails, record why and skip to where its successor can begin."""
        outside = self.braces
        try:
            return parse()
        except SyntaxFault as fault:
            # Once a mistake has swallowed the rest of the text, what is then missing is no news.
            if not (self._problems.found and self.kind == END):
                self._problems.add(fault.message, fault.span, help=fault.help)
            self._resume(outside, can_resume)
            return None

    def _resume(self, outside: int, can_resume: Callable[[], bool]) -> None:
        """Skip to the closing brace around, or to the first token of a line where parsing can resume."""
        while self.kind != END and not self._at_query():
            if self.braces <= outside and (self.kind == "}" or (can_resume() and self.starts_line())):
                return
            self._skipped += 1
            if self._skipped > _MAX_SKIPPED:
                self._next = len(self._text)
            self.advance()

    def _at_query(self) -> bool:
        return self.word("query") and [kind for kind, _ in self.peek(2)] == [LOWER, "("]

    def _at_clause(self) -> bool:
        return self.kind in (VAR, STR) or (self.kind == LOWER and self.text in _CLAUSE_WORDS)

    def _at_statement(self) -> bool:
        return self.kind == LOWER and self.text in _STATEMENTS

    # --- file and query --------------------------------------------------------------------------

    def parse_file(self) -> ast.QueryFile:
        queries = []
        while self.kind != END:
            query = self._attempt(self._parse_query, self._at_query)
            if query is not None:
                queries.append(query)
        return ast.QueryFile(tuple(queries))

    def _parse_query(self) -> ast.Query:
        start = self.start
        if not self.word("query"):
            # Step over the offending word, or recovery would stop on it for ever.
            span, found = self.span, self.text
            self.advance()
            help_ = FIRST_WORDS.get(found.lower(), FIRST_WORDS["select"])
            self.fail(f"expected `query`, found `{found[:60]}`", span, help_)
        self.advance()
        self._clauses_read = 0
        name = self.take(LOWER, "a query name")
        parameters = self._parse_parameters()
        notes = self._parse_annotations(name)
        self.take("{")
        body = self._parse_body()
        self.take("}")
        return ast.Query(
            name, parameters, body, notes.get("description"), notes.get("instruction"), at=self.since(start)
        )

    def _parse_parameters(self) -> tuple[ast.Parameter, ...]:
        self.take("(")
        found: list[ast.Parameter] = []
        while self.kind != ")":
            if found:
                self.take(",", "`,` or `)`")
            start = self.start
            name = self.take(VAR, "a parameter like `$name: String`")[1:]
            self.take(":")
            found.append(ast.Parameter(name, self._parameter_type(), at=self.since(start)))
        self.advance()
        return tuple(found)

    def _parameter_type(self) -> ValueType:
        if self.accept("["):
            found = ValueType(self._parse_scalar(), is_list=True)
            self.take("]")
        elif self.at(UPPER, "Vector"):
            found = self._parse_vector()
        else:
            found = ValueType(self._parse_scalar())
        return found.with_nullable() if self.accept("?") else found

    def _parse_scalar(self) -> Scalar:
        if self.kind != UPPER or self.text not in SCALARS:
            self.expected(
                "a type name", help=f"parameter types are {', '.join(SCALARS)}, Vector(n) and lists"
            )
        return SCALARS[self.take(UPPER)]

    def _parse_vector(self) -> ValueType:
        self.advance()
        self.take("(")
        span, text = self.span, self.take(INT)
        self.take(")")
        dimension = parse_integer(text, MAX_VECTOR_DIMENSION)
        if dimension is None:
            self.fail(f"Vector dimension {text[:30]} exceeds maximum supported {MAX_VECTOR_DIMENSION}", span)
        if dimension == 0:
            self.fail("Vector dimension must be greater than zero", span)
        return vector_type(dimension)

    def _parse_annotations(self, query: str) -> dict[str, str]:
        notes: dict[str, str] = {}
        while self.kind == "@":
            start = self.start
            self.advance()
            if not (self.word("description") or self.word("instruction")):
                self.expected("`@description` or `@instruction`")
            name = self.take(LOWER)
            self.take("(")
            span, text = self.span, self.take(STR)
            self.take(")")
            if name in notes:
                self.fail(f"query `{query}` cannot include duplicate @{name} annotations", self.since(start))
            notes[name] = unescape(text, span)
        return notes

    def _parse_body(self) -> ast.Read | tuple[ast.Mutation, ...]:
        if self.word("match"):
            return self._parse_read()
        if not self._at_statement():
            self.expected(
                "`match`, `insert`, `upsert`, `create`, `update` or `delete`",
                help=STATEMENT_WORDS.get(self.text),
            )
        statements: list[ast.Mutation | None] = []
        while self._at_statement():
            statements.append(self._attempt(self._parse_mutation, self._at_statement))
        return tuple(statement for statement in statements if statement is not None)

    # --- reads -----------------------------------------------------------------------------------

    def _parse_read(self) -> ast.Read:
        start = self.start
        self.take_word("match")
        match = self._parse_clauses()
        if not self.word("return"):
            self.expected("`return`", help=AFTER_MATCH.get(self.text))
        self.advance()
        distinct = self.word("distinct")
        if distinct:
            self.advance()
        returns = self._parse_block(self._parse_projections)
        having = self._parse_block(self._parse_conditions) if self._accept_word("having") else ()
        order = self._parse_block(self._order_terms) if self._accept_word("order") else ()
        limit = self._parse_count() if self._accept_word("limit") else None
        offset = self._parse_count() if self._accept_word("offset") else None
        if self.kind != "}":
            self.expected(
                "`order`, `limit`, `offset` or `}`, in this order", help=AFTER_RETURN.get(self.text)
            )
        return ast.Read(match, returns, distinct, having, order, limit, offset, at=self.since(start))

    def _accept_word(self, text: str) -> bool:
        return self.accept(LOWER, text)

    def _parse_block(self, parse: Callable[[], tuple[Item, ...]]) -> tuple[Item, ...]:
        if self.text == "by":
            self.expected("`{`", help="sort with braces and without `by`: `order { $p.name desc }`")
        self.take("{")
        found = self._attempt(parse, _never_resume)
        self.take("}")
        return found or ()

    def _parse_count(self) -> int | ast.VarRef:
        if self.kind == VAR:
            return self.parse_variable()
        span, text = self.span, self.take(INT, "a whole number or a parameter")
        value = parse_integer(text, _U64_MAX)
        if value is None:
            self.fail(f"invalid integer: {text[:30]}", span)
        return value

    def _parse_projections(self) -> tuple[ast.Projection, ...]:
        found = [self._parse_projection()]
        while self.kind != "}":
            found.append(self._parse_projection())
        return tuple(found)

    def _parse_conditions(self) -> tuple[ast.Condition, ...]:
        found = [self.parse_condition()]
        while self.kind != "}":
            found.append(self.parse_condition())
        return tuple(found)

    def _parse_projection(self) -> ast.Projection:
        start = self.start
        if self.kind == VAR and [kind for kind, _ in self.peek(2)] == [".", "*"]:
            return self._parse_all_properties(start)
        expr = self.parse_expression()
        alias = self.take(LOWER, "a name after `as`") if self._accept_word("as") else None
        span = self.since(start)
        self.accept(",")
        return ast.Projection(expr, alias, at=span)

    def _parse_all_properties(self, start: int) -> ast.Projection:
        var = self.take(VAR)[1:]
        self.take(".")
        self.take("*")
        span = self.since(start)
        if self.word("as"):
            self.fail(f"`${var}.*` is several columns, named after the properties", help="take `as` away")
        self.accept(",")
        return ast.Projection(ast.AllProperties(var, at=span), at=span)

    def _order_terms(self) -> tuple[ast.OrderTerm, ...]:
        found = [self._order_term()]
        while self.accept(","):
            found.append(self._order_term())
        if self.kind != "}":
            self.expected("`,` or `}`")
        return tuple(found)

    def _order_term(self) -> ast.OrderTerm:
        start = self.start
        expr = self.parse_expression()
        if isinstance(expr, ast.Null):
            expr = ast.AliasRef("null", at=expr.at)
        direction = None
        if self.word("asc") or self.word("desc"):
            if isinstance(expr, ast.Nearest):
                self.fail("`nearest` takes no direction", help="the nearest rows always come first")
            direction = cast(ast.Direction, self.take(LOWER))
        return ast.OrderTerm(expr, direction, at=self.since(start))

    # --- clauses ---------------------------------------------------------------------------------

    def _parse_clauses(self) -> tuple[ast.Clause, ...]:
        with self.nested():
            self.take("{")
            found = [self._attempt(self._parse_clause, self._at_clause)]
            while self.kind not in ("}", END) and not self._at_query():
                found.append(self._attempt(self._parse_clause, self._at_clause))
            self.take("}")
            return tuple(clause for clause in found if clause is not None)

    def _parse_clause(self) -> ast.Clause:
        if self.kind == "}":
            self.expected("a clause")
        self._clauses_read += 1
        if self._clauses_read == MAX_CLAUSES + 1:
            self.fail(f"a query has at most {MAX_CLAUSES} clauses")
        start = self.start
        if self.kind == LOWER and self.text in ("not", "optional"):
            ((following, _),) = self.peek()
            if following == "{":
                block = ast.Negation if self.text == "not" else ast.OptionalBlock
                self.advance()
                return block(self._parse_clauses(), at=self.since(start))
        if self.kind == VAR and self._at_path():
            return self._parse_path(start)
        if self.kind == VAR:
            clause = self._parse_pattern(start)
            if clause is not None:
                return clause
        self._refuse_foreign_pattern()
        return self.parse_condition()

    def _refuse_foreign_pattern(self) -> None:
        """Answer a pattern of Cypher, and a variable without its `$`, with how it is written here."""
        if self.kind == "(" and [kind for kind, _ in self.peek(2)] in ([LOWER, ":"], [":", UPPER]):
            self.expected("a clause", help="a pattern is written as `$p: Person  $p knows $q`")
        if self.kind == LOWER and self.peek()[0][0] == ":":
            self.expected("a clause", help=f"variables begin with `$`: `${self.text[:60]}`")

    def _parse_pattern(self, start: int) -> ast.Binding | ast.Traversal | None:
        """A binding or traversal, or None when the clause that begins with this variable is a filter."""
        first, second, third = self.peek(3)
        if first[0] == ":":
            return self._parse_binding(start)
        if first[0] == VAR or (first[0] == "<" and second[0] == LOWER and third[0] == ">"):
            return self._parse_traversal(start)
        if first[0] == UPPER and second[0] in (VAR, "{"):
            lowered = first[1][0].lower() + first[1][1:]
            self.advance()
            self.fail(
                f"expected an edge name, found `{self.text}`",
                help=f"traversals name edges with a small first letter: `{lowered}`",
            )
        if first[0] != LOWER:
            return None
        is_operator = first[1] in OPERATOR_WORDS or first[1] in ("in", "is")
        if is_operator and second[0] != VAR and not (second[0] == "{" and third[0] == INT):
            return None
        return self._parse_traversal(start)

    def _at_path(self) -> bool:
        """Whether a path begins here; a value cannot be compared with a name, so no filter looks like it."""
        (equals, _), (word, text), (after, _) = self.peek(3)
        return equals == "=" and (word, text) == (LOWER, "shortest") and after == VAR

    def _parse_path(self, start: int) -> ast.Traversal:
        path = self.take(VAR)[1:]
        self.take("=")
        self.take_word("shortest")
        walked = self._parse_traversal(self.start)
        return replace(walked, path=path, at=self.since(start))

    def _parse_binding(self, start: int) -> ast.Binding:
        var = self.take(VAR)[1:]
        self.take(":")
        type_name = self.take(UPPER)
        matches: list[ast.PropertyMatch] = []
        if self.accept("{"):
            while not matches or (self.accept(",") and self.kind != "}"):
                at = self.start
                name = self.take(LOWER, "a property name")
                self.take(":")
                matches.append(ast.PropertyMatch(name, self.parse_value(), at=self.since(at)))
            self.take("}", "`,` or `}`")
        return ast.Binding(var, type_name, tuple(matches), at=self.since(start))

    def _parse_traversal(self, start: int) -> ast.Traversal:
        left = self.take(VAR)[1:]
        edge_var = None
        if self.kind == VAR:
            edge_var = self.take(VAR)[1:]
            self.take(":")
        undirected = self.accept("<")
        edge = self._edge_name()
        if undirected:
            self.take(">")
        hops = self._parse_hops() if self.kind == "{" else None
        if self.kind in ("*", "+"):
            self.expected("a variable after the edge", help=f"write hops in braces: `{edge}{{1,3}}`")
        right = self.take(VAR, "a variable after the edge")[1:]
        return ast.Traversal(left, edge, right, edge_var, undirected, hops, at=self.since(start))

    def _edge_name(self) -> str:
        if self.kind == LOWER and (self.text == "not" or self.text.startswith("not_")):
            self.fail(f"`{self.text}` cannot be traversed: `not` begins a negation here")
        return self.take(LOWER, "an edge name")

    def _parse_hops(self) -> ast.Hops:
        self.take("{")
        minimum = self._hop_bound()
        if self.kind == "}":
            self.expected("`,`", help=f"write {{{minimum},{minimum}}} for exactly {minimum} hops")
        self.take(",")
        maximum = self._hop_bound() if self.kind == INT else None
        self.take("}")
        return ast.Hops(minimum, maximum)

    def _hop_bound(self) -> int:
        span, text = self.span, self.take(INT, "a number of hops")
        value = parse_integer(text, _U32_MAX)
        if value is None:
            self.fail(f"invalid integer: {text[:30]}", span)
        return value

    # --- mutations -------------------------------------------------------------------------------

    def _parse_mutation(self) -> ast.Mutation:
        start = self.start
        verb = self.take(LOWER)
        type_name = self.take(UPPER)
        if verb in _INSERTS:
            assignments = self._parse_assignments()
            return ast.Insert(type_name, assignments, cast(ast.InsertVerb, verb), at=self.since(start))
        if verb == "update":
            self.take_word("set")
            assignments = self._parse_assignments()
            self._take_where()
            where = self._parse_predicate()
            return ast.Update(type_name, assignments, where, at=self.since(start))
        self._take_where()
        where = self._parse_predicate()
        return ast.Delete(type_name, where, at=self.since(start))

    def _take_where(self) -> None:
        if not self.word("where"):
            self.expected("`where`", help="say which rows, like `where name = $name`")
        self.advance()

    def _parse_assignments(self) -> tuple[ast.Assignment, ...]:
        self.take("{")
        found: list[ast.Assignment] = []
        while not found or self.kind != "}":
            start = self.start
            name, quoted = self._property_name()
            self.take(":")
            found.append(ast.Assignment(name, self.parse_value(), quoted, at=self.since(start)))
            self.accept(",")
        self.advance()
        return tuple(found)

    def _property_name(self) -> tuple[str, bool]:
        """A name, and whether it is in backquotes."""
        quoted = self.rescan(_QUOTED_NAME) if self.text == "`" else None
        if quoted is not None:
            return quoted[1:-1], True
        return self.take(LOWER, "a property name"), False

    def _parse_predicate(self) -> ast.Predicate:
        start = self.start
        name, quoted = self._property_name()
        if self.kind in RELATIONS:
            op = cast(ast.CompareOp, self.text)
            self.advance()
            value = self.parse_value()
            return ast.ComparePredicate(name, op, value, quoted, at=self.since(start))
        if self.word("is"):
            negated = self.parse_null_test()
            return ast.NullPredicate(name, negated, quoted, at=self.since(start))
        if self.word("in"):
            self.advance()
            return ast.InPredicate(name, self.parse_items(), quoted, at=self.since(start))
        return self.expected("a comparison", help="`where` takes one comparison, `is null` or `in`")
