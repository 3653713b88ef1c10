"""Types and properties in words."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.lang.schema.catalog import Annotation, EdgeType, NodeType, Property


def describe_type(found: NodeType | EdgeType) -> str:
    """Return a type with its properties, one on each line."""
    head = (
        f"edge {found.name}: {found.source} -> {found.target}"
        if isinstance(found, EdgeType)
        else _node(found)
    )
    body = [f"  {describe_property(one, found)}" for one in found.properties.values()]
    if isinstance(found, EdgeType) and found.key:
        body.append(f"  @key({', '.join(found.key)})")
    return "\n".join([f"{head} {{", *body, "}", *_documentation(found.annotations)])


def describe_property(found: Property, owner: NodeType | EdgeType) -> str:
    """Return a property with its type and marks."""
    key = owner.key if isinstance(owner, NodeType) else ()
    marks = [" @key"] if found.name in key else []
    marks += [" @index" for index in owner.indexes if index.columns == (found.name,)]
    marks += [" @unique" for rule in owner.uniques if rule.columns == (found.name,)]
    return f"{found.name}: {found.type}{''.join(marks)}"


def document_property(found: Property, owner: NodeType | EdgeType) -> str:
    """Return a property with its documentation, and the type it belongs to."""
    lines = [f"{owner.name}.{describe_property(found, owner)}", *_documentation(found.annotations)]
    return "\n".join(lines)


def _node(found: NodeType) -> str:
    interfaces = f" implements {', '.join(found.implements)}" if found.implements else ""
    return f"node {found.name}{interfaces}"


def _documentation(annotations: tuple[Annotation, ...]) -> Iterator[str]:
    yield from (one.value for one in annotations if one.name in ("description", "instruction") and one.value)
