"""Syntax tree to `.gq` text; parsing the text gives the same tree back."""

from __future__ import annotations

import re

from omnigraph.lang.query import ast
from omnigraph.lang.tokens import escape
from omnigraph.lang.types import DATE, DATETIME, STRING

_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2}
_INDENT = "  "
_JOINING = re.compile(r"(and|or)\b")
_BARE_WORD = re.compile(r"(?<![$.A-Za-z0-9_])(?!true\Z|false\Z)[a-z_][A-Za-z0-9_]*\Z")


def print_file(file: ast.QueryFile) -> str:
    """A whole query file."""
    return "\n".join(print_query(query) for query in file.queries)


def print_query(query: ast.Query) -> str:
    """One query, a clause per line."""
    parameters = ", ".join(f"${parameter.name}: {parameter.type}" for parameter in query.parameters)
    lines = [f"query {query.name}({parameters})"]
    if query.description is not None:
        lines.append(f"{_INDENT}@description({escape(query.description)})")
    if query.instruction is not None:
        lines.append(f"{_INDENT}@instruction({escape(query.instruction)})")
    body = (
        _print_read(query.body)
        if isinstance(query.body, ast.Read)
        else [_print_mutation(item) for item in query.body]
    )
    return "\n".join([*lines, "{", *(f"{_INDENT}{line}" for line in body), "}", ""])


def _print_read(read: ast.Read) -> list[str]:
    lines = ["match {", *_indent_clauses(read.match), "}"]
    lines.append(f"return {'distinct ' if read.distinct else ''}{{")
    lines += [f"{_INDENT}{_print_projection(projection)}," for projection in read.returns]
    lines.append("}")
    if read.having:
        lines += ["having {", *(f"{_INDENT}{print_condition(each)}" for each in read.having), "}"]
    if read.order:
        lines.append(f"order {{ {', '.join(_order_term(item) for item in read.order)} }}")
    for word, count in (("limit", read.limit), ("offset", read.offset)):
        if count is not None:
            lines.append(f"{word} {count if isinstance(count, int) else f'${count.name}'}")
    return lines


def _indent_clauses(clauses: tuple[ast.Clause, ...]) -> list[str]:
    return [f"{_INDENT}{line}" for clause in clauses for line in _print_clause(clause)]


def _print_projection(projection: ast.Projection) -> str:
    alias = f" as {projection.alias}" if projection.alias is not None else ""
    if isinstance(projection.expr, ast.AllProperties):
        return f"${projection.expr.var}.*"
    return f"{print_expr(projection.expr)}{alias}"


def _order_term(item: ast.OrderTerm) -> str:
    return f"{print_expr(item.expr)}{f' {item.direction}' if item.direction else ''}"


def _print_clause(clause: ast.Clause) -> list[str]:
    match clause:
        case ast.Binding():
            pairs = ", ".join(f"{match.name}: {print_expr(match.value)}" for match in clause.matches)
            return [f"${clause.var}: {clause.type_name}{f' {{ {pairs} }}' if pairs else ''}"]
        case ast.Traversal():
            return [_print_traversal(clause)]
        case ast.Negation():
            return ["not {", *_indent_clauses(clause.clauses), "}"]
        case ast.OptionalBlock():
            return ["optional {", *_indent_clauses(clause.clauses), "}"]
        case _:
            return [print_condition(clause)]


def print_condition(condition: ast.Condition) -> str:
    """One condition, with the parentheses it needs and no others."""
    match condition:
        case ast.Comparison():
            return f"{_first_operand(condition.left)} {condition.op} {_last_operand(condition.right)}"
        case ast.NullTest():
            return f"{_first_operand(condition.argument)} is {'not ' if condition.negated else ''}null"
        case ast.InTest():
            return f"{_first_operand(condition.argument)} in {print_expr(condition.items)}"
        case ast.TextFilter():
            return print_expr(condition.call)
        case ast.NotTest():
            return f"not ({print_condition(condition.condition)})"
        case ast.Junction(word=word, conditions=conditions):
            return f" {word} ".join(_print_arm(word, each) for each in conditions)


def _print_arm(word: ast.JunctionWord, condition: ast.Condition) -> str:
    text = print_condition(condition)
    weaker = isinstance(condition, ast.Junction) and word in ("and", condition.word)
    return f"({text})" if weaker else text


def _first_operand(expr: ast.Expr) -> str:
    """The left side of a filter; a bare variable could be read as a traversal, and a sign or the words that
    join conditions would join the clause to the one before it."""
    text = print_expr(expr)
    joins = text.startswith("-") or _JOINING.match(text)
    return f"({text})" if isinstance(expr, ast.VarRef) or joins else text


def _last_operand(expr: ast.Expr) -> str:
    """The right side of a filter; a bare word would take a parenthesis that begins the next clause."""
    text = print_expr(expr)
    return f"({text})" if _BARE_WORD.search(text) else text


def _print_traversal(clause: ast.Traversal) -> str:
    edge_var = f"${clause.edge_var}:" if clause.edge_var is not None else ""
    name = f"<{clause.edge}>" if clause.undirected else clause.edge
    hops = ""
    if clause.hops is not None:
        high = "" if clause.hops.maximum is None else clause.hops.maximum
        hops = f"{{{clause.hops.minimum},{high}}}"
    path = f"${clause.path} = shortest " if clause.path is not None else ""
    return f"{path}${clause.left} {edge_var}{name}{hops} ${clause.right}"


