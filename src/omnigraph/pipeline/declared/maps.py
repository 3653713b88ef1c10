"""What the rows of views become: the map of a target, in a file of its own or inline."""

from __future__ import annotations

from functools import partial

from omnigraph.engine.graph.layout import EntityKind
from omnigraph.engine.graph.table_types import SYSTEM_COLUMNS
from omnigraph.errors import PipelineEndpointType
from omnigraph.pipeline.declared.declaration import EDGE, NODE, EntityMap
from omnigraph.pipeline.declared.members import Node, Problems

_NODE_MEMBERS = {"type", "view", "where", "properties", "id"}
_EDGE_MEMBERS = {*_NODE_MEMBERS, "src", "dst"}


def read_map(node: Node) -> tuple[EntityMap, ...]:
    """All entries of a map."""
    members = node.members({"version", "nodes", "edges"})
    if "version" in members and members["version"].value.value != 1:
        members["version"].refuse("is not known", "write `version: 1`")
    problems, found = Problems(), list[EntityMap]()
    for name, kind in (("nodes", NODE), ("edges", EDGE)):
        if name in members:
            found += problems.read_each(members[name].items(), partial(_read_entry, kind=kind))
    problems.raise_if_any()
    if not found:
        node.refuse("needs `nodes` or `edges` with at least one entry")
    return tuple(found)


def _read_entry(node: Node, kind: EntityKind) -> EntityMap:
    members = node.members(_NODE_MEMBERS if kind == NODE else _EDGE_MEMBERS, ["type", "view"])
    for end in ("src", "dst"):
        if kind == EDGE and end not in members:
            node.refuse(f"needs `{end}`, the id of a node", problem=PipelineEndpointType)
    properties = members["properties"].pairs() if "properties" in members else ()
    for name, _ in properties:
        if name in SYSTEM_COLUMNS[kind]:
            members["properties"].refuse(f"must not have '{name}'", "write it beside `properties`")

    def read_text(name: str) -> str | None:
        return members[name].text() if name in members else None

    return EntityMap(
        kind,
        members["type"].text(),
        members["view"].text(),
        properties,
        read_text("where"),
        read_text("id"),
        read_text("src"),
        read_text("dst"),
        node.place,
    )
