"""Rules that each branch keeps and both together break; what a decision about such an entity means."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.errors import BadRequest, MergeConflicts
from omnigraph.graph import Graph
from tests.engine.merge.family import (
    KNOWS,
    OWNS,
    PERSON,
    everything,
    heads,
    kinds,
    knows,
    owns,
    person,
    pet,
    put,
    remove,
    rows,
    value,
)


def merge_refused(
    graph: Graph, source: str = "work", into: str = "main", **how: Any
) -> list[tuple[str, str | None, str]]:
    """The conflicts of a merge that must not happen, and that must change nothing."""
    before = (heads(graph), everything(graph, into))
    with pytest.raises(MergeConflicts) as caught:
        graph.merge(source, into, **how)
    assert (heads(graph), everything(graph, into)) == before
    return [(one.table_key, one.entity_id, one.kind.value) for one in caught.value.conflicts]


def decide(type_name: str, entity: str, **choice: Any) -> dict[str, Any]:
    return {"conflicts": [{"type": type_name, "id": entity, **choice}]}


@pytest.fixture(params=["main", "side"])
def into(request: pytest.FixtureRequest, graph: Graph) -> str:
    """A target: main, or a branch beside the source."""
    graph.branches.create("side")
    return str(request.param)


def test_an_edge_of_the_source_without_its_node_is_an_orphan(graph: Graph, into: str) -> None:
    put(graph, knows("k2", "ann", "cid"), branch="work")
    remove(graph, "Person", "cid", into)
    assert merge_refused(graph, into=into) == [(KNOWS, "k2", "orphan_edge")]
    (conflict,) = graph.merge("work", into, dry_run=True).conflicts
    assert conflict.message == "edge Knows 'k2': dst 'cid' not found in Person"
    assert conflict.source is not None
    assert (conflict.source.source, conflict.source.target) == ("ann", "cid")
    assert (conflict.base, conflict.target) == (None, None)


def test_an_edge_of_the_target_without_its_node_is_an_orphan(graph: Graph, into: str) -> None:
    put(graph, knows("k2", "ann", "cid"), branch=into)
    remove(graph, "Person", "cid", "work")
    assert merge_refused(graph, into=into) == [(KNOWS, "k2", "orphan_edge")]


def test_an_orphan_of_an_adopted_table_is_found(graph: Graph) -> None:
    remove(graph, "Person", "cid")
    put(graph, knows("k2", "ann", "cid"), branch="work")
    assert merge_refused(graph, "main", "work") == [(KNOWS, "k2", "orphan_edge")]


def test_an_edge_without_both_nodes_is_one_conflict(graph: Graph) -> None:
    put(graph, knows("k2", "bob", "cid"), branch="work")
    remove(graph, "Person", "bob")
    remove(graph, "Person", "cid")
    (conflict,) = graph.merge("work", dry_run=True).conflicts
    assert conflict.message.count("not found in Person") == 2


def test_one_value_given_to_two_entities_breaks_unique(graph: Graph, into: str) -> None:
    put(graph, person("ann", email="x@y"), branch="work")
    put(graph, person("bob", email="x@y"), branch=into)
    assert merge_refused(graph, into=into) == [(PERSON, "ann", "unique_violation")]
    (conflict,) = graph.merge("work", into, dry_run=True).conflicts
    assert conflict.message == "@unique violation on Person.email: value 'x@y' held by 'bob' and 'ann'"


def test_a_value_that_its_owner_gave_up_is_free(graph: Graph) -> None:
    put(graph, person("ann", email="x@y"))
    graph.branches.create("later")
    put(graph, person("bob", email="x@y"), person("ann", email="z@y"), branch="later")
    put(graph, person("dan"))
    assert kinds(graph, "later") == []
    graph.merge("later")
    assert value(graph, PERSON, "bob", "email") == "x@y"


def test_too_many_edges_together_break_card(graph: Graph, into: str) -> None:
    put(graph, owns("o1", "ann", "cat"), branch="work")
    put(graph, pet("dog"), owns("o2", "ann", "dog"), owns("o3", "ann", "cat"), branch=into)
    assert merge_refused(graph, into=into) == [(OWNS, "o1", "cardinality_violation")]
    graph.merge("work", into, resolutions=decide("Owns", "o1", take="ours"))
    assert rows(graph, OWNS, into).keys() == {"o2", "o3"}


def test_a_value_that_somebody_decides_on_is_checked(graph: Graph) -> None:
    put(graph, person("ann", level="low"), branch="work")
    put(graph, person("ann", level="high"))
    wrong = decide("Person", "ann", take="ours", properties={"level": {"value": "middle"}})
    assert merge_refused(graph, resolutions=wrong) == [(PERSON, "ann", "value_constraint_violation")]


def test_everything_that_is_wrong_is_reported_at_once(graph: Graph) -> None:
    put(graph, person("ann", age=2), person("bob", email="x@y"), knows("k2", "bob", "cid"), branch="work")
    put(graph, person("ann", age=3), person("dan", email="x@y"))
    remove(graph, "Person", "cid")
    assert merge_refused(graph) == [
        (PERSON, "ann", "divergent_update"),
        (PERSON, "bob", "unique_violation"),
        (KNOWS, "k2", "orphan_edge"),
    ]


# --- decisions about orphans: the edge and the node together ----------------------------------------


def test_ours_drops_an_edge_of_the_source_with_the_node_that_is_gone(graph: Graph, into: str) -> None:
    put(graph, knows("k2", "ann", "cid"), branch="work")
    remove(graph, "Person", "cid", into)
    graph.merge("work", into, resolutions=decide("Knows", "k2", take="ours"))
    assert rows(graph, KNOWS, into).keys() == {"k1"}
    assert rows(graph, PERSON, into).keys() == {"ann", "bob"}


def test_theirs_brings_the_node_of_such_an_edge_back(graph: Graph, into: str) -> None:
    put(graph, knows("k2", "ann", "cid"), branch="work")
    remove(graph, "Person", "cid", into)
    done = graph.merge("work", into, resolutions=decide("Knows", "k2", take="theirs"))
    assert done.changes[PERSON].inserted == 1
    assert rows(graph, KNOWS, into).keys() == {"k1", "k2"}
    assert rows(graph, PERSON, into)["cid"] == rows(graph, PERSON, "work")["cid"]


def test_ours_keeps_the_node_that_the_source_deleted(graph: Graph, into: str) -> None:
    put(graph, knows("k2", "ann", "cid"), branch=into)
    remove(graph, "Person", "cid", "work")
    done = graph.merge("work", into, resolutions=decide("Knows", "k2", take="ours"))
    assert dict(done.changes) == {}
    assert rows(graph, PERSON, into).keys() == {"ann", "bob", "cid"}
    assert "k2" in rows(graph, KNOWS, into)


def test_theirs_deletes_the_edge_of_the_target_with_the_node(graph: Graph, into: str) -> None:
    put(graph, knows("k2", "ann", "cid"), knows("k3", "bob", "cid"), branch=into)
    remove(graph, "Person", "cid", "work")
    both = {"types": {"Knows": "theirs"}}
    graph.merge("work", into, resolutions=both)
    assert rows(graph, PERSON, into).keys() == {"ann", "bob"}
    assert rows(graph, KNOWS, into).keys() == {"k1"}


def test_a_decision_on_one_of_two_orphans_leaves_the_other(graph: Graph) -> None:
    put(graph, knows("k2", "ann", "cid"), knows("k3", "bob", "cid"), branch="work")
    remove(graph, "Person", "cid")
    assert merge_refused(graph, resolutions=decide("Knows", "k2", take="ours")) == [
        (KNOWS, "k3", "orphan_edge")
    ]
    graph.merge("work", resolutions=decide("Knows", "k2", take="theirs"))
    assert rows(graph, KNOWS).keys() == {"k1", "k2", "k3"}


def test_a_strategy_does_not_decide_about_orphans(graph: Graph) -> None:
    put(graph, knows("k2", "ann", "cid"), branch="work")
    remove(graph, "Person", "cid")
    assert merge_refused(graph, strategy="ours") == [(KNOWS, "k2", "orphan_edge")]
    assert merge_refused(graph, strategy="theirs") == [(KNOWS, "k2", "orphan_edge")]


def test_a_decision_can_bring_up_another_conflict_and_a_second_one_settle_it(graph: Graph) -> None:
    put(graph, person("cid", age=5), knows("k2", "ann", "cid"))
    remove(graph, "Person", "cid", "work")
    theirs = {"type": "Person", "id": "cid", "take": "theirs"}
    assert merge_refused(graph, resolutions={"conflicts": [theirs]}) == [(KNOWS, "k2", "orphan_edge")]
    both = {"conflicts": [theirs, {"type": "Knows", "id": "k2", "take": "theirs"}]}
    graph.merge("work", resolutions=both)
    assert rows(graph, PERSON).keys() == {"ann", "bob"}
    assert rows(graph, KNOWS).keys() == {"k1"}


def test_a_table_with_a_decision_in_it_is_not_adopted(graph: Graph) -> None:
    remove(graph, "Person", "cid")
    put(graph, person("dan"))
    put(graph, knows("k2", "ann", "cid"), branch="work")
    graph.merge("main", "work", resolutions=decide("Knows", "k2", take="ours"))
    assert rows(graph, PERSON, "work").keys() == {"ann", "bob", "cid", "dan"}
    assert rows(graph, PERSON).keys() == {"ann", "bob", "dan"}
    assert graph.snapshot("work").tables[PERSON].branch == "work"


# --- decisions about unique values ------------------------------------------------------------------


def test_a_shared_value_is_settled_by_another_one_or_by_ours(graph: Graph, into: str) -> None:
    put(graph, person("ann", age=5, email="x@y"), branch="work")
    put(graph, person("bob", email="x@y"), branch=into)
    assert merge_refused(graph, into=into, resolutions=decide("Person", "ann", take="theirs"))
    other = decide("Person", "ann", properties={"email": {"value": "ann@y"}})
    graph.merge("work", into, resolutions=other)
    assert value(graph, PERSON, "ann", "email", into) == "ann@y"
    assert value(graph, PERSON, "ann", "age", into) == 5


def test_ours_leaves_an_entity_with_a_shared_value_as_the_target_has_it(graph: Graph) -> None:
    put(graph, person("dan", email="x@y"), person("ann", age=7, city="here"), branch="work")
    put(graph, person("bob", email="x@y"))
    graph.merge("work", resolutions=decide("Person", "dan", take="ours"))
    assert "dan" not in rows(graph, PERSON)
    assert value(graph, PERSON, "ann", "age") == 7


def test_a_decision_that_breaks_a_rule_is_a_conflict_like_any_other(graph: Graph) -> None:
    put(graph, person("ann", age=2, email="x@y"), branch="work")
    put(graph, person("ann", age=3), person("bob", email="x@y"))
    sides = {"age": {"take": "ours"}, "email": {"take": "theirs"}, "city": {"take": "base"}}
    by_property = decide("Person", "ann", properties=sides)
    assert merge_refused(graph, resolutions=by_property) == [(PERSON, "ann", "unique_violation")]
    second = {"type": "Person", "id": "ann", "kind": "unique_violation", "take": "ours"}
    graph.merge("work", resolutions={"conflicts": [*by_property["conflicts"], second]})
    assert [value(graph, PERSON, "ann", name) for name in ("age", "email")] == [3, None]


def test_a_broken_rule_is_not_decided_by_single_properties(graph: Graph) -> None:
    put(graph, person("ann", email="x@y"), branch="work")
    put(graph, person("bob", email="x@y"))
    by_property = decide("Person", "ann", properties={"email": {"take": "ours"}})
    with pytest.raises(BadRequest, match="not about single properties"):
        graph.merge("work", resolutions=by_property)
