"""Every code of a finding is documented, used, and reached by a test."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
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


def expected_texts(tree: ast.AST) -> Iterator[str]:
    """Yield the texts that tests expect: in what they assert, in their cases, and as `match`."""
    for node in ast.walk(tree):
        match node:
            case ast.Assert(test=expected) if not is_negative(expected):
                yield from texts_in(expected)
            case ast.Call(func=ast.Attribute(attr="parametrize"), args=[_, cases]):
                yield from texts_in(cases)
            case ast.For(iter=cases):
                yield from texts_in(cases)
            case ast.keyword(arg="match", value=value):
                yield from texts_in(value)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.isupper():
                yield from texts_in(value)


def is_negative(expected: ast.expr) -> bool:
    """Whether an assertion says that something is absent."""
    operators = [one for node in ast.walk(expected) if isinstance(node, ast.Compare) for one in node.ops]
    return any(isinstance(one, ast.NotIn) for one in operators)


def texts_in(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value


def test_every_code_is_expected_by_a_test() -> None:
    folder = Path(__file__).parent
    cases = text_of(folder, ".txt").splitlines()
    expected = "\n".join(line for line in cases if line.startswith("-> "))
    for path in folder.rglob("test_*.py"):
        if path.name != Path(__file__).name:
            texts = expected_texts(ast.parse(path.read_text(encoding="utf-8")))
            expected = "\n".join([expected, *texts])
    assert {code for code in CODES if not re.search(rf"\b{code}\b", expected)} == set()
