"""What becomes of one entity, for every way in which two branches can have changed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.errors import MergeConflicts
from omnigraph.graph import Graph
from tests.engine.merge.family import PERSON, person, put, remove, rows, value

ABSENT = "-"


def cases() -> list[tuple[str, str, str, str]]:
    text = (Path(__file__).parent / "row_rule.txt").read_text(encoding="utf-8")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return [tuple(line) for line in lines[1:]]  # type: ignore[misc]


def test_no_combination_is_missing() -> None:
    listed = {case[:3] for case in cases()}
    absent = {(ABSENT, s, t) for s in (ABSENT, "1") for t in (ABSENT, "1", "2")}
    # What the target alone inserted is one case, whatever the value.
    assert {case for case in listed if case[0] == ABSENT} == absent - {(ABSENT, ABSENT, "1")}
    present = {("1", s, t) for s in ("1", "2", ABSENT) for t in ("1", "2", "3", ABSENT)}
    assert {case for case in listed if case[0] == "1"} == present - {("1", "1", "3"), ("1", ABSENT, "3")}


def become(graph: Graph, branch: str, was: str, now: str) -> None:
    if now == ABSENT and was != ABSENT:
        remove(graph, "Person", "eve", branch)
    elif now != was:
        put(graph, person("eve", age=int(now)), branch=branch)


def become_all(graph: Graph, branch: str, changes: dict[str, tuple[str, str]]) -> None:
    """The same for several people at once: what each was, and is."""
    new = {name: now for name, (was, now) in changes.items() if now not in (was, ABSENT)}
    put(graph, *(person(name, age=int(age)) for name, age in new.items()), branch=branch)
    with graph.write(branch) as tx:
        for name, (was, now) in changes.items():
            if now == ABSENT and was != ABSENT:
                tx.delete("Person", ("name", "=", name))


@pytest.mark.parametrize("into", ["main", "side"])
@pytest.mark.parametrize(("was", "source", "target", "afterwards"), cases())
def test_an_entity_becomes_what_the_table_says(
    graph: Graph, was: str, source: str, target: str, afterwards: str, into: str
) -> None:
    if was != ABSENT:
        put(graph, person("eve", age=int(was)))
    graph.branches.create("draft")
    graph.branches.create("side")
    become(graph, "draft", was, source)
    become(graph, into, was, target)
    # Both branches move, so that what happens to this entity is all that counts.
    put(graph, person("of the source"), branch="draft")
    put(graph, person("of the target"), branch=into)

    if "_" in afterwards:
        with pytest.raises(MergeConflicts) as refused:
            graph.merge("draft", into)
        assert [(one.entity_id, one.kind.value) for one in refused.value.conflicts] == [("eve", afterwards)]
        return
    graph.merge("draft", into)
    assert {"of the source", "of the target"} <= rows(graph, PERSON, into).keys()
    found = value(graph, PERSON, "eve", "age", into) if "eve" in rows(graph, PERSON, into) else ABSENT
    assert str(found) == afterwards
