"""Compiles comparisons of the query language to Lance filters, so that tasks read less.

Filters that Spark pushes down are not used: it applies them to every later use of the same DataFrame,
filtered or not.
"""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.engine.graph.layout import split_key
from omnigraph.engine.graph.root import wall_clock
from omnigraph.engine.rows.predicate import Bindings, render_predicate
from omnigraph.errors import BadRequest
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.lang.query.resolved import DeleteEdges, DeleteNodes
from omnigraph.lang.schema.catalog import Catalog

_KINDS = {"node": DeleteNodes, "edge": DeleteEdges}


def compile_filter(catalog: Catalog, key: str, where: str | Sequence[str]) -> str:
    """Return the Lance filter for comparisons, each written as after `where` in a mutation: `age >= 30`."""
    given = where.splitlines() if isinstance(where, str) else where
    wanted = [text for text in given if text.strip()]
    if not wanted:
        raise BadRequest("a filter needs a comparison", remedy='as in `where="age >= 30"`')
    return " AND ".join(f"({_compile_comparison(catalog, key, text)})" for text in wanted)


def _compile_comparison(catalog: Catalog, key: str, text: str) -> str:
    kind, name = split_key(key)
    # The tests of a mutation are exactly those that Lance answers as we do.
    compiled = compile_query(f"query rows() {{ delete {name} where {text} }}", catalog)
    match compiled:
        case CompiledMutation(statements=(DeleteNodes() | DeleteEdges() as found,)):
            if isinstance(found, _KINDS[kind]):
                return render_predicate(found.where, Bindings(now=wall_clock() // 1000))
    raise BadRequest(f"'{text}' is not one comparison", remedy='write one, as in `where="age >= 30"`')
