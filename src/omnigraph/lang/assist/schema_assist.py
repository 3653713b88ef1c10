"""`.pg`: what may follow at a place, what a word means, and where types and properties are declared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from omnigraph.lang.assist.reading import (
    Description,
    Item,
    SchemaPlace,
    Token,
    read_tokens,
    split_at,
    token_at,
)
from omnigraph.lang.assist.type_text import describe_type
from omnigraph.lang.assist.variables import find_type
from omnigraph.lang.schema.catalog import GRANULARITIES, LANGUAGES, METRICS, Catalog
from omnigraph.lang.source import Source, Span
from omnigraph.lang.tokens import LOWER, UPPER
from omnigraph.lang.types import Scalar

DECLARATIONS = ("node", "edge", "interface")
ANNOTATIONS = {
    "key": "identifies a node",
    "unique": "no two entities have the same value",
    "index": "makes reads faster",
    "range": "@range(property, minimum..maximum)",
    "check": '@check(property, "pattern")',
    "card": "@card(minimum..maximum): how many edges a node may have",
    "embed": "@embed(property): a vector of the text in a property",
    "description": '@description("..."): for people and models',
    "instruction": '@instruction("..."): how to use it',
    "rename_from": "@rename_from(old): keeps the data of a renamed type or property",
    "default": "@default(value): what existing entities get",
    "metric": "@metric(cosine): how vectors are compared",
    "text": "@text(german): how texts become words in searches",
    "merge": "@merge(property): what contradicts in merges",
}
CHOICES: Mapping[str, Iterable[str]] = {"metric": METRICS, "text": LANGUAGES, "merge": GRANULARITIES}
"""The names that an annotation takes."""


def complete_schema(source: Source, offset: int) -> list[Item]:
    """Return what may be written at a place."""
    tokens = read_tokens(source)
    before, written = split_at(tokens, offset)
    folded = written.casefold()
    return [item for item in _candidates(tokens, before) if item.label.casefold().startswith(folded)]


def _candidates(tokens: Sequence[Token], before: Sequence[Token]) -> Iterator[Item]:
    last = before[-1] if before else None
    depth = sum({"{": 1, "}": -1}.get(token.kind, 0) for token in before)
    if last is not None and last.kind == "@":
        yield from (Item(name, "keyword", detail) for name, detail in ANNOTATIONS.items())
    elif len(before) > 2 and [token.kind for token in before[-3:]] == ["@", LOWER, "("]:
        yield from (Item(name, "keyword") for name in CHOICES.get(before[-2].text, ()))
    elif last is not None and last.text == "implements":
        yield from _declared(tokens, "interface")
    elif (last is not None and last.kind == "->") or (depth == 0 and last is not None and last.kind == ":"):
        yield from _declared(tokens, "node")
    elif last is not None and last.kind in (":", "["):
        yield from (Item(str(scalar), "type") for scalar in Scalar)
        yield Item("enum", "keyword", "enum(a, b): one of these words")
    elif depth == 0:
        yield from (Item(word, "keyword") for word in (*DECLARATIONS, "implements"))


def _declared(tokens: Sequence[Token], word: str) -> Iterator[Item]:
    for declaration, name in pairwise(tokens):
        if declaration.text == word and name.kind == UPPER:
            yield Item(name.text, "type", word)


def describe_schema_word(source: Source, offset: int, catalog: Catalog) -> Description | None:
    """Return what the word at a place means."""
    tokens = read_tokens(source)
    number = token_at(tokens, offset)
    if number is None:
        return None
    token = tokens[number]
    if token.kind == UPPER and (owner := find_type(catalog, token.text)) is not None:
        return Description(describe_type(owner), token.span)
    if number and tokens[number - 1].kind == "@" and token.text in ANNOTATIONS:
        return Description(f"@{token.text}: {ANNOTATIONS[token.text]}", token.span)
    return None


def find_schema_definition(source: Source, offset: int) -> Span | None:
    """Return where the type at a place is declared."""
    tokens = read_tokens(source)
    number = token_at(tokens, offset)
    if number is None or tokens[number].kind != UPPER:
        return None
    return locate(source, SchemaPlace(tokens[number].text))


def locate(source: Source, place: SchemaPlace) -> Span | None:
    """Return where a type is declared, or a property of it; of an inherited one, where its type is."""
    tokens = read_tokens(source)
    for number, (declaration, name) in enumerate(pairwise(tokens)):
        if declaration.text in DECLARATIONS and name.kind == UPPER and name.text == place.type_name:
            if place.property_name is None:
                return name.span
            return _locate_property(tokens[number + 1 :], place.property_name) or name.span
    return None


def _locate_property(tokens: Sequence[Token], name: str) -> Span | None:
    depth = 0
    for token, after in pairwise(tokens):
        depth += {"{": 1, "}": -1}.get(token.kind, 0)
        if depth == 0 and token.kind == "}":
            return None
        if depth == 1 and token.kind == LOWER and token.text == name and after.kind == ":":
            return token.span
    return None
