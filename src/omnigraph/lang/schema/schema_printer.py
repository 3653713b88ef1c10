"""Syntax tree -> schema text in one canonical layout that parses back to the same tree."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.lang.schema.keys import to_positional
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
    return "\n\n".join(_print_declaration(found) for found in file.declarations) + (
        "\n" if file.declarations else ""
    )


def _print_declaration(found: Declaration) -> str:
    lines = [f"  {_print_property(each)}" for each in found.properties]
    if not isinstance(found, Interface):
        lines += [f"  {_print_constraint(each)}" for each in found.constraints]
    header = _print_header(found)
    if not lines:
        return header if isinstance(found, Edge) else f"{header} {{}}"
    return "\n".join([f"{header} {{", *lines, "}"])


def _print_header(found: Declaration) -> str:
    if isinstance(found, Interface):
        return f"interface {found.name.text}"
    if isinstance(found, Node):
        implements = (
            f" implements {', '.join(name.text for name in found.implements)}" if found.implements else ""
        )
        return f"node {found.name.text}{_print_annotations(found.annotations)}{implements}"
    card = f" @card({found.card.minimum}..{_print_bound(found.card.maximum)})" if found.card else ""
    ends = f"{found.source.text} -> {found.target.text}"
    return f"edge {found.name.text}: {ends}{card}{_print_annotations(found.annotations)}"


def _print_property(found: Property) -> str:
    return f"{found.name.text}: {found.type}{_print_annotations(found.annotations)}"


def _print_annotations(found: Iterable[Annotation]) -> str:
    return "".join(f" {_print_annotation(each)}" for each in found)


def _print_annotation(found: Annotation) -> str:
    if found.value is None:
        return f"@{found.name}"
    options = "".join(f", {name}={_print_argument(value)}" for name, value in found.options)
    return f"@{found.name}({_print_argument(found.value)}{options})"


def _print_argument(found: Argument) -> str:
    return escape(found.text) if found.quoted else found.text


def _print_constraint(found: Constraint) -> str:
    if isinstance(found, ColumnConstraint):
        return f"@{found.name}({', '.join(column.text for column in found.columns)})"
    if isinstance(found, CheckConstraint):
        return f"@check({found.column.text}, {escape(found.pattern)})"
    return f"@range({found.column.text}, {_print_bound(found.minimum)}..{_print_bound(found.maximum)})"


def _print_bound(value: int | float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    digits = to_positional(repr(value))
    return digits if "." in digits else f"{digits}.0"
