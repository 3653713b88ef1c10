"""What conflicts say about either branch, and what decisions about whole entities say they gave up."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Literal

import pytest

from omnigraph.engine.merge import table_merge
from omnigraph.errors import MergeConflicts
from omnigraph.graph import Graph
from tests.engine.changes.world import few_rows_at_once
from tests.engine.merge.family import PERSON, knows, person, put, remove, value

HOW = pytest.mark.parametrize("in_buckets", [False, True], ids=["in memory", "in buckets"])
FIRST = "merge with --granularity property, which settles "


def conflict_of(graph: Graph) -> Any:
    (found,) = graph.merge("work", dry_run=True).conflicts
    return found


@pytest.fixture
def apart(graph: Graph) -> Graph:
    """`work` changed only the age of ann, and main only the city."""
    put(graph, person("ann", age=2, city="here"), branch="work")
    put(graph, person("ann", age=1, city="Ulm"))
    return graph


@HOW
def test_changes_of_different_properties_have_a_remedy(apart: Graph, in_buckets: bool) -> None:
    with few_rows_at_once() if in_buckets else nullcontext():
        found = conflict_of(apart)
    assert found.message == (
        "node Person 'ann' was changed on both 'work' and 'main': 'work' changed age; 'main' changed city"
    )
    assert (found.source_changed, found.target_changed) == (("age",), ("city",))
    assert found.properties == ("age", "city")
    assert found.is_separable
    assert found.to_json()["source_changed"] == ["age"]
    assert found.to_json()["target_changed"] == ["city"]
    assert "--granularity property" in found.to_json()["remedy"]
    with pytest.raises(MergeConflicts) as error:
        apart.merge("work")
    assert (error.value.remedy or "").startswith(f"{FIRST}this; or ")
    assert apart.merge("work", granularity="property").given_up == ()
    assert [value(apart, PERSON, "ann", name) for name in ("age", "city")] == [2, "Ulm"]


def test_a_remedy_counts_what_it_settles(apart: Graph) -> None:
    put(apart, person("bob", age=5, city="here"), branch="work")
    put(apart, person("bob", age=6, city="here"))
    with pytest.raises(MergeConflicts) as error:
        apart.merge("work")
    assert (error.value.remedy or "").startswith(f"{FIRST}1 of these; or ")


def test_a_property_that_both_changed_is_not_separable(graph: Graph) -> None:
    put(graph, person("ann", age=2, city="there"), branch="work")
    put(graph, person("ann", age=3, city="here"))
    found = conflict_of(graph)
    assert found.message.endswith("'work' changed age, city; 'main' changed age")
    assert not found.is_separable
    assert "remedy" not in found.to_json()


def test_a_property_that_both_changed_alike_leaves_the_others_separable(graph: Graph) -> None:
    put(graph, person("ann", age=9, city="there"), branch="work")
    put(graph, person("ann", age=9, city="here", email="a@x"))
    found = conflict_of(graph)
    assert found.message.endswith("'work' changed age, city; 'main' changed age, email")
    assert found.is_separable
    graph.merge("work", granularity="property")
    assert value(graph, PERSON, "ann", "city") == "there"


def test_of_a_deleted_entity_the_other_branch_says_what_it_changed(graph: Graph) -> None:
    put(graph, person("cid", age=2, city="here"), branch="work")
    remove(graph, "Person", "cid")
    found = conflict_of(graph)
    assert (found.source_changed, found.target_changed) == (("age",), ())
    assert not found.is_separable


def test_the_ends_of_edges_are_reported_like_properties(graph: Graph) -> None:
    put(graph, knows("k1", "ann", "cid"), branch="work")
    put(graph, knows("k1", "ann", "bob", since=3))
    found = conflict_of(graph)
    assert found.message.endswith("'work' changed dst; 'main' changed since")


@HOW
@pytest.mark.parametrize(
    ("strategy", "source", "target"), [("theirs", {}, {"city": "Ulm"}), ("ours", {"age": 2}, {})]
)
def test_a_strategy_says_which_uncontested_values_it_gave_up(
    apart: Graph,
    strategy: Literal["ours", "theirs"],
    source: dict[str, Any],
    target: dict[str, Any],
    in_buckets: bool,
) -> None:
    with few_rows_at_once() if in_buckets else nullcontext():
        preview = apart.merge("work", strategy=strategy, dry_run=True)
        done = apart.merge("work", strategy=strategy)
    (lost,) = done.given_up
    assert preview.given_up == done.given_up
    assert (lost.table_key, lost.entity_id, lost.source, lost.target) == (PERSON, "ann", source, target)
    assert (done.given_up_count, done.to_json()["given_up_count"]) == (1, 1)
    dropped = {"source": source, "target": target}
    assert done.to_json()["given_up"] == [
        {
            "entity_kind": "node",
            "type_name": "Person",
            "entity_id": "ann",
            **{side: values for side, values in dropped.items() if values},
        }
    ]


def test_the_base_taken_whole_gives_up_what_either_branch_changed_alone(apart: Graph) -> None:
    (lost,) = apart.merge("work", resolutions={"default": "base"}).given_up
    assert (lost.source, lost.target) == ({"age": 2}, {"city": "Ulm"})


def test_nothing_is_given_up_where_both_changed_the_same_property(graph: Graph) -> None:
    put(graph, person("ann", age=2, city="here"), branch="work")
    put(graph, person("ann", age=3, city="here"))
    done = graph.merge("work", strategy="theirs")
    assert (done.resolved, done.given_up, done.given_up_count) == (1, (), 0)
    assert "given_up" not in done.to_json()


def test_decisions_about_single_properties_give_up_only_what_they_leave(apart: Graph) -> None:
    properties = {"age": {"take": "theirs"}, "city": {"take": "ours"}}
    said = {"conflicts": [{"type": "Person", "id": "ann", "properties": properties}]}
    assert apart.merge("work", resolutions=said).given_up == ()


def test_of_very_many_entities_the_first_are_listed_and_all_counted(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_merge, "MAX_GIVEN_UP", 1)
    names = ("ann", "bob", "cid")
    put(graph, *(person(name, age=2, city="here") for name in names), branch="work")
    put(graph, *(person(name, age=1, city="Ulm") for name in names))
    done = graph.merge("work", strategy="theirs")
    assert ([one.entity_id for one in done.given_up], done.given_up_count) == (["ann"], 3)
