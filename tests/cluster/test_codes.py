"""Every code of a finding is documented, used, and reached by a test."""

from __future__ import annotations

import re
from pathlib import Path

from omnigraph.cluster.catalog import PayloadState
from omnigraph.cluster.codes import CODES
from omnigraph.errors import PipelineInvalid

ROOT = Path(__file__).resolve().parents[2]


def text_of(folder: Path, suffix: str) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob(f"*{suffix}"))


def test_every_code_is_documented() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.+) \|$", page, re.M)
    assert rows == [(code, one.severity, one.meaning) for code, one in CODES.items()]


def test_every_code_is_used() -> None:
    source = text_of(ROOT / "src" / "omnigraph" / "cluster", ".py").replace("codes.py", "")
    made = {state.code for state in PayloadState}
    made |= {one.code for one in PipelineInvalid.__subclasses__()} | {PipelineInvalid.code}
    operations = ("graph_create", "schema_apply", "graph_delete")
    made |= {f"{operation}_{end}" for operation in operations for end in ("failed", "skipped")}
    assert {code for code in CODES if source.count(f'"{code}"') < 2} - made == set()


def test_every_code_is_reached_by_a_test() -> None:
    folder = Path(__file__).parent
    tests = text_of(folder, ".py") + text_of(folder, ".txt")
    assert {code for code in CODES if not re.search(rf"\b{code}\b", tests)} == set()
