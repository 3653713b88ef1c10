"""Migration steps in words, one line each."""

from __future__ import annotations

import json
from collections.abc import Mapping

from omnigraph.lang.schema.catalog_json import annotation_values
from omnigraph.lang.schema.comparison import constraint_text
from omnigraph.lang.schema.migration_steps import (
    AddConstraint,
    AddProperty,
    AddType,
    ChangeCardinality,
    ChangeDefault,
    DropProperty,
    DropType,
    ExtendEnum,
    MigrationPlan,
    MigrationStep,
    RenameProperty,
    RenameType,
    RequireProperty,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
    WidenProperty,
)
from omnigraph.lang.values import Json

_PropertyStep = (
    AddProperty
    | ExtendEnum
    | WidenProperty
    | RequireProperty
    | ChangeDefault
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
            return f"~ {step.type_kind} {step.name} {_metadata(step)}"
        case ChangeCardinality():
            return f"~ {step.type_name} @card({_bounds(step.old)}) becomes @card({_bounds(step.new)})"
        case AddConstraint():
            return f"+ {step.type_name} {constraint_text(step.constraint)}"
        case DropType():
            return f"- {step.type_kind} {step.name} ({_mode(step)})"
        case RenameProperty():
            return f"~ {step.type_name}.{step.old} renamed to {step.new}"
        case UnsupportedChange():
            code = f" [{step.code}]" if step.code else ""
            return f"! unsupported {step.entity}{code}: {step.reason}"
    return _of_property(step, f"{step.type_name}.{step.property_name}")


def _of_property(step: _PropertyStep, path: str) -> str:
    match step:
        case AddProperty():
            rest = "" if step.default is None else f", {_shown(step.default)} in stored rows"
            return f"+ {path}: {step.property_type}{rest}"
        case ExtendEnum():
            return f"~ {path} accepts {', '.join(step.added_values)}"
        case WidenProperty():
            return f"~ {path}: {step.old} becomes {step.new}"
        case RequireProperty():
            return f"~ {path} is required, {_shown(step.default)} where it is null"
        case ChangeDefault():
            default = "no default any more" if step.default is None else f"the default {_shown(step.default)}"
            return f"~ {path} has {default}"
        case UpdatePropertyMetadata():
            return f"~ {path} {_metadata(step)}"
        case DropProperty():
            return f"- {path} ({_mode(step)})"


def _metadata(step: UpdateTypeMetadata | UpdatePropertyMetadata) -> str:
    names = [f"@{value['name']}" for value in annotation_values(step.annotations)]
    return f"documented by {', '.join(names)}" if names else "no longer documented"


def _shown(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _bounds(found: Mapping[str, int | None]) -> str:
    return f"{found['min']}..{'' if found['max'] is None else found['max']}"


def _mode(step: DropType | DropProperty) -> str:
    return "older versions are removed" if step.mode == "hard" else "older versions stay readable"
