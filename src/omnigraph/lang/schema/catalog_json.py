"""A catalog as plain JSON values and back, the fingerprint of its meaning, and its constraints as rules.

Rules and annotations compare equal across renames and reordering.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.schema.catalog import (
    Annotation,
    Cardinality,
    CheckRule,
    EdgeType,
    Interface,
    NodeType,
    Property,
    PropertyIndex,
    RangeRule,
    UniqueRule,
)
from omnigraph.lang.tokens import escape
from omnigraph.lang.types import Scalar, ValueType

Value = dict[str, Any]


def compute_fingerprint(
    interfaces: Mapping[str, Interface], nodes: Mapping[str, NodeType], edges: Mapping[str, EdgeType]
) -> str:
    """A digest that is equal exactly for schemas with the same meaning, however they are written."""
    return meaning_fingerprint(
        {
            "interfaces": [interface_value(interfaces[name]) for name in sorted(interfaces)],
            "nodes": [node_value(nodes[name]) for name in sorted(nodes)],
            "edges": [edge_value(edges[name]) for name in sorted(edges)],
        }
    )


def meaning_fingerprint(groups: Mapping[str, Sequence[Value]]) -> str:
    """Return the fingerprint of types as values, each group sorted by name."""
    meaning = {group: [_strip_spelling(found) for found in values] for group, values in groups.items()}
    return hashlib.sha256(compact(meaning).encode()).hexdigest()


def compact(value: Any) -> str:
    """JSON without spaces, keys sorted."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _strip_spelling(found: Value) -> Value:
    """A type's value without what only says how it was written down."""
    template = "constraints" not in found
    properties = [_property_meaning(each, template=template) for each in found["properties"]]
    meaning = {**found, "properties": sorted(properties, key=lambda each: str(each["name"]))}
    for key in ("implements", "annotations"):
        if key in found:
            meaning[key] = sorted(found[key], key=compact)
    if not template:
        meaning["constraints"] = [_unordered_key(each) for each in found["constraints"]]
    return meaning


def _property_meaning(found: Value, *, template: bool) -> Value:
    # In a node or edge the constraints themselves count; an interface has only the marks.
    meaning = {**found, "annotations": sorted(found["annotations"], key=compact)}
    if not template:
        del meaning["marks"]
    return meaning


def _unordered_key(constraint: Value) -> Value:
    return {"Key": sorted(constraint["Key"])} if "Key" in constraint else constraint


def type_value(found: ValueType) -> Value:
    """The value of a property type."""
    scalar = {"Vector": found.dimension} if found.scalar is Scalar.VECTOR else str(found.scalar)
    return {
        "scalar": scalar,
        "nullable": found.nullable,
        "list": found.is_list,
        "enum_values": list(found.enum_values) or None,
    }


def annotation_values(found: Sequence[Annotation]) -> list[Value]:
    """The values of annotations, without empty fields."""
    return [_annotation_value(each) for each in found]


def _annotation_value(found: Annotation) -> Value:
    value: Value = {"name": found.name}
    if found.value is not None:
        value["value"] = found.value
    if found.arguments:
        value["arguments"] = [list(pair) for pair in found.arguments]
    return value


def property_value(found: Property) -> Value:
    """The value of a property."""
    return {
        "name": found.name,
        "type": type_value(found.type),
        "annotations": annotation_values(found.annotations),
        "embed": {"source": found.embed.source, "model": found.embed.model} if found.embed else None,
        "interfaces": list(found.interfaces),
        "inherited": found.inherited,
        "marks": list(found.marks),
    }


def interface_value(found: Interface) -> Value:
    """The value of an interface."""
    return {"name": found.name, "properties": _list_properties(found.properties)}


def node_value(found: NodeType) -> Value:
    """The value of a node type."""
    return {
        "name": found.name,
        "implements": list(found.implements),
        "annotations": annotation_values(found.annotations),
        "properties": _list_properties(found.properties),
        "constraints": constraint_values(found),
    }


def edge_value(found: EdgeType) -> Value:
    """The value of an edge type."""
    return {
        "name": found.name,
        "from": found.source,
        "to": found.target,
        "cardinality": cardinality_value(found.cardinality),
        "annotations": annotation_values(found.annotations),
        "properties": _list_properties(found.properties),
        "constraints": constraint_values(found),
    }


