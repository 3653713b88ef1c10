"""Parts of a schema in a form that compares equal across renames and reordering."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from omnigraph.lang.schema.catalog import Annotation, EdgeType, Interface, NodeType, Property
from omnigraph.lang.tokens import escape

Owner = Interface | NodeType | EdgeType

DOCUMENTATION = ("description", "instruction")
"""Annotations that may change at any time."""


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """A constraint whose columns are named by their stable numbers (`src` and `dst` by themselves)."""

    name: str
    columns: tuple[str, ...]
    detail: str = ""
    """The bounds or pattern, as written in a schema."""


def rules(owner: Owner, ids: Mapping[str, int]) -> frozenset[Rule]:
    """All constraints of a type; of an interface, those written on its properties."""

    def stable(columns: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(ids.get(column, column)) for column in columns)

    if isinstance(owner, Interface):
        marked = owner.properties.values()
        return frozenset(Rule(mark, stable((each.name,))) for each in marked for mark in each.marks)
    found = [Rule("unique", tuple(sorted(stable(each.columns)))) for each in owner.uniques]
    found += [Rule("index", stable(each.columns)) for each in owner.indexes]
    if isinstance(owner, NodeType):
        found += [Rule("key", tuple(sorted(stable(owner.key))))] if owner.key else []
        found += [Rule("range", stable((r.column,)), _bounds(r.minimum, r.maximum)) for r in owner.ranges]
        found += [Rule("check", stable((each.column,)), escape(each.pattern)) for each in owner.checks]
    return frozenset(found)


def _bounds(minimum: float | None, maximum: float | None) -> str:
    return f"{'' if minimum is None else minimum}..{'' if maximum is None else maximum}"


def rule_columns(rule: Rule, ids: Mapping[str, int]) -> list[str]:
    """The names of a rule's columns."""
    names = {str(number): name for name, number in ids.items()}
    found = [names.get(column, column) for column in rule.columns]
    return found if rule.name == "index" else sorted(found)


def rule_text(rule: Rule, columns: list[str]) -> str:
    """The rule as it is written in a schema."""
    arguments = [*columns, rule.detail] if rule.detail else columns
    return f"@{rule.name}({', '.join(arguments)})"


def documentation(annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    """The description and instruction, sorted."""
    return _sorted(each for each in annotations if each.name in DOCUMENTATION)


def other_annotations(annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    """Every annotation that is not documentation, sorted."""
    return _sorted(each for each in annotations if each.name not in DOCUMENTATION)


def _sorted(annotations: Iterable[Annotation]) -> tuple[Annotation, ...]:
    return tuple(sorted(annotations, key=lambda each: (each.name, each.value or "", each.arguments)))


def embedding(found: Property, ids: Mapping[str, int]) -> tuple[int, str | None] | None:
    """The source and model of an `@embed`, or None."""
    return (ids[found.embed.source], found.embed.model) if found.embed else None
