"""What an applied schema does to stored data, as listed in the case file beside this one."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.graph import Graph
from tests.lang.casefile import Case, read_cases

CASES = read_cases(Path(__file__).parent / "changes.st")


def text(case: Case, name: str) -> str:
    found = case.section(name)
    assert found is not None, f"{case} has no section {name}"
    return found


def load(graph: Graph, lines: str, folder: Path) -> None:
    if lines:
        (folder / "rows.jsonl").write_text(lines + "\n", encoding="utf-8")
        graph.load(folder / "rows.jsonl", mode="merge")


def export_records(graph: Graph) -> list[Any]:
    out = BytesIO()
    graph.export(out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def lines(found: str) -> list[Any]:
    return [json.loads(line) for line in found.splitlines()]


def describe(error: errors.OmnigraphError) -> str:
    found = [error.code]
    for breach in error.breaches if isinstance(error, errors.SchemaDataViolation) else ():
        found.append(f"{breach.type_kind} {breach.type_name} {breach.constraint}: {breach.count}")
        found += [f"  {example.id}: {example.reason}" for example in breach.examples]
    return "\n".join(found)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_schema_change_does_what_its_case_says(case: Case, tmp_path: Path) -> None:
    with og.init(tmp_path / "g.omni", schema=text(case, "from")) as graph:
        load(graph, text(case, "rows"), tmp_path)
        if (expected := case.section("refused")) is not None:
            refuse(graph, text(case, "to"), expected)
            return
        wanted = graph.plan_schema(text(case, "to"))
        done = graph.apply_schema(text(case, "to"), actor="ann")
        assert (done.supported, done.applied, done.steps) == (True, True, wanted.steps)
        assert done.commit is not None
        assert (done.commit.actor, done.commit.id) == ("ann", graph.snapshot().id)
        assert export_records(graph) == lines(text(case, "after"))
        if (more := case.section("more")) is not None:
            load(graph, more, tmp_path)
            assert export_records(graph) == lines(text(case, "then"))
        # What was applied is what holds: nothing is left to do, for this handle and for a new one.
        assert not graph.apply_schema(text(case, "to")).applied
    with og.open(tmp_path / "g.omni") as again:
        assert again.schema_source == text(case, "to")
        assert export_records(again) == lines(case.section("then") or text(case, "after"))
        assert again.branches.list() == ["main"]


def refuse(graph: Graph, wanted: str, expected: str) -> None:
    before, source, commits = export_records(graph), graph.schema_source, len(graph.commits.list())
    with pytest.raises(errors.OmnigraphError) as caught:
        graph.apply_schema(wanted)
    assert describe(caught.value) == expected
    assert (export_records(graph), graph.schema_source, len(graph.commits.list())) == (
        before,
        source,
        commits,
    )
    graph.branches.create("later")
