"""The schema as a model reads it best: types on lines of their own, with examples of valid queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from omnigraph.server.mcp.examples import Value, key_of, render_examples, scalar_text
from omnigraph.server.mcp.exchange import Failed, WireRequest
from omnigraph.server.mcp.tools import Arguments, Context, Text

RULES = """\
A query is either a read (match, return, order, limit) or a mutation (insert, update, delete). All clauses of
`match` must hold; `or`, `and`, `not` and parentheses join the conditions of one filter. Traverse an edge by
its name with a lowercase first letter: `$a knows $b`. Parameters are declared with a type and passed by
name: query q($name: String) { ... }. Nodes are identified by the value of their key; edges take
`from` and `to`."""


async def describe_graph(context: Context, arguments: Arguments) -> Text:
    """Return the types of a branch, its stored queries, and examples."""
    branch = str(arguments.get("branch") or context.branch)
    types = msgspec.json.decode(
        await context.send(WireRequest("GET", ["schema", "types"], [("branch", branch)]))
    )
    return Text(render_description(types, await _stored(context), branch))


async def _stored(context: Context) -> list[Value]:
    try:
        found = msgspec.json.decode(await context.send(WireRequest("GET", ["queries"])))
    except Failed as failed:
        if failed.status != 403:
            raise
        return []  # listing them needs the right to read main
    queries: list[Value] = found["queries"]
    return queries


def render_description(types: Value, queries: Iterable[Value], branch: str) -> str:
    """Return the description of a graph from the answers of `schema/types` and `queries`."""
    parts = [f"Graph at branch {branch}", "", "NODES", *_nodes(types), "", "EDGES", *_edges(types)]
    stored = [f"  {query['name']}: {query.get('description', '')}".rstrip(": ") for query in queries]
    if stored:
        parts += ["", "STORED QUERIES (each is a tool)", *stored]
    parts += ["", "LANGUAGE", RULES, "", "EXAMPLES", *render_examples(types)]
    return "\n".join(parts)


def _nodes(types: Value) -> Iterator[str]:
    for node in types["nodes"]:
        count = types["rows"].get(f"node:{node['name']}", 0)
        yield f"{node['name']} ({count:,}){_documentation(node)}"
        key = key_of(node)
        for one in node["properties"]:
            marks = _marks(one, node, key)
            yield f"  {one['name']}: {_type_text(one['type'])}{marks}{_documentation(one)}"


def _edges(types: Value) -> Iterator[str]:
    for edge in types["edges"]:
        count = types["rows"].get(f"edge:{edge['name']}", 0)
        yield f"{edge['name']} ({count:,}): {edge['from']} -> {edge['to']}{_documentation(edge)}"
        for one in edge["properties"]:
            yield f"  {one['name']}: {_type_text(one['type'])}{_documentation(one)}"


def _marks(one: Value, node: Value, key: list[str]) -> str:
    marks = [" (key)"] if one["name"] in key else []
    if any(rule.get("Index") == [one["name"]] for rule in node["constraints"]):
        marks.append(" (indexed)")
    if one["embed"]:
        marks.append(f" (computed from {one['embed']['source']})")
    return "".join(marks)


def _documentation(found: Value) -> str:
    texts = [one["value"] for one in found["annotations"] if one["name"] in ("description", "instruction")]
    return f" - {' '.join(texts)}" if texts else ""


def _type_text(found: Value) -> str:
    enum = found["enum_values"]
    text = f"enum({', '.join(enum)})" if enum else scalar_text(found)
    return f"{text}?" if found["nullable"] else text
