"""Syntax tree -> schema text in one canonical layout that parses back to the same tree."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.lang.schema.keys import positional
from omnigraph.lang.schema.schema_ast import (
    Annotation,
    Argument,
    CheckConstraint,
    ColumnConstraint,
    Constraint,
    Declaration,
    Edge,
    Interface,
    Node,
    Property,
    SchemaFile,
)
from omnigraph.lang.tokens import escape


def print_schema(file: SchemaFile) -> str:
    """The text of a schema: one blank line between declarations, properties before constraints."""
    return "\n\n".join(_declaration(found) for found in file.declarations) + (
        "\n" if file.declarations else ""
    )


def _declaration(found: Declaration) -> str:
    lines = [f"  {_property(each)}" for each in found.properties]
    if not isinstance(found, Interface):
        lines += [f"  {_constraint(each)}" for each in found.constraints]
    header = _header(found)
    if not lines:
        return header if isinstance(found, Edge) else f"{header} {{}}"
    return "\n".join([f"{header} {{", *lines, "}"])


def _header(found: Declaration) -> str:
    if isinstance(found, Interface):
        return f"interface {found.name.text}"
    if isinstance(found, Node):
        implements = (
            f" implements {', '.join(name.text for name in found.implements)}" if found.implements else ""
        )
        return f"node {found.name.text}{_annotations(found.annotations)}{implements}"
    card = f" @card({found.card.minimum}..{_bound(found.card.maximum)})" if found.card else ""
    ends = f"{found.source.text} -> {found.target.text}"
    return f"edge {found.name.text}: {ends}{card}{_annotations(found.annotations)}"


def _property(found: Property) -> str:
    return f"{found.name.text}: {found.type}{_annotations(found.annotations)}"


def _annotations(found: Iterable[Annotation]) -> str:
    return "".join(f" {_annotation(each)}" for each in found)


def _annotation(found: Annotation) -> str:
    if found.value is None:
        return f"@{found.name}"
    options = "".join(f", {name}={_argument(value)}" for name, value in found.options)
    return f"@{found.name}({_argument(found.value)}{options})"


def _argument(found: Argument) -> str:
    return escape(found.text) if found.quoted else found.text


def _constraint(found: Constraint) -> str:
    if isinstance(found, ColumnConstraint):
        return f"@{found.name}({', '.join(column.text for column in found.columns)})"
    if isinstance(found, CheckConstraint):
        return f"@check({found.column.text}, {escape(found.pattern)})"
    return f"@range({found.column.text}, {_bound(found.minimum)}..{_bound(found.maximum)})"


def _bound(value: int | float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    digits = positional(repr(value))
    return digits if "." in digits else f"{digits}.0"