def _print_mutation(item: ast.Mutation) -> str:
    match item:
        case ast.Insert():
            return f"{item.verb} {item.type_name} {_print_assignments(item.assignments)}"
        case ast.Update():
            assigned, where = _print_assignments(item.assignments), _print_predicate(item.where)
            return f"update {item.type_name} set {assigned} where {where}"
        case ast.Delete():
            return f"delete {item.type_name} where {_print_predicate(item.where)}"


def _print_assignments(assignments: tuple[ast.Assignment, ...]) -> str:
    return f"{{ {', '.join(f'{_print_name(item)}: {print_expr(item.value)}' for item in assignments)} }}"


def _print_name(item: ast.Assignment | ast.Predicate) -> str:
    return f"`{item.name}`" if item.quoted else item.name


def _print_predicate(predicate: ast.Predicate) -> str:
    match predicate:
        case ast.ComparePredicate():
            return f"{_print_name(predicate)} {predicate.op} {print_expr(predicate.value)}"
        case ast.NullPredicate():
            return f"{_print_name(predicate)} is {'not ' if predicate.negated else ''}null"
        case ast.InPredicate():
            return f"{_print_name(predicate)} in {print_expr(predicate.items)}"


def print_expr(expr: ast.Expr) -> str:
    """One expression, with the parentheses it needs and no others."""
    match expr:
        case ast.Literal():
            return _print_literal(expr)
        case ast.ListLiteral(items=items):
            return f"[{', '.join(print_expr(item) for item in items)}]"
        case ast.Null():
            return "null"
        case ast.Now():
            return "now()"
        case ast.VarRef(name=name):
            return f"${name}"
        case ast.PropRef(var=var, name=name):
            return f"${var}.{name}"
        case ast.AliasRef(name=name):
            return name
        case ast.Arithmetic():
            return _print_arithmetic(expr)
        case ast.Negate(argument=argument):
            # A number straight after the sign would become part of the literal.
            text = print_expr(argument)
            return f"-({text})" if isinstance(argument, ast.Arithmetic) or text[0].isdigit() else f"-{text}"
    return _print_call(expr)


def _print_call(expr: ast.Expr) -> str:
    match expr:
        case (
            ast.CaseCall(fn=fn, argument=argument)
            | ast.DateCall(fn=fn, argument=argument)
            | ast.PathCall(fn=fn, argument=argument)
        ):
            return f"{fn}({print_expr(argument)})"
        case ast.Interval(unit=unit, amount=amount):
            return f"{unit}({print_expr(amount)})"
        case ast.Coalesce(arguments=arguments):
            return f"coalesce({_print_list(*arguments)})"
        case ast.CaseWhen(branches=branches, otherwise=otherwise):
            last = "" if otherwise is None else f" else {_print_chosen(otherwise)}"
            return f"case {' '.join(map(_print_branch, branches))}{last} end"
        case ast.Aggregate(fn=fn, argument=argument, distinct=distinct):
            return _print_aggregate(fn, print_expr(argument), distinct)
        case ast.Nearest(target=target, query=query):
            return f"nearest({print_expr(target)}, {print_expr(query)})"
        case ast.Bm25(field=field, query=query):
            return f"bm25({print_expr(field)}, {print_expr(query)})"
        case ast.Rrf(first=first, second=second, k=k):
            return f"rrf({_print_list(first, second, k)})"
        case ast.TextCall(fn=fn, field=field, query=query, max_edits=edits):
            return f"{fn}({_print_list(field, query, edits)})"
    raise AssertionError(f"no text for {type(expr).__name__}")


def _print_branch(branch: ast.CaseBranch) -> str:
    return f"when {print_condition(branch.condition)} then {_print_chosen(branch.value)}"


def _print_chosen(value: ast.Expr) -> str:
    # A column called `case` would begin another one where `when` follows it.
    text = print_expr(value)
    return f"({text})" if _BARE_WORD.search(text) else text


def _print_aggregate(fn: str, argument: str, distinct: bool) -> str:
    # A column called `distinct` would be read as the keyword when something follows it.
    ambiguous = fn in ("count", "collect") and not distinct and argument.startswith("distinct ")
    inner = f"({argument})" if ambiguous else argument
    return f"{fn}({'distinct ' if distinct else ''}{inner})"


def _print_list(*expressions: ast.Expr | None) -> str:
    return ", ".join(print_expr(expr) for expr in expressions if expr is not None)


def _print_literal(literal: ast.Literal) -> str:
    value = literal.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        call = {STRING: "", DATE: "date", DATETIME: "datetime"}[literal.type]
        return f"{call}({escape(value)})" if call else escape(value)
    return format_float(value) if isinstance(value, float) else str(value)


def format_float(value: float) -> str:
    """Digits, a dot and digits: the grammar has no exponents."""
    text = repr(value)
    if "e" not in text:
        return text
    digits, _, exponent = text.partition("e")
    sign = "-" if digits.startswith("-") else ""
    whole, _, fraction = digits.lstrip("-").partition(".")
    shift = int(exponent)
    if shift > 0:
        fraction = fraction.ljust(shift, "0")
        return f"{sign}{whole}{fraction[:shift]}.{fraction[shift:] or '0'}"
    return f"{sign}0.{'0' * (-shift - 1)}{whole}{fraction if fraction != '0' else ''}"


def _print_arithmetic(expr: ast.Arithmetic) -> str:
    level = _PRECEDENCE[expr.op]
    left, right = print_expr(expr.left), print_expr(expr.right)
    if isinstance(expr.left, ast.Arithmetic) and _PRECEDENCE[expr.left.op] < level:
        left = f"({left})"
    if isinstance(expr.right, ast.Arithmetic) and _PRECEDENCE[expr.right.op] <= level:
        right = f"({right})"
    return f"{left} {expr.op} {right}"
