"""Parts of a schema in a form that compares equal across renames and reordering."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.schema.catalog import Annotation, EdgeType, Interface, NodeType, Property
from omnigraph.lang.schema.catalog_json import Value, constraint_values
from omnigraph.lang.tokens import escape

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


def rules(owner: Owner, ids: Mapping[str, int]) -> dict[Rule, Value]:
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
                rule = Rule("range", stable(facts["column"]), _bounds(facts["min"], facts["max"]))
            case "Check":
                rule = Rule("check", stable(facts["column"]), escape(facts["pattern"]))
            case _:
                rule = Rule(kind.lower(), tuple(sorted(stable(*facts))))
        found[rule] = value
    return found


def _bounds(minimum: float | None, maximum: float | None) -> str:
    return f"{'' if minimum is None else minimum}..{'' if maximum is None else maximum}"


def constraint_text(value: Mapping[str, Any]) -> str:
    """A constraint, given as its plain value, the way it is written in a schema."""
    ((kind, facts),) = value.items()
    match kind:
        case "Index":
            arguments = list(facts)
        case "Range":
            arguments = [facts["column"], _bounds(facts["min"], facts["max"])]
        case "Check":
            arguments = [facts["column"], escape(facts["pattern"])]
        case _:
            arguments = sorted(facts)
    return f"@{kind.lower()}({', '.join(arguments)})"


def documentation(annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    """The description and instruction, sorted."""
    return _sorted(each for each in annotations if each.name in DOCUMENTATION)


def other_annotations(
    annotations: tuple[Annotation, ...], *, besides: tuple[str, ...] = ()
) -> tuple[Annotation, ...]:
    """Every annotation that is not documentation, nor named, sorted."""
    return _sorted(each for each in annotations if each.name not in (*DOCUMENTATION, *besides))


def _sorted(annotations: Iterable[Annotation]) -> tuple[Annotation, ...]:
    return tuple(sorted(annotations, key=lambda each: (each.name, each.value or "", each.arguments)))


def embedding(found: Property, ids: Mapping[str, int]) -> tuple[int, str | None] | None:
    """The source and model of an `@embed`, or None."""
    return (ids[found.embed.source], found.embed.model) if found.embed else None
