"""Checks statements by their text, for a Connect server, which shows no plan: what cannot be read is refused.

Two readers must agree. A scan of the tokens finds every name before a bracket, the only way to call a
function, and a parser finds the relations. Comments are taken out first, and the server gets the text without
them, so that it cannot read as code what is a comment here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from omnigraph.errors import MissingExtra
from omnigraph.pipeline.declared.sql import NotOneQuery, Token, scan_tokens, strip_comments
from omnigraph.pipeline.sql_guard.permitted import is_permitted_relation
from omnigraph.pipeline.sql_guard.refusal import (
    NotPermitted,
    refuse_substitution,
    refused_function,
    refused_part,
    refused_relation,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from sqlglot import exp

_SYNTAX_TEXT = """
all and any array as between by case char cross cube decimal dec numeric distinct else except exclude exists
filter from group grouping having if ilike in intersect interval join lateral like limit minus not offset on
or over partition pivot qualify range rlike rollup rows select sets struct tablesample then timestampadd
timestampdiff try_cast union unpivot using values varchar when where with within
"""
_SYNTAX = frozenset(_SYNTAX_TEXT.split())
"""Words of the grammar and of types that a bracket may follow."""
_BEFORE_ALIAS = frozenset({"AS", "RECURSIVE", "WITH"})
"""What follows is the name of a relation or a type, and its columns or lengths are in the bracket."""
_NO_BRACKETS = frozenset({"current_user", "session_user", "user"})
"""Functions that are called by their name alone."""
_PLAIN = frozenset("()[],.;:+-*/%&|^~!=<>?0123456789")


class TextGuard:
    """The guard of a session on a Connect server."""

    def check_query(self, sql: str, views: Collection[str]) -> str:
        """Check a query, and return it without comments."""
        return _check_text(sql, "", views)

    def check_expression(self, sql: str, views: Collection[str]) -> str:
        """Check an expression, and return it without comments."""
        return _check_text(sql, "SELECT ", views)

    def check_frame(self, frame: DataFrame, views: Collection[str], base: str | None = None) -> None:
        """Accept the frame: a server shows no plan, and its texts were checked."""


def _check_text(sql: str, before: str, views: Collection[str]) -> str:
    refuse_substitution(sql)
    try:
        plain = strip_comments(sql)
        found = list(scan_tokens(plain))
    except NotOneQuery as wrong:
        raise NotPermitted(str(wrong)) from None
    for number, token in enumerate(found):
        _check_token(token, found[:number][-1:], found[number + 1 : number + 2])
    tree = _parse_statement(before + plain)
    _check_tree(tree, {view.lower() for view in views})
    return plain


def _check_token(token: Token, before: Sequence[Token], after: Sequence[Token]) -> None:
    previous, following = (each[0].text if each else "" for each in (before, after))
    if token.kind == "other" and token.text not in _PLAIN:
        raise refused_part(f"'{token.text}' over Spark Connect")
    if token.kind == "quoted" and token.text[0] in "rR":
        raise refused_part("a raw string over Spark Connect")
    if token.word == "USING" and following[:1] in ("'", '"'):
        raise refused_part("`TRANSFORM ... USING`, which runs a program,")
    name = _read_name(token)
    if name is None:
        return
    if following == "(":
        if not _may_open_bracket(name, token, previous):
            raise refused_function(name)
    elif name in _NO_BRACKETS and "." not in (previous, following):
        raise NotPermitted(f"'{name}' may be a function; write a column of this name with its view before it")


def _may_open_bracket(name: str, token: Token, previous: str) -> bool:
    if previous == ".":
        return False
    if previous.upper() in _BEFORE_ALIAS or (name in _SYNTAX and token.kind == "word"):
        return True
    # A digit belongs to the name: Spark has names that begin with one.
    return is_permitted_relation(name) and not previous.isdigit()


def _read_name(token: Token) -> str | None:
    """What a token could be the name of, in small letters."""
    if token.kind == "word":
        return token.text.lower()
    if token.kind == "quoted" and token.text[0] in '`"':
        return token.text[1:-1].lower()
    return None


def _parse_statement(sql: str) -> exp.Expr:
    try:
        from sqlglot import ErrorLevel, parse
        from sqlglot.errors import SqlglotError
    except ModuleNotFoundError:
        raise MissingExtra("a statement over Spark Connect", package="sqlglot", extra="spark") from None
    try:
        [tree] = parse(sql, read="spark", error_level=ErrorLevel.RAISE)
    except (SqlglotError, ValueError, RecursionError):
        tree = None
    if tree is None:
        raise NotPermitted("this statement cannot be checked over Spark Connect")
    return tree


def _check_tree(tree: exp.Expr, views: set[str]) -> None:
    from sqlglot import exp

    if not isinstance(tree, exp.Query):
        raise refused_part(f"'{tree.key}'")
    if any(tree.find_all(exp.Command, exp.DDL, exp.DML, exp.Hint, exp.QueryTransform, exp.Into)):
        raise refused_part("a command, a hint or a program")
    named = {str(each.alias).lower() for each in tree.find_all(exp.CTE)}
    for name in _find_relations(tree):
        if name not in views | named:
            raise refused_relation(name)


def _find_relations(tree: exp.Expr) -> Iterator[str]:
    from sqlglot import exp

    for table in tree.find_all(exp.Table):
        parts = [part for part in (table.catalog, table.db) if part]
        if isinstance(table.this, exp.Identifier) or parts:
            yield ".".join((*parts, table.name)).lower()
