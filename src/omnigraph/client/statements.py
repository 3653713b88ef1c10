"""Statements of a write as JSON, and the calls that a write block makes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypedDict

from omnigraph.client import decode
from omnigraph.client.calls import Call, decode_json, json_body, json_call, query_of
from omnigraph.client.served_options import refuse_actor, require_known
from omnigraph.client.writes import condition_headers
from omnigraph.engine.graph.branch_names import parse_branch_name
from omnigraph.engine.write.mutate import MutationResult
from omnigraph.engine.write.statement_block import WriteSchema
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import InvalidValue
from omnigraph.lang.query.resolved import (
    DeleteEdges,
    DeleteNodes,
    InsertEdge,
    InsertNode,
    Statement,
    UpdateEdges,
    UpdateNodes,
)
from omnigraph.lang.query.terms import Compare, Const, InList, NullCheck, Predicate, Prop, Term
from omnigraph.lang.schema import compile_schema
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Source

_ENDS = {"src": "from", "dst": "to"}
_KEPT_SCHEMAS = 8


class WriteOptions(TypedDict, total=False):
    """The options of a write block that a server carries out: those of `Graph.write`."""

    actor: str | None
    if_commit: str | None
    retry: int
    message: str | None


def author_of(branch: str, options: WriteOptions) -> Author:
    """Return where a block writes and under which condition; the server knows the actor."""
    require_known(WriteOptions, options)
    refuse_actor(options.get("actor"))
    if_commit = options.get("if_commit")
    condition_headers(if_commit)
    retry, message = options.get("retry", 0), options.get("message")
    return Author(parse_branch_name(branch), None, if_commit, retry, message=message)


def get_write_schema(author: Author) -> Call[WriteSchema]:
    """Return the request for what statements are checked by."""
    return Call("GET", "write/schema", decode_json(_write_schema), query_of(branch=author.branch))


def run_write(
    author: Author, schema: WriteSchema, statements: Sequence[Statement], ids: Sequence[str]
) -> Call[MutationResult]:
    """Return the commit of the statements that a block collected."""
    sent = [statement_json(one, entity_id) for one, entity_id in zip(statements, ids, strict=True)]
    body = json_body(
        statements=sent,
        branch=author.branch,
        retry=author.retry,
        message=author.message,
        schema_fingerprint=schema.fingerprint,
    )
    headers = condition_headers(author.if_commit)
    return json_call("write", decode.mutation, body, is_safe=False, headers=headers)


def statement_json(statement: Statement, entity_id: str) -> dict[str, Any]:
    """Return a statement as plain values; the server checks it again."""
    about: dict[str, Any] = {"type": statement.type_name}
    match statement:
        case InsertNode(values=values, strict=strict):
            return {
                "op": "create" if strict else "insert",
                **about,
                "values": _values(values),
                "id": entity_id,
            }
        case InsertEdge(source=source, target=target, values=values):
            ends = {"from": _constant(source), "to": _constant(target)}
            return {"op": "insert_edge", **about, **ends, "values": _values(values), "id": entity_id}
        case UpdateNodes(values=values, where=where):
            return {"op": "update", **about, "where": _condition(where), "values": _values(values)}
        case UpdateEdges(values=values, where=where):
            return {"op": "update", **about, "where": _condition(where, _ENDS), "values": _values(values)}
        case DeleteNodes(where=where):
            return {"op": "delete", **about, "where": _condition(where)}
        case DeleteEdges(where=where):
            return {"op": "delete", **about, "where": _condition(where, _ENDS)}


def _values(values: Sequence[tuple[str, Term]]) -> dict[str, Any]:
    return {name: _constant(term) for name, term in values}


def _condition(where: Predicate, ends: Mapping[str, str] = MappingProxyType({})) -> list[Any]:
    match where:
        case Compare(op=op, left=column, right=value):
            return [_column(column, ends), op, _constant(value)]
        case InList(argument=column, items=values):
            return [_column(column, ends), "in", _constant(values)]
        case NullCheck(argument=column, negated=is_not):
            return [_column(column, ends), "is not null" if is_not else "is null"]
    raise AssertionError(f"{type(where).__name__} is no test of a write")


def _column(term: Term, ends: Mapping[str, str]) -> str:
    """Return the name of a column; a property is in backquotes, because an end may have the same name."""
    assert isinstance(term, Prop), "a test of a write is about a column"
    return ends.get(term.name) or f"`{term.name}`"


def _constant(term: Term) -> Any:
    assert isinstance(term, Const), "a write in Python has no parameters"
    if isinstance(term.value, float) and not math.isfinite(term.value):
        raise InvalidValue(
            f"a test with {term.value} cannot be sent to a server", remedy="compare with a finite number"
        )
    return term.value


def _write_schema(found: Mapping[str, Any]) -> WriteSchema:
    catalog = _compile(found["schema_source"])
    composite = {name: tuple(order) for name, order in found["composite_keys"].items()}

    def key_order(type_name: str) -> tuple[str, ...]:
        return composite.get(type_name) or catalog.nodes[type_name].key

    return WriteSchema(catalog, found["schema_fingerprint"], key_order)


@lru_cache(_KEPT_SCHEMAS)
def _compile(source: str) -> Catalog:
    return compile_schema(Source(source))