def cardinality_value(found: Cardinality) -> Value:
    """The value of a number of edges."""
    return {"min": found.minimum, "max": found.maximum}


def _list_properties(found: Mapping[str, Property]) -> list[Value]:
    return [property_value(each) for each in found.values()]


def constraint_values(found: NodeType | EdgeType) -> list[Value]:
    """The values of a type's constraints: key, uniques, indexes, ranges, checks."""
    values: list[Value] = []
    if found.key:
        values.append({"Key": list(found.key)})
    values += map(constraint_value, found.uniques)
    values += map(constraint_value, found.indexes)
    if isinstance(found, NodeType):
        values += map(constraint_value, found.ranges)
        values += map(constraint_value, found.checks)
    return values


def constraint_value(found: UniqueRule | PropertyIndex | RangeRule | CheckRule) -> Value:
    """The value of one constraint."""
    match found:
        case UniqueRule():
            return {"Unique": list(found.columns)}
        case PropertyIndex():
            return {"Index": list(found.columns)}
        case RangeRule():
            return {"Range": {"column": found.column, "min": found.minimum, "max": found.maximum}}
        case CheckRule():
            return {"Check": {"column": found.column, "pattern": found.pattern}}


Owner = Interface | NodeType | EdgeType

DOCUMENTATION = ("description", "instruction")
"""Annotations that may change at any time."""


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """A constraint whose columns are named by their stable numbers (`src` and `dst` by name)."""

    name: str
    columns: tuple[str, ...]
    detail: str = ""
    """The bounds or pattern, as written in a schema."""


def list_rules(owner: Owner, ids: Mapping[str, int]) -> dict[Rule, Value]:
    """All constraints of a type with their plain values; of an interface, those written on its properties."""

    def stable(*columns: str) -> tuple[str, ...]:
        return tuple(str(ids.get(column, column)) for column in columns)

    found: dict[Rule, Value] = {}
    if isinstance(owner, Interface):
        for each in owner.properties.values():
            found |= {Rule(mark, stable(each.name)): {mark.title(): [each.name]} for mark in each.marks}
        return found
    for value in constraint_values(owner):
        ((kind, facts),) = value.items()
        match kind:
            case "Index":
                rule = Rule("index", stable(*facts))
            case "Range":
                rule = Rule("range", stable(facts["column"]), _format_bounds(facts["min"], facts["max"]))
            case "Check":
                rule = Rule("check", stable(facts["column"]), escape(facts["pattern"]))
            case _:
                rule = Rule(kind.lower(), tuple(sorted(stable(*facts))))
        found[rule] = value
    return found


def _format_bounds(minimum: float | None, maximum: float | None) -> str:
    return f"{'' if minimum is None else minimum}..{'' if maximum is None else maximum}"


def constraint_text(value: Mapping[str, Any]) -> str:
    """A constraint, given as its plain value, the way it is written in a schema."""
    ((kind, facts),) = value.items()
    match kind:
        case "Index":
            arguments = list(facts)
        case "Range":
            arguments = [facts["column"], _format_bounds(facts["min"], facts["max"])]
        case "Check":
            arguments = [facts["column"], escape(facts["pattern"])]
        case "Key" if {"src", "dst"} <= set(facts):
            arguments = list(facts)
        case _:
            arguments = sorted(facts)
    return f"@{kind.lower()}({', '.join(arguments)})"


def find_documentation(annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    """The description and instruction, sorted."""
    return _sort_annotations(each for each in annotations if each.name in DOCUMENTATION)


def other_annotations(
    annotations: tuple[Annotation, ...], *, besides: tuple[str, ...] = ()
) -> tuple[Annotation, ...]:
    """Every annotation that is not documentation, nor named, sorted."""
    return _sort_annotations(each for each in annotations if each.name not in (*DOCUMENTATION, *besides))


def _sort_annotations(annotations: Iterable[Annotation]) -> tuple[Annotation, ...]:
    return tuple(sorted(annotations, key=lambda each: (each.name, each.value or "", each.arguments)))


def find_embedding(found: Property, ids: Mapping[str, int]) -> tuple[int, str | None] | None:
    """The source and model of an `@embed`, or None."""
    return (ids[found.embed.source], found.embed.model) if found.embed else None
