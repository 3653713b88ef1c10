"""The variables of a query and the types they must have, by the tokens before and after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.assist.reading import Token
from omnigraph.lang.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.lang.source import Span
from omnigraph.lang.tokens import LOWER, UPPER, VAR

Owner = NodeType | EdgeType


@dataclass(frozen=True, slots=True)
class Variables:
    """What is known about the variables of one query."""

    parameters: dict[str, str] = field(default_factory=dict)
    """The types of parameters, as they are written."""
    types: dict[str, Owner] = field(default_factory=dict)
    """The types of nodes and edges."""
    places: dict[str, Span] = field(default_factory=dict)
    """Where each is written first."""


def find_edge(catalog: Catalog, word: str) -> EdgeType | None:
    """Return the edge type that a word in a traversal means; case does not matter."""
    folded = word.casefold()
    return next((edge for edge in catalog.edges.values() if edge.name.casefold() == folded), None)


def find_type(catalog: Catalog, name: str) -> Owner | None:
    """Return a node or edge type; a node if both have the name."""
    return catalog.nodes.get(name) or catalog.edges.get(name)


def tokens_of_query(tokens: Sequence[Token], offset: int) -> list[Token]:
    """Return the tokens of the query at a place."""
    depth, start, end = 0, 0, len(tokens)
    for number, token in enumerate(tokens):
        if token.text == "query" and depth == 0:
            if token.start <= offset:
                start = number
            else:
                end = number
                break
        depth += {"{": 1, "}": -1}.get(token.kind, 0)
    return list(tokens[start:end])


def find_variables(tokens: Sequence[Token], catalog: Catalog) -> Variables:
    """Return what the tokens of one query say about its variables."""
    found = Variables()
    parentheses = braces = 0
    for number, token in enumerate(tokens):
        parentheses += {"(": 1, ")": -1}.get(token.kind, 0)
        braces += {"{": 1, "}": -1}.get(token.kind, 0)
        if token.kind != VAR:
            continue
        found.places.setdefault(token.text, token.span)
        rest = tokens[number + 1 : number + 3]
        if len(rest) == 2 and rest[0].kind == ":" and braces == 0 and parentheses == 1:
            found.parameters[token.text] = _type_after(tokens, number + 2)
        elif len(rest) == 2 and rest[0].kind == ":" and rest[1].kind == UPPER:
            _learn(found, token.text, catalog.nodes.get(rest[1].text))
        elif braces:
            _learn_from_traversal(found, tokens, number, catalog)
    return found


def _type_after(tokens: Sequence[Token], number: int) -> str:
    text = ""
    for token in tokens[number:]:
        if token.kind in (",", ")") and "(" not in text.replace("()", ""):
            break
        text += token.text
        if token.kind == ")":
            break
    return text


def _learn(found: Variables, name: str, owner: Owner | None) -> None:
    if owner is not None:
        found.types.setdefault(name, owner)


def _learn_from_traversal(found: Variables, tokens: Sequence[Token], number: int, catalog: Catalog) -> None:
    """Learn from `$a edge $b`, `$a <edge> $b`, `$a edge{1,3} $b` and `$a $e:edge $b`."""
    rest = [token for token in tokens[number + 1 : number + 12] if token.kind not in ("<", ">")]
    edge_variable = None
    if len(rest) > 2 and rest[0].kind == VAR and rest[1].kind == ":" and rest[2].kind == LOWER:
        edge_variable, rest = rest[0].text, rest[2:]
    if not rest or rest[0].kind != LOWER:
        return
    edge = find_edge(catalog, rest[0].text)
    if edge is None:
        return
    after = rest[1:]
    if after and after[0].kind == "{":
        closed = next((at for at, token in enumerate(after) if token.kind == "}"), len(after))
        after = after[closed + 1 :]
    source, target = catalog.nodes.get(edge.source), catalog.nodes.get(edge.target)
    if found.types.get(tokens[number].text) == target != source:
        source, target = target, source
    _learn(found, tokens[number].text, source)
    if edge_variable is not None:
        _learn(found, edge_variable, edge)
    if after and after[0].kind == VAR:
        _learn(found, after[0].text, target)
