"""Schemas inferred from frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omnigraph.arguments import check_function_arguments
from omnigraph.errors import BadRequest
from omnigraph.lang.values import shorten_legibly

if TYPE_CHECKING:
    from omnigraph.engine.inference.samples import Sample

__all__ = ["infer_schema"]


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
