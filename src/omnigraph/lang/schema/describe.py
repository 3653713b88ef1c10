"""Migration steps in words, one line each."""

from __future__ import annotations

from omnigraph.lang.schema.shape import annotation_values
from omnigraph.lang.schema.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    DropProperty,
    DropType,
    ExtendEnum,
    MigrationPlan,
    RenameProperty,
    RenameType,
    Step,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
)


def describe_plan(plan: MigrationPlan) -> list[str]:
    """One line for each step."""
    return [describe(step) for step in plan.steps]


def describe(step: Step) -> str:
    """The step as a line: `+` adds, `~` changes, `-` drops, `!` cannot be done."""
    match step:
        case AddType():
            return f"+ {step.type_kind} {step.name}"
        case RenameType():
            return f"~ {step.type_kind} {step.old} renamed to {step.new}"
        case AddProperty():
            return f"+ {step.type_name}.{step.property_name}: {step.property_type}"
        case RenameProperty():
            return f"~ {step.type_name}.{step.old} renamed to {step.new}"
        case AddConstraint():
            return f"+ {step.type_name} @index({', '.join(step.constraint['Index'])})"
        case ExtendEnum():
            return f"~ {step.type_name}.{step.property_name} accepts {', '.join(step.added_values)}"
        case UpdateTypeMetadata():
            return f"~ {step.type_kind} {step.name} {_metadata(step)}"
        case UpdatePropertyMetadata():
            return f"~ {step.type_name}.{step.property_name} {_metadata(step)}"
        case DropType():
            return f"- {step.type_kind} {step.name} ({_mode(step)})"
        case DropProperty():
            return f"- {step.type_name}.{step.property_name} ({_mode(step)})"
        case UnsupportedChange():
            code = f" [{step.code}]" if step.code else ""
            return f"! unsupported {step.entity}{code}: {step.reason}"


def _metadata(step: UpdateTypeMetadata | UpdatePropertyMetadata) -> str:
    names = [f"@{value['name']}" for value in annotation_values(step.annotations)]
    return f"documented by {', '.join(names)}" if names else "no longer documented"


def _mode(step: DropType | DropProperty) -> str:
    return "older versions are removed" if step.mode == "hard" else "older versions stay readable"
