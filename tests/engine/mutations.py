"""Carry out a mutation on an `OpenGraph` as `Graph.mutate` does: compiled again when the schema moved."""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.engine.graph.open_graph import OpenGraph
from omnigraph.engine.write.mutate import MutationResult, MutationSchema, SchemaMoved, mutate
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import OmnigraphError
from omnigraph.lang.query.compile import CompiledMutation, compile_query
from omnigraph.lang.schema.catalog import Catalog

Compile = Callable[[str, Catalog], CompiledMutation]


def compile_statements(text: str, catalog: Catalog) -> CompiledMutation:
    """The mutation with these statements."""
    found = compile_query(f"query q() {{ {text} }}", catalog)
    assert isinstance(found, CompiledMutation)
    return found


def run_mutation(
    graph: OpenGraph, text: str, author: Author, compiled: Compile = compile_statements
) -> MutationResult:
    """Carry out statements under the schema of that moment."""
    schema = MutationSchema(graph)
    while True:
        try:
            ready = compiled(text, schema.catalog)
        except OmnigraphError as wrong:
            schema.reread(wrong)
            continue
        try:
            return mutate(graph, ready, {}, author)
        except SchemaMoved as moved:
            schema.follow(moved)
