"""What a migration does, step by step, as values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Literal, get_args

from omnigraph.deferred_dataclass import dataclass
from omnigraph.errors import UnsupportedSchemaChange
from omnigraph.lang.schema.catalog import Annotation, Language, Metric, TypeKind
from omnigraph.lang.schema.catalog_json import annotation_values, constraint_text, type_value
from omnigraph.lang.types import ValueType
from omnigraph.lang.values import Json

DropMode = Literal["soft", "hard"]

_FIELD_NAMES = {"old": "from", "new": "to"}


@dataclass(frozen=True, slots=True)
class ChangeCode:
    """A stable code for a kind of schema change."""

    code: str
    title: str
    severity: str = "error"


CHANGE_CODES = (
    ChangeCode("OG-DS-101", "drop graph type"),
    ChangeCode("OG-DS-102", "drop node type"),
    ChangeCode("OG-DS-103", "drop edge type"),
    ChangeCode("OG-DS-104", "drop property"),
    ChangeCode("OG-DS-105", "drop vector property"),
    ChangeCode("OG-MF-103", "add required property"),
    ChangeCode("OG-MF-104", "tighten property to non-null"),
    ChangeCode("OG-MF-106", "change property type"),
)
ADD_REQUIRED, CHANGE_TYPE = "OG-MF-103", "OG-MF-106"


class _Step:
    """One step; `kind` is its name in JSON, its other fields are those of the class."""

    __slots__ = ()
    kind: ClassVar[str]

    def to_json(self) -> dict[str, Any]:
        """The step as plain values."""
        found: dict[str, Any] = {"kind": self.kind}
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if value is not None:
                found[_FIELD_NAMES.get(each.name, each.name)] = _to_plain(value)
        return found


def _to_plain(value: Any) -> Any:
    if isinstance(value, ValueType):
        return type_value(value)
    if isinstance(value, tuple):
        annotations = [each for each in value if isinstance(each, Annotation)]
        return annotation_values(annotations) if annotations else list(value)
    return dict(value) if isinstance(value, Mapping) else value


@dataclass(frozen=True, slots=True)
class AddType(_Step):
    """A new, empty type with its constraints."""

    kind = "add_type"
    type_kind: TypeKind
    name: str


@dataclass(frozen=True, slots=True)
class RenameType(_Step):
    """A type gets another name and keeps its data."""

    kind = "rename_type"
    type_kind: TypeKind
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class AddProperty(_Step):
    """A new property; the rows that exist get its default, or null."""

    kind = "add_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    property_type: ValueType
    default: Json = None


@dataclass(frozen=True, slots=True)
class RenameProperty(_Step):
    """A property gets another name and keeps its data."""

    kind = "rename_property"
    type_kind: TypeKind
    type_name: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class WidenProperty(_Step):
    """A property gets a number type that holds all it can hold so far."""

    kind = "widen_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    old: ValueType
    new: ValueType


@dataclass(frozen=True, slots=True)
class RequireProperty(_Step):
    """A property needs a value from now on; rows without one get its default."""

    kind = "require_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    default: Json


@dataclass(frozen=True, slots=True)
class ChangeDefault(_Step):
    """A property has another default; no stored row gets it."""

    kind = "change_default"
    type_kind: TypeKind
    type_name: str
    property_name: str
    default: Json = None
    """None when it has none any more."""


@dataclass(frozen=True, slots=True)
class ChangeMerge(_Step):
    """Entities of a type are merged by another granularity; nothing that is stored changes."""

    kind = "change_merge"
    type_kind: TypeKind
    type_name: str
    granularity: Literal["row", "property"] | None
    """None when merges decide again."""


@dataclass(frozen=True, slots=True)
class ChangeMetric(_Step):
    """Vectors of a property are compared by another metric; no row changes, its index is rebuilt."""

    kind = "change_metric"
    type_kind: TypeKind
    type_name: str
    property_name: str
    metric: Metric


@dataclass(frozen=True, slots=True)
class ChangeLanguage(_Step):
    """Texts of a property become tokens in another way; no row changes, its index is rebuilt."""

    kind = "change_language"
    type_kind: TypeKind
    type_name: str
    property_name: str
    language: Language


@dataclass(frozen=True, slots=True)
class ChangeCardinality(_Step):
    """Sources of an edge type may have another number of edges."""

    kind = "change_cardinality"
    type_kind: TypeKind
    type_name: str
    old: Mapping[str, int | None]
    new: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class AddConstraint(_Step):
    """A new constraint, which all rows must satisfy that are stored already, or a new index."""

    kind = "add_constraint"
    type_kind: TypeKind
    type_name: str
    constraint: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ExtendEnum(_Step):
    """An enum accepts more values."""

    kind = "extend_enum"
    type_kind: TypeKind
    type_name: str
    property_name: str
    added_values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UpdateTypeMetadata(_Step):
    """The description or instruction of a type changes."""

    kind = "update_type_metadata"
    type_kind: TypeKind
    name: str
    annotations: tuple[Annotation, ...]


@dataclass(frozen=True, slots=True)
class UpdatePropertyMetadata(_Step):
    """The description of a property changes."""

    kind = "update_property_metadata"
    type_kind: TypeKind
    type_name: str
    property_name: str
    annotations: tuple[Annotation, ...]


@dataclass(frozen=True, slots=True)
class DropType(_Step):
    """A type goes away."""

    kind = "drop_type"
    type_kind: TypeKind
    name: str
    mode: DropMode


@dataclass(frozen=True, slots=True)
class DropProperty(_Step):
    """A property goes away."""

    kind = "drop_property"
    type_kind: TypeKind
    type_name: str
    property_name: str
    mode: DropMode


@dataclass(frozen=True, slots=True)
class UnsupportedChange(_Step):
    """A difference that cannot be applied to existing data."""

    kind = "unsupported_change"
    entity: str
    reason: str
    code: str | None = None


MigrationStep = (
    AddType
    | RenameType
    | AddProperty
    | RenameProperty
    | WidenProperty
    | RequireProperty
    | ChangeDefault
    | ChangeMerge
    | ChangeMetric
    | ChangeLanguage
    | ChangeCardinality
    | AddConstraint
    | ExtendEnum
    | UpdateTypeMetadata
    | UpdatePropertyMetadata
    | DropType
    | DropProperty
    | UnsupportedChange
)

STEP_KINDS: tuple[str, ...] = tuple(step.kind for step in get_args(MigrationStep))


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The steps from one schema to another, in the order they are applied."""

    steps: tuple[MigrationStep, ...] = ()
    notes: tuple[str, ...] = ()
    """What the wanted schema says without effect, a sentence each."""

    @property
    def supported(self) -> bool:
        """Whether every step can be applied."""
        return not any(isinstance(step, UnsupportedChange) for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values."""
        steps = [step.to_json() for step in self.steps]
        return {"supported": self.supported, "steps": steps, "notes": list(self.notes)}

    def refuse_unsupported(self) -> None:
        """Raise `UnsupportedSchemaChange` for the first step that cannot be applied."""
        for step in self.steps:
            if isinstance(step, UnsupportedChange):
                raise UnsupportedSchemaChange(step.reason, entity=step.entity, change_code=step.code)


_PropertyStep = (
    AddProperty
    | ExtendEnum
    | WidenProperty
    | RequireProperty
    | ChangeDefault
    | ChangeMetric
    | ChangeLanguage
    | UpdatePropertyMetadata
    | DropProperty
)


def describe_plan(plan: MigrationPlan) -> list[str]:
    """One line for each step."""
    return [describe(step) for step in plan.steps]


def describe(step: MigrationStep) -> str:
    """The step as a line: `+` adds, `~` changes, `-` drops, `!` cannot be done."""
    match step:
        case AddType():
            return f"+ {step.type_kind} {step.name}"
        case RenameType():
            return f"~ {step.type_kind} {step.old} renamed to {step.new}"
        case UpdateTypeMetadata():
            return f"~ {step.type_kind} {step.name} {_describe_metadata(step)}"
        case ChangeCardinality():
            old, new = _format_bounds(step.old), _format_bounds(step.new)
            return f"~ {step.type_name} @card({old}) becomes @card({new})"
        case ChangeMerge():
            how = f"@merge({step.granularity})" if step.granularity else "as merges say"
            return f"~ {step.type_kind} {step.type_name} is merged {how}"
        case AddConstraint():
            return f"+ {step.type_name} {constraint_text(step.constraint)}"
        case DropType():
            return f"- {step.type_kind} {step.name} ({_describe_mode(step)})"
        case RenameProperty():
            return f"~ {step.type_name}.{step.old} renamed to {step.new}"
        case UnsupportedChange():
            code = f" [{step.code}]" if step.code else ""
            return f"! unsupported {step.entity}{code}: {step.reason}"
    return _of_property(step, f"{step.type_name}.{step.property_name}")


def _of_property(step: _PropertyStep, path: str) -> str:
    match step:
        case AddProperty():
            rest = "" if step.default is None else f", {_format_value(step.default)} in stored rows"
            return f"+ {path}: {step.property_type}{rest}"
        case ExtendEnum():
            return f"~ {path} accepts {', '.join(step.added_values)}"
        case WidenProperty():
            return f"~ {path}: {step.old} becomes {step.new}"
        case RequireProperty():
            return f"~ {path} is required, {_format_value(step.default)} where it is null"
        case ChangeDefault():
            default = (
                "no default any more"
                if step.default is None
                else f"the default {_format_value(step.default)}"
            )
            return f"~ {path} has {default}"
        case ChangeMetric():
            return f"~ {path} is compared by @metric({step.metric})"
        case ChangeLanguage():
            return f"~ {path} is searched by @text({step.language})"
        case UpdatePropertyMetadata():
            return f"~ {path} {_describe_metadata(step)}"
        case DropProperty():
            return f"- {path} ({_describe_mode(step)})"


def _describe_metadata(step: UpdateTypeMetadata | UpdatePropertyMetadata) -> str:
    names = [f"@{value['name']}" for value in annotation_values(step.annotations)]
    return f"documented by {', '.join(names)}" if names else "no longer documented"


def _format_value(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _format_bounds(found: Mapping[str, int | None]) -> str:
    return f"{found['min']}..{'' if found['max'] is None else found['max']}"


def _describe_mode(step: DropType | DropProperty) -> str:
    return "older versions are removed" if step.mode == "hard" else "older versions stay readable"
