"""`docs/schema.md` and `docs/schema-evolution.md` tell everything, and their examples are true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.lang.schema import CHANGE_CODES, STEP_KINDS, compile_schema, describe_plan, plan_files
from omnigraph.lang.schema.annotations import ANNOTATIONS
from omnigraph.lang.schema.migration_planner import WIDER
from omnigraph.lang.schema.migration_steps import ChangeCode
from omnigraph.lang.schema.schema_parser import CONSTRAINTS, STORAGE_COLUMNS
from omnigraph.lang.types import Scalar

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "schema.md").read_text("utf-8") + (DOCS / "schema-evolution.md").read_text("utf-8")
EXAMPLES = re.findall(r"```pg\n(.*?)```", GUIDE, re.DOTALL)


@pytest.mark.parametrize("name", [*ANNOTATIONS, *CONSTRAINTS, "card"])
def test_every_annotation_and_constraint_has_a_row(name: str) -> None:
    assert re.search(rf"^\| `@{name}\(", GUIDE, re.MULTILINE)


@pytest.mark.parametrize("kind", STEP_KINDS)
def test_every_step_kind_has_a_row(kind: str) -> None:
    assert re.search(rf"^\| `{kind}` \|", GUIDE, re.MULTILINE)


@pytest.mark.parametrize("found", CHANGE_CODES, ids=lambda found: found.code)
def test_every_code_has_a_row_with_its_title(found: ChangeCode) -> None:
    assert f"| {found.code} | {found.title} |" in GUIDE


@pytest.mark.parametrize("name", [*Scalar, *STORAGE_COLUMNS])
def test_every_type_and_reserved_name_is_reported(name: str) -> None:
    assert re.search(rf"`{name}[`(]", GUIDE)


@pytest.mark.parametrize(("narrow", "wider"), WIDER.items())
def test_every_wider_number_is_reported(narrow: Scalar, wider: tuple[Scalar, ...]) -> None:
    assert f"| `{narrow}` | {', '.join(f'`{each}`' for each in wider)} |" in GUIDE


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_compiles(example: str) -> None:
    compile_schema(example)


def test_the_migration_example_has_the_plan_it_shows() -> None:
    old, new = EXAMPLES[-2:]
    shown = re.search(r"the plan is\n\n```\n(.*?)```", GUIDE, re.DOTALL)
    assert shown
    assert describe_plan(plan_files(compile_schema(old), compile_schema(new))) == shown.group(1).splitlines()
