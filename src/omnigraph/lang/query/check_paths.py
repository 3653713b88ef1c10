"""Typing of paths: `$path = shortest $a knows{1,5} $b`, and what is asked of `$path`."""

from __future__ import annotations

from omnigraph.lang.query import ast
from omnigraph.lang.query.resolved import Traverse
from omnigraph.lang.query.scope import ANONYMOUS, PATH_VALUES, BoundPath, Scope, raise_fault
from omnigraph.lang.query.terms import EntityId, PathPart, ShortestPath
from omnigraph.lang.source import Span
from omnigraph.lang.types import I64, STRING, Scalar, ValueType

MAX_PATH_HOPS = 1_000
"""The longest path that can be asked for."""

_SHAPE = "write a path as `$path = shortest $a knows{1,6} $b`"
_TYPES = {
    "length": I64,
    "nodes": ValueType(Scalar.STRING, is_list=True),
    "edges": ValueType(Scalar.STRING, is_list=True),
}


def check_path(scope: Scope, clause: ast.Traversal) -> None:
    """Check the path of a traversal, before the traversal itself."""
    name, hops = clause.path, clause.hops
    if name is None:
        return
    if name == ANONYMOUS or name in (clause.left, clause.right, clause.edge_var):
        raise_fault("T36", "a path needs a name of its own", clause.at, _SHAPE)
    if name in scope.parameters:
        raise_fault("T36", f"path `${name}` has the name of a parameter", clause.at, _SHAPE)
    if scope.find(name) is not None or scope.find_path(name) is not None:
        raise_fault("T36", f"variable `${name}` is already bound; a path needs a fresh name", clause.at)
    if clause.edge_var is not None:
        raise_fault("T36", f"path `${name}` binds no single edge", clause.at, PATH_VALUES)
    if hops is None or hops.minimum != 1:
        raise_fault(
            "T36",
            f"path `${name}` needs bounds from 1, like `{clause.edge}{{1,6}}`",
            clause.at,
            help="for a minimum test `length($path)`",
        )
    if hops.maximum is not None and hops.maximum > MAX_PATH_HOPS:
        raise_fault("T36", f"a path has at most {MAX_PATH_HOPS} edges", clause.at)


def bind_path(scope: Scope, name: str, step: Traverse) -> ShortestPath:
    """The path of a checked traversal, known from here on."""
    ends = EntityId(step.left, STRING), EntityId(step.right, STRING)
    found = ShortestPath(name, *ends, step.edge_type, step.direction, step.maximum)
    scope.paths[name] = BoundPath(found)
    return found


def refuse_paths(scope: Scope, at: Span, *names: str | None) -> None:
    """A path is no node and no edge."""
    for name in names:
        if name is not None and name != ANONYMOUS and scope.find_path(name) is not None:
            raise_fault("T36", f"`${name}` is a path, which stands for no node and no edge", at, PATH_VALUES)


def check_optional_paths(
    scope: Scope, inner: Scope, clause: ast.OptionalBlock, before: frozenset[str]
) -> None:
    """Make the paths of an optional block known after it; `before` are the variables bound before it.

    Whether the block had a solution shows in a variable that it binds; where it binds none, the path itself
    must be all that is asked for.
    """
    for name in [name for name in inner.paths if name not in scope.paths]:
        path = inner.paths[name].path
        if {path.start.var, path.end.var} <= before and len(clause.clauses) > 1:
            raise_fault(
                "T36",
                f"both ends of path `${name}` are bound before the optional block",
                clause.at,
                help="give the path an optional block of its own",
            )
        scope.paths[name] = BoundPath(path, optional=True)


def check_path_call(scope: Scope, expr: ast.PathCall) -> PathPart:
    """`length($path)`, `nodes($path)` or `edges($path)`."""
    argument = expr.argument
    found = scope.find_path(argument.name) if isinstance(argument, ast.VarRef) else None
    if found is None:
        raise_fault("T36", f"{expr.fn} requires a path", argument.at, _SHAPE)
    return PathPart(expr.fn, found.path, _TYPES[expr.fn].with_nullable(found.optional))
