"""Who wins where both branches changed an entity: strategies, files, and single properties."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import BadRequest, InvalidValue, MergeConflicts, StaleResolutions
from omnigraph.graph import Graph
from tests.engine.merge.family import (
    KNOWS,
    PERSON,
    PET,
    everything,
    heads,
    kinds,
    knows,
    person,
    pet,
    put,
    remove,
    rows,
    value,
)


@pytest.fixture
def torn(graph: Graph) -> Graph:
    """Two branches that disagree on ann, who both changed, bob, who one deleted, and dan, who both made."""
    put(graph, person("ann", age=2, city="there"), person("dan", age=2), branch="work")
    remove(graph, "Person", "bob", "work")
    put(graph, person("ann", age=3, city="here"), person("bob", age=3, city="here"), person("dan", age=3))
    return graph


def ages(graph: Graph) -> dict[str, int | None]:
    found = graph.snapshot().rows("Person", columns=["id", "age"]).to_pydict()
    return dict(zip(found["id"], found["age"], strict=True))


def decisions(graph: Graph, **how: Any) -> dict[str, Any]:
    """What a preview writes, as plain values."""
    found: dict[str, Any] = json.loads(json.dumps(graph.merge("work", dry_run=True, **how).resolution_file()))
    return found


def entry(file: dict[str, Any], entity: str) -> Any:
    (found,) = [one for one in file["conflicts"] if one["id"] == entity]
    return found


# --- strategies -------------------------------------------------------------------------------------


def test_with_ours_the_target_stands(torn: Graph) -> None:
    put(torn, person("eve"), branch="work")
    done = torn.merge("work", strategy="ours")
    assert done.resolved == 3
    assert ages(torn) == {"ann": 3, "bob": 3, "cid": 1, "dan": 3, "eve": None}


def test_with_theirs_the_source_stands(torn: Graph) -> None:
    done = torn.merge("work", strategy="theirs")
    assert done.resolved == 3
    assert done.changes[PERSON].to_json() == {"inserted": 0, "updated": 2, "deleted": 1}
    assert everything(torn)[PERSON] == everything(torn, "work")[PERSON]


def test_theirs_brings_back_what_the_target_deleted(graph: Graph) -> None:
    put(graph, person("cid", age=8), branch="work")
    remove(graph, "Person", "cid")
    done = graph.merge("work", strategy="theirs")
    assert done.changes[PERSON].to_json() == {"inserted": 1, "updated": 0, "deleted": 0}
    assert ages(graph)["cid"] == 8


def test_an_unknown_word_is_refused(graph: Graph) -> None:
    with pytest.raises(BadRequest, match="'mine' is not a merge strategy"):
        graph.merge("work", strategy="mine")  # type: ignore[call-overload]
    with pytest.raises(BadRequest, match="'cell' is not a merge granularity"):
        graph.merge("work", granularity="cell")  # type: ignore[call-overload]


# --- levels -----------------------------------------------------------------------------------------


def test_the_more_specific_decision_counts(torn: Graph) -> None:
    put(torn, pet("cat", weight=1.0), branch="work")
    put(torn, pet("cat", weight=2.0))
    torn.merge(
        "work",
        strategy="ours",
        resolutions={
            "default": "theirs",
            "types": {"Person": {"take": "ours", "properties": {"city": "theirs"}}},
            "conflicts": [{"type": "node:Person", "id": "dan", "take": "theirs"}],
        },
    )
    assert value(torn, PET, "cat", "weight") == 1.0
    assert ages(torn) == {"ann": 3, "bob": 3, "cid": 1, "dan": 2}
    assert value(torn, PERSON, "ann", "city") == "there"


def test_base_puts_back_what_was_there_when_the_branches_parted(torn: Graph) -> None:
    torn.merge("work", resolutions={"default": "base"})
    assert ages(torn) == {"ann": 1, "bob": 1, "cid": 1}


@pytest.mark.parametrize(
    ("granularity", "said", "age", "city"),
    [
        ("row", {"default": "base"}, 1, "here"),
        ("row", {"types": {"Person": "base"}}, 1, "here"),
        ("row", {"conflicts": [{"type": "Person", "id": "ann", "take": "base"}]}, 1, "here"),
        ("row", {"default": "ours"}, 3, "there"),
        (
            "row",
            {"conflicts": [{"type": "Person", "id": "ann", "properties": {"age": {"take": "base"}}}]},
            1,
            "there",
        ),
        ("property", {"default": "base"}, 1, "there"),
    ],
)
def test_base_takes_back_what_both_changed_alike_only_with_the_whole_entity(
    graph: Graph, granularity: Any, said: dict[str, Any], age: int, city: str
) -> None:
    put(graph, person("ann", age=2, city="there"), branch="work")
    put(graph, person("ann", age=3, city="there"))
    graph.merge("work", resolutions=said, granularity=granularity)
    assert (ages(graph)["ann"], value(graph, PERSON, "ann", "city")) == (age, city)


def test_single_properties_come_from_different_sides_and_from_nowhere(torn: Graph) -> None:
    file = decisions(torn)
    ann, bob, dan = (entry(file, name) for name in ("ann", "bob", "dan"))
    assert ann["properties"] == {
        "age": {"base": 1, "ours": 3, "theirs": 2, "take": None},
        "city": {"base": "here", "ours": "here", "theirs": "there", "take": None},
    }
    ann["properties"]["age"] = {"value": 40}
    ann["properties"]["city"]["take"] = "theirs"
    bob["take"] = "ours"
    bob["properties"] = {"city": {"value": None}}
    dan["take"] = "theirs"
    torn.merge("work", resolutions=file)
    assert ages(torn) == {"ann": 40, "bob": 3, "cid": 1, "dan": 2}
    assert [value(torn, PERSON, name, "city") for name in ("ann", "bob")] == ["there", None]


def test_an_entity_without_a_decision_stays_in_conflict(torn: Graph) -> None:
    file = decisions(torn)
    entry(file, "ann")["properties"]["age"]["take"] = "ours"
    entry(file, "bob")["take"] = "theirs"
    before = heads(torn)
    with pytest.raises(MergeConflicts) as refused:
        torn.merge("work", resolutions=file)
    assert [one.entity_id for one in refused.value.conflicts] == ["ann", "dan"]
    assert heads(torn) == before
    preview = torn.merge("work", resolutions=file, dry_run=True)
    assert (preview.resolved, len(preview.conflicts), len(preview.met)) == (1, 2, 3)
    assert preview.changes[PERSON].deleted == 1


# --- files ------------------------------------------------------------------------------------------


def test_a_preview_writes_a_file_that_a_merge_reads(torn: Graph, tmp_path: Path) -> None:
    at = tmp_path / "decisions.json"
    torn.merge("work", dry_run=True).write_resolutions(at)
    with pytest.raises(MergeConflicts):
        torn.merge("work", resolutions=at)
    at.write_text(at.read_text(encoding="utf-8").replace('"default": null', '"default": "theirs"'))
    torn.merge("work", resolutions=str(at))
    assert everything(torn)[PERSON] == everything(torn, "work")[PERSON]


def test_decisions_that_were_made_are_kept_when_a_file_is_written_again(torn: Graph, tmp_path: Path) -> None:
    file = decisions(torn)
    entry(file, "ann")["properties"]["age"] = {"value": 40}
    entry(file, "bob")["take"] = "theirs"
    file["types"]["node:Person"] = {"take": None, "properties": {"city": "ours"}}
    put(torn, person("eve", age=1), branch="work")
    put(torn, person("eve", age=2))
    again = decisions(torn, resolutions=file)
    assert entry(again, "ann")["properties"]["age"]["value"] == 40
    assert entry(again, "bob")["take"] == "theirs"
    assert again["types"] == file["types"]
    assert entry(again, "eve")["take"] is None
    at = tmp_path / "decisions.json"
    at.write_text("mine")
    with pytest.raises(BadRequest, match="exists already"):
        torn.merge("work", dry_run=True).write_resolutions(at)
    torn.merge("work", dry_run=True).write_resolutions(at, replaces=True)
    assert json.loads(at.read_text(encoding="utf-8"))["source"] == "work"


def test_a_conflict_that_changed_makes_its_decision_stale(torn: Graph) -> None:
    file = decisions(torn)
    entry(file, "ann")["take"] = "theirs"
    file["default"] = "ours"
    put(torn, person("ann", age=77, city="here"))
    with pytest.raises(StaleResolutions, match="node Person 'ann', but what is in conflict has changed"):
        torn.merge("work", resolutions=file)
    put(torn, person("ann", age=3, city="here"))
    assert torn.merge("work", resolutions=file).resolved == 3


def test_a_conflict_that_is_gone_makes_its_decision_stale(torn: Graph) -> None:
    file = decisions(torn)
    entry(file, "dan")["take"] = "theirs"
    file["default"] = "ours"
    put(torn, person("dan", age=2))
    with pytest.raises(StaleResolutions, match="node Person 'dan', but there is no such conflict"):
        torn.merge("work", dry_run=True, resolutions=file)
    entry(file, "dan")["take"] = None
    torn.merge("work", resolutions=file)


def test_a_decision_about_an_orphan_may_be_settled_by_one_about_its_node(graph: Graph) -> None:
    put(graph, person("cid", age=5), knows("k2", "ann", "cid"), branch="work")
    remove(graph, "Person", "cid")
    file = decisions(graph)
    assert [one["kind"] for one in file["conflicts"]] == ["delete_vs_update", "orphan_edge"]
    for one in file["conflicts"]:
        one["take"] = "theirs"
    graph.merge("work", resolutions=file)
    assert ages(graph)["cid"] == 5
    assert "k2" in rows(graph, KNOWS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"defualt": "ours"}, "unknown field `defualt`"),
        ({"default": "mine"}, "Invalid enum value 'mine'"),
        ({"types": {"Persn": "ours"}}, "the type 'Persn'"),
        ({"source": "draft"}, "for the source 'draft'"),
        ({"into": "side"}, "for the target 'side'"),
        ({"granularity": "property"}, "by property"),
        ({"conflicts": [{"type": "Person", "id": "ann", "take": "ours"}] * 2}, "decide twice on"),
        (
            {
                "conflicts": [
                    {"type": "Person", "id": "ann", "properties": {"age": {"take": "ours", "value": 1}}}
                ]
            },
            "both a side to take and a value",
        ),
        ({"conflicts": [{"type": "Person", "id": "ann", "properties": {"agee": {"value": 1}}}]}, "'agee'"),
        ({"types": {"Person": {"properties": {"agee": "ours"}}}}, "'agee'"),
        (
            {"conflicts": [{"type": "Person", "id": "ann", "properties": {"name": {"value": "x"}}}]},
            "'name' is the key",
        ),
        (
            {
                "conflicts": [
                    {"type": "Person", "id": "bob", "take": "theirs", "properties": {"age": {"value": 1}}}
                ]
            },
            "and be deleted",
        ),
        (
            {
                "conflicts": [
                    {"type": "Person", "id": "dan", "take": "ours", "properties": {"age": {"take": "base"}}}
                ]
            },
            "where the entity is not",
        ),
    ],
)
def test_wrong_resolutions_are_rejected(torn: Graph, content: dict[str, Any], message: str) -> None:
    before = heads(torn)
    with pytest.raises(BadRequest, match=message):
        torn.merge("work", strategy="ours", resolutions=content)
    assert heads(torn) == before


@pytest.mark.parametrize(("name", "wrong"), [("age", "old"), ("age", 2**40), ("city", 5)])
def test_a_value_of_the_wrong_type_is_rejected(torn: Graph, name: str, wrong: Any) -> None:
    choice = {"type": "Person", "id": "ann", "take": "ours", "properties": {name: {"value": wrong}}}
    with pytest.raises(InvalidValue, match=name):
        torn.merge("work", strategy="ours", resolutions={"conflicts": [choice]})


def test_files_that_cannot_be_read_are_reported(graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        graph.merge("work", resolutions=tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(BadRequest, match="not JSON"):
        graph.merge("work", resolutions=tmp_path / "bad.json")
    put(graph, person("ann", age=2), branch="work")
    with pytest.raises(BadRequest, match="cannot be written"):
        graph.merge("work", dry_run=True).write_resolutions(tmp_path / "no" / "where.json")


# --- properties -------------------------------------------------------------------------------------


def test_changes_of_different_properties_go_together_when_asked(graph: Graph) -> None:
    put(graph, person("ann", age=2, city="here", email="a@b"), branch="work")
    put(graph, person("ann", age=1, city="there", email="a@b"))
    assert kinds(graph, "work") == ["divergent_update"]
    done = graph.merge("work", granularity="property")
    assert done.changes[PERSON].updated == 1
    found = [value(graph, PERSON, "ann", name) for name in ("age", "city", "email")]
    assert found == [2, "there", "a@b"]


def test_only_the_clashing_properties_are_in_conflict(graph: Graph) -> None:
    put(graph, person("ann", age=2, city="w", level="low"), branch="work")
    put(graph, person("ann", age=3, city="here", level="low", email="m@m"))
    (conflict,) = graph.merge("work", dry_run=True, granularity="property").conflicts
    assert conflict.properties == ("age",)
    graph.merge("work", granularity="property", strategy="theirs")
    found = [value(graph, PERSON, "ann", name) for name in ("age", "city", "email", "level")]
    assert found == [2, "w", "m@m", "low"]


def test_an_edge_that_both_changed_is_merged_by_property(graph: Graph) -> None:
    put(graph, knows("k1", "ann", "cid"), branch="work")
    put(graph, knows("k1", "ann", "bob", since=3))
    assert kinds(graph, "work") == ["divergent_update"]
    graph.merge("work", granularity="property")
    assert [value(graph, KNOWS, "k1", name) for name in ("src", "dst", "since")] == ["ann", "cid", 3]


def test_deletes_and_inserts_clash_at_any_granularity(torn: Graph) -> None:
    found = kinds(torn, "work", granularity="property")
    assert found == ["divergent_update", "delete_vs_update", "divergent_insert"]


def test_properties_that_go_together_are_checked_together(graph: Graph) -> None:
    put(graph, knows("k1", "cid", "bob"), branch="work")
    put(graph, knows("k1", "ann", "bob", since=3))
    remove(graph, "Person", "cid")
    assert kinds(graph, "work", granularity="property") == ["orphan_edge"]


# --- previews ---------------------------------------------------------------------------------------


def test_a_preview_tells_all_and_changes_nothing(torn: Graph) -> None:
    before = (heads(torn), everything(torn))
    preview = torn.merge("work", dry_run=True)
    assert (heads(torn), everything(torn)) == before
    assert repr(preview) == (
        "<MergePreview 'work' into 'main': merged, 0 inserted, 0 updated, 1 deleted, 3 conflicts>"
    )
    report = preview.to_json()
    assert [one["kind"] for one in report["merge_conflicts"]] == [
        "divergent_update",
        "delete_vs_update",
        "divergent_insert",
    ]
    ann, bob, dan = report["merge_conflicts"]
    assert ann == {
        "entity_kind": "node",
        "type_name": "Person",
        "entity_id": "ann",
        "table_key": PERSON,
        "row_id": "ann",
        "kind": "divergent_update",
        "message": "node Person 'ann' was changed on both 'work' and 'main': "
        "'work' changed age, city; 'main' changed age",
        "properties": ["age", "city"],
        "source_changed": ["age", "city"],
        "target_changed": ["age"],
        **{
            side: {"properties": {"name": "ann", "age": age, "city": city, "email": None, "level": None}}
            for side, age, city in (("base", 1, "here"), ("source", 2, "there"), ("target", 3, "here"))
        },
    }
    assert bob["message"] == "node Person 'bob' was deleted on 'work' and changed on 'main'"
    assert "source" not in bob
    assert dan["message"].startswith("node Person 'dan' was inserted on both 'work' and 'main'")
    assert "base" not in dan


def test_a_refusal_names_three_conflicts_and_counts_the_rest(torn: Graph) -> None:
    put(torn, pet("cat", weight=1.0), branch="work")
    put(torn, pet("cat", weight=2.0))
    with pytest.raises(MergeConflicts, match=r"(?m)has 4 conflicts: .*; and 1 more$") as refused:
        torn.merge("work")
    assert [one["entity_id"] for one in refused.value.to_json()["data"]["conflicts"]] == [
        "ann",
        "bob",
        "dan",
        "cat",
    ]


def test_a_result_says_what_it_did(torn: Graph) -> None:
    done = torn.merge("work", strategy="theirs", actor="eve", delete_branch=True)
    assert repr(done) == (
        "<MergeResult 'work' into 'main': merged, 0 inserted, 2 updated, 2 deleted, branch deleted>"
    )
    assert done.commit is not None
    assert done.to_json() == {
        "source": "work",
        "target": "main",
        "outcome": "merged",
        "actor_id": "eve",
        "branch_deleted": True,
        "graph_commit_id": done.commit.id,
        "resolved": 3,
        "changes": {
            PERSON: {"inserted": 0, "updated": 2, "deleted": 1},
            KNOWS: {"inserted": 0, "updated": 0, "deleted": 1},
        },
        "pending_indexes": {},
        "by_branch": {key: one.to_json() for key, one in done.by_branch.items()},
    }


def test_a_blob_in_conflict_is_reported_by_size_and_digest(graph: Graph) -> None:
    put(graph, pet("cat", photo="base64:b25l"), branch="work")
    put(graph, pet("cat", photo="base64:dHdv"))
    (conflict,) = graph.merge("work", dry_run=True).conflicts
    assert conflict.source is not None
    assert str(conflict.source.properties["photo"]).startswith("3 bytes, sha256:7692c3ad3540bb80")
    choice = {"type": "Pet", "id": "cat", "properties": {"photo": {"value": "base64:dGhyZWU="}}}
    graph.merge("work", resolutions={"conflicts": [choice]})
    assert value(graph, PET, "cat", "photo") == b"three"
