"""Queries that are valid for a schema: one of each kind, to show the language by the names of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from omnigraph.lang.tokens import escape

Value = Mapping[str, Any]

MOST_PROPERTIES = 6
"""How many properties an example returns."""


def render_examples(types: Value) -> list[str]:
    """Return queries that are valid for the types: one of each kind, about the types with most entities."""
    rows = types["rows"]
    nodes = sorted(types["nodes"], key=lambda one: -rows.get(f"node:{one['name']}", 0))
    edges = sorted(types["edges"], key=lambda one: -rows.get(f"edge:{one['name']}", 0))
    named = {node["name"]: node for node in nodes}
    found: list[str] = []
    if nodes:
        found += _node_examples(nodes[0])
    if edges:
        found += _edge_examples(edges[0], named)
    found += _search_examples(nodes)
    return found


def _node_examples(node: Value) -> Iterator[str]:
    name, key = node["name"], key_of(node)
    shown = _returned("n", node)
    yield f"query list_some() {{ match {{ $n: {name} }} return {{ {shown} }} limit 20 }}"
    yield f"query count_all() {{ match {{ $n: {name} }} return {{ count($n) as total }} }}"
    if key:
        bound = ", ".join(f"{one}: ${one}" for one in key)
        declared = _declare(node, key)
        yield f"query find_one({declared}) {{ match {{ $n: {name} {{ {bound} }} }} return {{ {shown} }} }}"
    yield from _mutation_examples(node, key)


def _mutation_examples(node: Value, key: list[str]) -> Iterator[str]:
    name = node["name"]
    needed = [one["name"] for one in node["properties"] if _is_required(one)]
    assigned = list(dict.fromkeys([*key, *needed]))
    if assigned:
        yield f"query add_one({_declare(node, assigned)}) {{ insert {name} {{ {_assign(node, assigned)} }} }}"
    others = [one["name"] for one in node["properties"] if one["name"] not in key and _is_plain(one)]
    if len(key) == 1 and others:
        declared = _declare(node, [key[0], others[0]])
        yield (
            f"query change_one({declared}) {{ update {name} set {{ {_assign(node, others[:1])} }} "
            f"where {key[0]} = ${key[0]} }}"
        )
    if len(key) == 1:
        yield f"query remove_one({_declare(node, key)}) {{ delete {name} where {key[0]} = ${key[0]} }}"


def _edge_examples(edge: Value, nodes: Mapping[str, Value]) -> Iterator[str]:
    source, target = nodes[edge["from"]], nodes[edge["to"]]
    word = edge["name"][0].lower() + edge["name"][1:]
    yield (
        f"query follow() {{ match {{ $a: {source['name']} $a {word} $b }} "
        f"return {{ {_returned('a', source, 2)}, {_returned('b', target, 2)} }} limit 20 }}"
    )
    yield (
        f"query count_by_start() {{ match {{ $a: {source['name']} $a {word} $b }} "
        f"return {{ $a as start, count($b) as total }} order {{ total desc }} limit 10 }}"
    )
    needed = [one["name"] for one in edge["properties"] if _is_required(one)]
    if not {"from", "to"} & {one["name"] for one in edge["properties"]}:
        declared = ", ".join(filter(None, ["$from: String, $to: String", _declare(edge, needed)]))
        members = ", ".join(filter(None, ["from: $from, to: $to", _assign(edge, needed)]))
        yield f"query connect({declared}) {{ insert {edge['name']} {{ {members} }} }}"


def _search_examples(nodes: Sequence[Value]) -> Iterator[str]:
    for node, name in _first(nodes, _is_text):
        yield (
            f"query search_text($words: String) {{ match {{ $n: {node['name']} }} "
            f"return {{ {_returned('n', node, 3)} }} order {{ bm25($n.{name}, $words) }} limit 10 }}"
        )
    for node, name in _first(nodes, _is_vector):
        kind = next(scalar_text(one["type"]) for one in node["properties"] if one["name"] == name)
        yield (
            f"query nearest_to($vector: {kind}) {{ match {{ $n: {node['name']} }} "
            f"return {{ {_returned('n', node, 3)} }} order {{ nearest($n.{name}, $vector) }} limit 5 }}"
        )


def _first(nodes: Sequence[Value], test: Callable[[Value], bool]) -> list[tuple[Value, str]]:
    """Return the first property that passes a test, with its node, or nothing."""
    found = ((node, one["name"]) for node in nodes for one in node["properties"] if test(one))
    return list(islice(found, 1))


def _is_text(one: Value) -> bool:
    kind = one["type"]
    return bool(kind["scalar"] == "String" and not kind["list"] and not kind["enum_values"])


def _is_vector(one: Value) -> bool:
    return isinstance(one["type"]["scalar"], dict)


def _returned(variable: str, node: Value, most: int = MOST_PROPERTIES) -> str:
    names = [one["name"] for one in node["properties"] if _is_plain(one)][:most]
    return ", ".join(f"${variable}.{name}" for name in names) or f"${variable}"


def _is_plain(one: Value) -> bool:
    """Whether a property is a value that is worth showing: no vector and no Blob."""
    return isinstance(one["type"]["scalar"], str) and one["type"]["scalar"] != "Blob"


def _is_required(one: Value) -> bool:
    return not one["type"]["nullable"] and not one["embed"]


def _declare(owner: Value, names: Iterable[str]) -> str:
    """Return parameters for properties; an enum has none, and is written as a constant."""
    types = {one["name"]: one["type"] for one in owner["properties"]}
    declared = [f"${name}: {scalar_text(types[name])}" for name in names if not types[name]["enum_values"]]
    return ", ".join(declared)


def _assign(owner: Value, names: Iterable[str]) -> str:
    types = {one["name"]: one["type"] for one in owner["properties"]}
    return ", ".join(f"{name}: {_assigned(name, types[name])}" for name in names)


def _assigned(name: str, found: Value) -> str:
    if not found["enum_values"]:
        return f"${name}"
    return escape(found["enum_values"][0])


def scalar_text(found: Value) -> str:
    """Return the type of a parameter for values of a property."""
    scalar = found["scalar"]
    text = scalar if isinstance(scalar, str) else f"Vector({scalar['Vector']})"
    return f"[{text}]" if found["list"] else text


def key_of(node: Value) -> list[str]:
    """Return the properties that identify a node."""
    return next((list(rule["Key"]) for rule in node["constraints"] if "Key" in rule), [])
