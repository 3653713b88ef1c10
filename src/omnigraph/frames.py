"""Graphs from frames: a schema inferred from data, and a graph made and loaded in one call."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omnigraph.arguments import check_function_arguments
from omnigraph.errors import AlreadyInitialized, BadRequest, OmnigraphError
from omnigraph.lang.values import shorten_legibly

if TYPE_CHECKING:
    from omnigraph.engine.inference.samples import Sample
    from omnigraph.engine.inference.type_guesses import TypeGuess
    from omnigraph.graph import Graph

__all__ = ["from_frames", "infer_schema"]


@check_function_arguments
def infer_schema(data: Mapping[Any, Any], *, keys: Mapping[str, Any] | None = None) -> str:
    """Return a schema that rows of several types fit, with comments on what was guessed.

    `data` has rows or the path of a file for each type, as in `{"Person": people, "Knows": "knows.csv"}`.
    Tables with columns `from` and `to`, `src` and `dst`, or `source` and `target` are edges; with
    `("Person", "Knows", "Person")` in place of a name, the caller says which types they join. `keys` names
    the properties that identify nodes, one or several: `{"Person": "handle"}`.
    """
    from omnigraph.engine.inference.schema_text import infer_schema_text

    return infer_schema_text(_samples(data, None), _parse_keys(keys))


@check_function_arguments
def from_frames(
    uri: str | os.PathLike[str],
    nodes: Mapping[Any, Any],
    edges: Mapping[Any, Any] | None = None,
    *,
    keys: Mapping[str, Any] | None = None,
    actor: str | None = None,
) -> Graph:
    """Make a graph at an empty place, with the schema and the rows of frames, and open it.

    `nodes` and `edges` have rows, or the path of a file, for each type; `edges` may name what they join:
    `{("Person", "Knows", "Person"): knows}`. Ends are in the columns `from` and `to`, `src` and `dst`,
    `source` and `target`, or else in the first two. The schema is that of `infer_schema`, which describes
    `keys`; it is stored with its comments, and `graph.apply_schema` changes it. A call that failed because of
    its rows can be repeated.
    """
    from omnigraph.engine.inference.schema_text import render_schema
    from omnigraph.engine.inference.type_guesses import guess_types

    samples = [*_samples(nodes, is_edge=False), *_samples(edges or {}, is_edge=True)]
    guesses = guess_types(samples, _parse_keys(keys))
    tables = {guess.table_key: _rows(guess) for guess in guesses}
    graph = _create(uri, render_schema(guesses))
    try:
        graph.load(tables, mode="append", actor=actor)
    except OmnigraphError as failure:
        graph.close()
        failure.add_note(f"the graph '{graph.uri}' was created and is empty; fix the rows, and call again")
        raise
    return graph


def _create(uri: str | os.PathLike[str], schema: str) -> Graph:
    """A new graph, or an empty one that an earlier call with the same schema left behind."""
    from omnigraph import graph

    try:
        return graph.init(uri, schema=schema)
    except AlreadyInitialized:
        found = graph.open(uri)
        is_empty = not any(table.rows for table in found.snapshot().tables.values())
        if is_empty and not found.plan_schema(schema).steps:
            return found
        found.close()
        raise


def _rows(guess: TypeGuess) -> Any:
    """The rows of a type, with columns called like their properties."""
    unusable = next((one for one in guess.properties if one.guess.type is None), None)
    if unusable is not None:
        raise BadRequest(
            f"the column '{shorten_legibly(unusable.column)}' of {guess.name} cannot be loaded: "
            f"{unusable.guess.note}",
            remedy="leave it out, or write its parts as columns of their own",
        )
    names = {one.column: one.name for one in guess.properties}
    if guess.end_columns is not None:
        names.update(zip(guess.end_columns, ("src", "dst"), strict=True))
    table = guess.sample.table
    return table.rename_columns([names.get(name, name) for name in table.column_names])


def _samples(data: Mapping[Any, Any], is_edge: bool | None) -> Iterator[Sample]:
    """The rows of each type; a name of three parts is that of edges with the types that they join."""
    from omnigraph.engine.inference.samples import sample_data

    for name, rows in data.items():
        if isinstance(name, str):
            sample = sample_data(name, rows)
            yield sample if is_edge is None else replace(sample, is_edge=is_edge)
        elif is_edge is not False and _is_triple(name):
            source, type_name, target = name
            yield replace(sample_data(type_name, rows), is_edge=True, ends=(source, target))
        else:
            raise BadRequest(
                f"{shorten_legibly(repr(name))} is not the name of a type",
                remedy='write "Person", or for edges ("Person", "Knows", "Person")',
            )


def _is_triple(name: object) -> bool:
    return isinstance(name, tuple) and len(name) == 3 and all(isinstance(part, str) for part in name)


def _parse_keys(keys: Mapping[str, Any] | None) -> dict[str, Sequence[str]]:
    found: dict[str, Sequence[str]] = {}
    for name, columns in (keys or {}).items():
        parts = (columns,) if isinstance(columns, str) else tuple(columns)
        if not parts or not all(isinstance(part, str) for part in parts):
            raise BadRequest(
                f"the key of '{shorten_legibly(name)}' is not the name of a property",
                remedy='write {"Person": "handle"}, or {"Flight": ["carrier", "number"]}',
            )
        found[name] = parts
    return found
