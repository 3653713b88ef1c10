"""Find where the variables of a read are mentioned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from omnigraph.lang.query import ast
from omnigraph.lang.query.scope import ANONYMOUS


def find_mentions(read: ast.Read) -> Iterator[str]:
    """Every mention of a variable in a read, as often as it is written."""
    for part in (*read.match, *read.returns, *read.order):
        yield from _find_mentions(part)


def _find_mentions(part: object) -> Iterator[str]:
    match part:
        case ast.VarRef(name=name):
            yield name
        case ast.PropRef(var=var):
            yield var
        case ast.Traversal(left=left, right=right, edge_var=edge_var):
            yield from (left, right)
            if edge_var is not None:
                yield edge_var
        case tuple():
            for item in part:
                yield from _find_mentions(item)
        case ast.Syntax():
            if isinstance(part, ast.Binding):
                yield part.var
            for field in fields(part):
                yield from _find_mentions(getattr(part, field.name))


def find_optional_variables(clauses: tuple[ast.Clause, ...]) -> list[str]:
    """The named variables that optional blocks introduce, in source order."""
    seen = {
        name
        for clause in clauses
        if not isinstance(clause, ast.OptionalBlock)
        for name in _find_mentions(clause)
    }
    found: dict[str, None] = {}
    for clause in clauses:
        if isinstance(clause, ast.OptionalBlock):
            found.update(dict.fromkeys(name for name in _binds(clause.clauses) if name not in seen))
    return [name for name in found if name != ANONYMOUS]


def _binds(clauses: tuple[ast.Clause, ...]) -> Iterator[str]:
    for clause in clauses:
        match clause:
            case ast.Binding(var=var):
                yield var
            case ast.Traversal(left=left, right=right, edge_var=edge_var):
                yield from (left, right)
                if edge_var is not None:
                    yield edge_var
            case ast.OptionalBlock(clauses=inner):
                yield from _binds(inner)
