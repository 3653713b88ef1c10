"""What contradicts in a merge, and which side wins: by the call, the schema, the graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import pytest

import omnigraph as og
from omnigraph import errors
from tests.engine.changes.world import few_rows_at_once

SCHEMA = """
node Person {} {{ name: String @key  age: I32?  city: String? }}
node Team {{ name: String @key  title: String?  size: I32? }}
"""
Granularity = Literal["row", "property"]


def schema(annotation: str = "") -> str:
    return SCHEMA.format(annotation)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "graph")


@pytest.fixture
def graph(uri: str) -> Iterator[og.Graph]:
    with og.init(uri, schema=schema()) as made:
        part(made)
        yield made


def put(graph: og.Graph, branch: str, person: Mapping[str, object], team: Mapping[str, object]) -> None:
    with graph.write(branch) as tx:
        tx.upsert("Person", **{"name": "ada", **person})
        tx.upsert("Team", **{"name": "core", **team})


def part(graph: og.Graph) -> None:
    """Both branches change each entity, in different properties."""
    put(graph, "main", {"age": 1, "city": "x"}, {"title": "x", "size": 1})
    graph.branches.create("work")
    put(graph, "work", {"age": 2, "city": "x"}, {"title": "y", "size": 1})
    put(graph, "main", {"age": 1, "city": "y"}, {"title": "x", "size": 2})


def rows(graph: og.Graph) -> dict[str, tuple[object, ...]]:
    (person,) = graph.snapshot().rows("Person").to_pylist()
    (team,) = graph.snapshot().rows("Team").to_pylist()
    return {"Person": (person["age"], person["city"]), "Team": (team["title"], team["size"])}


def conflicts(graph: og.Graph, granularity: Granularity | None = None) -> set[str]:
    found = graph.merge("work", dry_run=True, granularity=granularity)
    return {one.type_name for one in found.conflicts}


# --- what contradicts --------------------------------------------------------------------------------


def test_the_call_counts_more_than_the_type_and_the_type_more_than_the_default(uri: str) -> None:
    with og.init(uri, schema=schema("@merge(property)")) as graph:
        part(graph)
        assert conflicts(graph) == {"Team"}
        assert conflicts(graph, "row") == {"Person", "Team"}
        assert conflicts(graph, "property") == set()
    with og.open(uri, merge_granularity="property") as graph:
        assert conflicts(graph) == set()
        assert conflicts(graph, "row") == {"Person", "Team"}


def test_a_preview_and_its_resolutions_name_the_granularity_that_decided(uri: str, tmp_path: Path) -> None:
    with og.init(uri, schema=schema("@merge(property)")) as graph:
        part(graph)
        put(graph, "work", {"age": 3, "city": "z"}, {"title": "y", "size": 1})
        put(graph, "main", {"age": 1, "city": "v"}, {"title": "x", "size": 2})
        by_type = {"node:Person": "property", "node:Team": "row"}
        found = graph.merge("work", dry_run=True)
        assert found.granularity == by_type
        file = {**found.resolution_file(), "default": "theirs"}
        assert file["granularity"] == by_type
        assert graph.merge("work", dry_run=True, granularity="property").granularity == "property"
        with pytest.raises(
            errors.BadRequest, match="for a merge of node:Person by property, and this one is by row"
        ):
            graph.merge("work", dry_run=True, resolutions=file, granularity="row")
        whole = {**file, "granularity": "row"}
        with pytest.raises(errors.BadRequest, match="for a merge by row, and this one is by property"):
            graph.merge("work", dry_run=True, resolutions=whole)
        assert graph.merge("work", resolutions=file).outcome == "merged"


def test_a_type_can_ask_for_rows_where_the_default_is_properties(uri: str) -> None:
    og.init(uri, schema=schema("@merge(row)")).close()
    with og.open(uri, merge_granularity="property") as graph:
        part(graph)
        assert conflicts(graph) == {"Person"}


def test_without_anything_said_rows_contradict_and_the_conflict_names_the_option(graph: og.Graph) -> None:
    with pytest.raises(errors.MergeConflicts, match="2 conflicts") as caught:
        graph.merge("work")
    assert all("--granularity property" in str(one.to_json()["remedy"]) for one in caught.value.conflicts)


def test_the_annotation_comes_and_goes_without_touching_a_row(graph: og.Graph) -> None:
    graph.branches.delete("work")
    before = graph.snapshot()
    for annotation, expected in (("@merge(property)", "property"), ("@merge(row)", "row"), ("", None)):
        plan = graph.plan_schema(schema(annotation))
        (step,) = plan.steps
        assert (step.kind, getattr(step, "granularity", "?")) == ("change_merge", expected)
        assert graph.apply_schema(schema(annotation)).applied
    assert {key: one.version for key, one in graph.snapshot().tables.items()} == {
        key: one.version for key, one in before.tables.items()
    }


def test_a_revert_and_a_cherry_pick_follow_the_type_as_well(uri: str) -> None:
    with og.init(uri, schema=schema("@merge(property)")) as graph:
        put(graph, "main", {"age": 1, "city": "x"}, {})
        put(graph, "main", {"age": 2, "city": "x"}, {})
        changed = graph.commits.list()[0]
        put(graph, "main", {"age": 2, "city": "y"}, {})
        graph.revert(changed)
        assert rows(graph)["Person"] == (1, "y")


# --- which side wins ---------------------------------------------------------------------------------


@pytest.mark.parametrize("in_buckets", [False, True])
def test_strategies_can_differ_by_type_and_property(graph: og.Graph, in_buckets: bool) -> None:
    strategy: dict[str, Literal["ours", "theirs"]] = {"*": "ours", "Person": "theirs", "Person.city": "ours"}
    if in_buckets:
        with few_rows_at_once():
            done = graph.merge("work", strategy=strategy)
    else:
        done = graph.merge("work", strategy=strategy)
    assert done.resolved == 2
    assert rows(graph) == {"Person": (2, "y"), "Team": ("x", 2)}
    found = done.by_branch["node:Person"]
    assert found.source == found.target == og.ChangeCounts(updated=1)
    assert done.to_json()["by_branch"]["node:Team"]["source"] == {"inserted": 0, "updated": 1, "deleted": 0}


def test_a_strategy_for_one_type_leaves_conflicts_of_others(graph: og.Graph) -> None:
    found = graph.merge("work", dry_run=True, strategy={"node:Person": "theirs"})
    assert ({one.type_name for one in found.conflicts}, found.resolved) == ({"Team"}, 1)


def test_decisions_about_single_conflicts_count_more_than_strategies(graph: og.Graph) -> None:
    file = graph.merge("work", dry_run=True).resolution_file()
    file["types"] = {"node:Person": "ours"}
    graph.merge("work", resolutions=file, strategy={"*": "theirs", "Person": "theirs"})
    assert rows(graph) == {"Person": (1, "y"), "Team": ("y", 1)}


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ({"Robot": "ours"}, "names the type 'Robot', which is not there"),
        ({"Person.shoe": "ours"}, "'Person' has no property 'shoe'"),
    ],
)
def test_strategies_for_what_is_not_there_are_refused(
    graph: og.Graph, strategy: dict[str, Literal["ours", "theirs"]], message: str
) -> None:
    with pytest.raises(errors.BadRequest, match=message):
        graph.merge("work", strategy=strategy)


def test_merges_report_what_each_branch_did(graph: og.Graph) -> None:
    put(graph, "work", {"name": "bo"}, {})
    found = graph.merge("work", dry_run=True, granularity="property")
    assert found.by_branch["node:Person"].source == og.ChangeCounts(inserted=1, updated=1)
    assert found.by_branch["node:Person"].target == og.ChangeCounts(updated=1)
