"""`.gq`: what may follow at a place, what a word means, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import get_args

from omnigraph.lang.assist.reading import (
    Description,
    Item,
    SchemaPlace,
    Token,
    read_tokens,
    split_at,
    token_at,
)
from omnigraph.lang.assist.type_text import describe_property, describe_type, document_property
from omnigraph.lang.assist.variables import (
    Owner,
    Variables,
    find_edge,
    find_type,
    find_variables,
    tokens_of_query,
)
from omnigraph.lang.query.ast import DatePartFn, IntervalFn
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Source, Span
from omnigraph.lang.tokens import LOWER, UPPER, VAR
from omnigraph.lang.types import Scalar

FUNCTIONS = {
    "count": "count(e): rows where e is not null",
    "sum": "sum(e): the sum of numbers",
    "avg": "avg(e): the mean of numbers",
    "min": "min(e): the smallest value",
    "max": "max(e): the largest value",
    "collect": "collect(e): a list of the values",
    "coalesce": "coalesce(a, b): the first value that is not null",
    "length": "length($path): how many edges a path has",
    "nodes": "nodes($path): the ids of the nodes of a path",
    "edges": "edges($path): the ids of the edges of a path",
    "lower": "lower(text): in lowercase",
    "upper": "upper(text): in uppercase",
    "search": "search(field, text): whether a word of the text occurs",
    "match_text": "match_text(field, text): whether a word of the text occurs",
    "fuzzy": "fuzzy(field, text): the same, with typos",
    "bm25": "bm25(field, text): relevance, to order by",
    "nearest": "nearest($v.vector, query): distance, to order by",
    "rrf": "rrf(ranking, ranking): two rankings fused",
    "now": "now(): the time of the request",
    "date": 'date("2030-01-31"): a Date',
    "datetime": 'datetime("2030-01-31T12:00:00Z"): a DateTime',
    **{part: f"{part}(date): a part of a date" for part in get_args(DatePartFn)},
    **{unit: f"{unit}(n): to be added to a date" for unit in get_args(IntervalFn)},
}
STATEMENTS = ("insert", "upsert", "create", "update", "delete")
CLAUSES = ("match", "return", "having", "order", "limit", "offset", *STATEMENTS)
WORDS = (
    "query",
    *CLAUSES,
    "distinct",
    "optional",
    "not",
    "and",
    "or",
    "in",
    "is",
    "null",
    "as",
    "asc",
    "desc",
    "shortest",
    "case",
    "when",
    "then",
    "else",
    "end",
)
OPERATORS = ("contains", "starts_with", "ends_with", "like", "ilike", "matches", "in", "is")
AFTER_UPDATE = ("set", "where")
_BLOCKS = frozenset({"match", "return", "order", "optional", "not", "set"})


def complete_query(source: Source, offset: int, catalog: Catalog) -> list[Item]:
    """Return what may be written at a place; only what begins like the word that is there."""
    tokens = read_tokens(source)
    before, written = split_at(tokens_of_query(tokens, offset), offset)
    # Names that are bound later count too: queries are not written from left to right.
    variables = find_variables(tokens_of_query(tokens, offset), catalog)
    found = _candidates([one for one in before if one.start < offset], written, variables, catalog)
    folded = written.casefold()
    unique = {item.label: item for item in found if item.label.casefold().startswith(folded)}
    return [item for item in unique.values() if item.label != written or item.kind != "variable"]


def _candidates(
    before: Sequence[Token], written: str, variables: Variables, catalog: Catalog
) -> Iterator[Item]:
    last = before[-1] if before else None
    if written.startswith("$"):
        yield from _variable_items(variables)
    elif last is None:
        yield Item("query", "keyword")
    elif last.kind == "." and len(before) > 1:
        yield from _property_items(variables.types.get(before[-2].text))
    elif last.kind == ":":
        yield from _type_items(before, catalog)
    elif last.text in STATEMENTS:
        yield from _named(catalog.nodes, "node")
        yield from _named(catalog.edges, "edge")
    else:
        yield from _words(before, last, variables, catalog)


def _words(before: Sequence[Token], last: Token, variables: Variables, catalog: Catalog) -> Iterator[Item]:
    owner = _owner_of_braces(before, catalog)
    if owner is not None and last.kind in ("{", ","):
        if owner.name in catalog.edges:
            yield from (Item(end, "property") for end in ("from", "to"))
        yield from _property_items(owner)
        return
    if last.kind == VAR:
        yield from _edge_items(variables.types.get(last.text), catalog)
        yield from (Item(word, "keyword") for word in OPERATORS)
        return
    if last.kind == UPPER:
        yield from (Item(word, "keyword") for word in AFTER_UPDATE)
    if last.text == "where" and (owner := _owner_of_statement(before, catalog)) is not None:
        yield from _property_items(owner)
        return
    yield from _variable_items(variables)
    yield from (Item(name, "function", detail) for name, detail in FUNCTIONS.items())
    yield from (Item(word, "keyword") for word in WORDS)


def _variable_items(variables: Variables) -> Iterator[Item]:
    for name in variables.places:
        owner = variables.types.get(name)
        detail = owner.name if owner is not None else variables.parameters.get(name, "")
        yield Item(name, "variable", detail)


def _property_items(owner: Owner | None) -> Iterator[Item]:
    if owner is not None:
        for one in owner.properties.values():
            yield Item(one.name, "property", str(one.type))


def _type_items(before: Sequence[Token], catalog: Catalog) -> Iterator[Item]:
    """Yield what follows a colon: a node type, an edge or the type of a parameter."""
    if all(token.kind != "{" for token in before):
        yield from (Item(str(scalar), "type") for scalar in Scalar)
        return
    yield from _named(catalog.nodes, "node")
    yield from _edge_items(None, catalog)


def _named(types: Iterable[str], kind: str) -> Iterator[Item]:
    yield from (Item(name, "type", kind) for name in types)


def _edge_items(owner: Owner | None, catalog: Catalog) -> Iterator[Item]:
    for edge in catalog.edges.values():
        if owner is None or owner.name in (edge.source, edge.target):
            word = edge.name[0].lower() + edge.name[1:]
            yield Item(word, "edge", f"{edge.source} -> {edge.target}")


def _owner_of_braces(before: Sequence[Token], catalog: Catalog) -> Owner | None:
    """Return the type whose properties stand in the innermost braces that are open."""
    depth = 0
    for number in range(len(before) - 1, -1, -1):
        kind = before[number].kind
        depth += {"}": 1, "{": -1}.get(kind, 0)
        if depth < 0:
            opener = before[number - 1] if number else None
            if opener is None or opener.text in _BLOCKS - {"set"}:
                return None
            if opener.text == "set":
                return _owner_of_statement(before[: number - 1], catalog)
            return find_type(catalog, opener.text) if opener.kind == UPPER else None
    return None


def _owner_of_statement(before: Sequence[Token], catalog: Catalog) -> Owner | None:
    """Return the type of the last statement."""
    for statement, name in reversed(list(pairwise(before))):
        if statement.text in STATEMENTS and name.kind == UPPER:
            return find_type(catalog, name.text)
    return None


def describe_query_word(source: Source, offset: int, catalog: Catalog) -> Description | None:
    """Return what the word at a place means."""
    tokens = tokens_of_query(read_tokens(source), offset)
    number = token_at(tokens, offset)
    if number is None:
        return None
    token = tokens[number]
    place = _find_place(tokens, number, catalog)
    if place is not None and (owner := find_type(catalog, place.type_name)) is not None:
        if place.property_name is None:
            return Description(describe_type(owner), token.span)
        return Description(document_property(owner.properties[place.property_name], owner), token.span)
    if token.kind == VAR:
        text = _describe_variable(find_variables(tokens, catalog), token.text)
        return None if text is None else Description(text, token.span)
    if token.text in FUNCTIONS:
        return Description(FUNCTIONS[token.text], token.span)
    return None


def _describe_variable(variables: Variables, name: str) -> str | None:
    owner = variables.types.get(name)
    if owner is not None:
        lines = [f"  {describe_property(one, owner)}" for one in owner.properties.values()]
        return "\n".join([f"{name}: {owner.name}", *lines])
    written = variables.parameters.get(name)
    return None if written is None else f"{name}: {written} (parameter)"


def find_query_definition(source: Source, offset: int, catalog: Catalog) -> SchemaPlace | Span | None:
    """Return where the word at a place comes from: the schema, or a place of this text."""
    tokens = tokens_of_query(read_tokens(source), offset)
    number = token_at(tokens, offset)
    if number is None:
        return None
    place = _find_place(tokens, number, catalog)
    if place is not None:
        return place
    if tokens[number].kind == VAR:
        return find_variables(tokens, catalog).places.get(tokens[number].text)
    return None


def _find_place(tokens: Sequence[Token], number: int, catalog: Catalog) -> SchemaPlace | None:
    token, before = tokens[number], tokens[:number]
    if token.kind == UPPER:
        return SchemaPlace(token.text) if find_type(catalog, token.text) is not None else None
    if token.kind != LOWER or not before:
        return None
    if before[-1].kind == "." and len(before) > 1:
        return _property_place(find_variables(tokens, catalog).types.get(before[-2].text), token.text)
    follows = tokens[number + 1].kind if number + 1 < len(tokens) else ""
    if before[-1].kind in (VAR, "<") or (before[-1].kind == ":" and before[-2:-1] and before[-2].kind == VAR):
        edge = find_edge(catalog, token.text)
        return None if edge is None else SchemaPlace(edge.name)
    if follows == ":":
        return _property_place(_owner_of_braces(before, catalog), token.text)
    if before[-1].text == "where":
        return _property_place(_owner_of_statement(before, catalog), token.text)
    return None


def _property_place(owner: Owner | None, name: str) -> SchemaPlace | None:
    return SchemaPlace(owner.name, name) if owner is not None and name in owner.properties else None
