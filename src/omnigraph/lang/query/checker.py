"""The front of the checker: a parsed query and a catalog in, a resolved query out."""

from __future__ import annotations

from omnigraph.errors import TypeCheckError
from omnigraph.lang.query import ast
from omnigraph.lang.query.check_mutation import check_mutation
from omnigraph.lang.query.check_read import check_read
from omnigraph.lang.query.resolved import ResolvedMutation, ResolvedRead
from omnigraph.lang.query.scope import RESERVED_PARAMETER, Scope
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Problems, Source, TooManyProblems
from omnigraph.lang.types import ValueType

TYPE_CODES = tuple(f"T{number}" for number in range(1, 32))


def check_query(query: ast.Query, catalog: Catalog, source: Source) -> ResolvedRead | ResolvedMutation:
    """Check one query, or raise one `TypeCheckError` with everything that is wrong."""
    problems = Problems(source, TypeCheckError)
    try:
        scope = Scope(catalog, _parameters(query, problems))
        found: ResolvedRead | ResolvedMutation
        if isinstance(query.body, ast.Read):
            found = check_read(query.body, scope, problems)
        else:
            found = check_mutation(query, scope, problems)
    except TooManyProblems:
        problems.raise_if_any(truncated=True)
        raise
    problems.raise_if_any()
    return found


def _parameters(query: ast.Query, problems: Problems) -> dict[str, ValueType]:
    found: dict[str, ValueType] = {}
    for parameter in query.parameters:
        if parameter.name == RESERVED_PARAMETER:
            message = f"parameter name `${parameter.name}` is reserved for runtime timestamp injection"
            problems.add(message, parameter.at)
        if parameter.name in found:
            problems.add(f"parameter `${parameter.name}` is declared more than once", parameter.at)
        found[parameter.name] = parameter.type
    return found
