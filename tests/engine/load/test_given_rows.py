"""Rows passed as rows: problems are reported by their numbers, and never by a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engine.load.spool import PassedRows
from omnigraph.errors import BadRequest, KeyConflict, LoadRejected

SCHEMA = """
node Person { name: String @key  age: I32?  likes: Vector(2)?  tags: [String]? }
edge Knows: Person -> Person
"""
TOO_OLD = 2**40
PEOPLE: list[dict[str, Any]] = [{"name": "bo", "age": 20}, {"name": "cy", "age": TOO_OLD}, {"name": "ada"}]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as made:
        with made.write() as tx:
            tx.insert("Person", name="ada")
        yield made


def stored_ages(graph: og.Graph) -> dict[str, Any]:
    return {row["name"]: row["age"] for row in graph.snapshot().rows("Person").to_pylist()}


@pytest.mark.parametrize("as_table", [False, True], ids=["dictionaries", "arrow"])
def test_what_is_wrong_with_a_row_is_reported_by_its_number(graph: og.Graph, *, as_table: bool) -> None:
    rows = pa.Table.from_pylist(PEOPLE) if as_table else PEOPLE
    with pytest.raises(LoadRejected) as refused:
        graph.load(rows, type="Person", mode="merge")
    reason = f"property 'age' value {TOO_OLD} exceeds Int32 range"
    assert str(refused.value) == f"<rows of Person>: row 2: {reason}"
    assert [one.to_json() for one in refused.value.violations] == [
        {"file": "<rows of Person>", "row": 2, "entity": "node:Person 'cy'", "reason": reason}
    ]


def test_what_is_wrong_with_all_rows_names_them_and_no_file(graph: og.Graph) -> None:
    with pytest.raises(LoadRejected, match=r"^<rows of Person>: unknown input field 'nick'"):
        graph.load([{"name": "bo", "nick": "b"}], type="Person", mode="append")


def test_rows_that_are_stored_or_lack_an_end_are_reported_by_their_numbers(graph: og.Graph) -> None:
    with pytest.raises(KeyConflict) as taken:
        graph.load([{"name": "bo"}, {"name": "ada"}], type="Person", mode="append")
    assert [(one.file, one.line) for one in taken.value.violations] == [("<rows of Person>", 2)]
    with pytest.raises(LoadRejected, match=r"(?m)^<rows of Knows>: row 2: dst 'zoe' not found in Person$"):
        graph.load([{"from": "ada", "to": to} for to in ("ada", "zoe")], type="Knows", mode="append")


def test_rejects_and_what_was_left_out_tell_rows_by_their_numbers(graph: og.Graph, tmp_path: Path) -> None:
    at = tmp_path / "rejects.jsonl"
    done = graph.load(PEOPLE, type="Person", mode="merge", skip_bad=True, rejects=at)
    assert [(one.file, one.line) for one in done.skipped] == [("<rows of Person>", 2)]
    (reject,) = map(json.loads, at.read_text().splitlines())
    assert (reject["file"], reject["row"]) == ("<rows of Person>", 2)
    assert reject["record"] == {"name": "cy", "age": TOO_OLD}
    assert stored_ages(graph) == {"ada": None, "bo": 20}


def test_rows_in_several_files_are_numbered_on(graph: og.Graph, tmp_path: Path) -> None:
    files = [tmp_path / f"{part}" / "Person.arrow" for part in range(2)]
    for file in files:
        file.parent.mkdir()
        with (
            pa.OSFile(str(file), "wb") as sink,
            pa.ipc.new_file(sink, pa.Table.from_pylist(PEOPLE).schema) as out,
        ):
            out.write_table(pa.Table.from_pylist([{"name": file.parent.name, "age": 1}, PEOPLE[1]]))
    given = [PassedRows(str(file), "Person", 2 * part) for part, file in enumerate(files)]
    with pytest.raises(LoadRejected) as refused:
        graph.load(given, mode="append")
    assert [one.line for one in refused.value.violations] == [2, 4]


def test_dictionaries_need_not_have_the_same_members(graph: og.Graph) -> None:
    rows = [{"name": "bo", "tags": []}, {"name": "cy", "likes": [1, 2.5]}, {"age": 3, "name": "dee"}]
    done = graph.load(rows, type="Person", mode="append")
    assert repr(done) == f"<LoadResult 3 Person, commit {graph.snapshot().id}>"
    found = graph.snapshot().rows("Person", columns=["name", "tags", "likes", "age"]).sort_by("name")
    assert found.to_pylist()[1:] == [
        {"name": "bo", "tags": [], "likes": None, "age": None},
        {"name": "cy", "tags": None, "likes": [1.0, 2.5], "age": None},
        {"name": "dee", "tags": None, "likes": None, "age": 3},
    ]


def test_values_that_do_not_fit_together_name_their_property(graph: og.Graph) -> None:
    with pytest.raises(BadRequest, match=r"^the values of 'age' do not fit together: "):
        graph.load([{"name": "bo", "age": 1}, {"name": "cy", "age": "x"}], type="Person", mode="append")


def test_an_empty_list_is_no_rows_of_its_type(graph: og.Graph) -> None:
    assert repr(graph.load([], type="Knows", mode="append")) == "<LoadResult 0 Knows, no commit>"
    graph.load([], type="Person", mode="overwrite")
    assert stored_ages(graph) == {}


def test_what_is_no_rows_is_reported_with_what_to_give(graph: og.Graph) -> None:
    for given, found in (
        ([5], "'int' in a list"),
        ({"name": "bo"}, "'dict'"),
        ([{"name": "bo"}, 5], "'int' in a list"),
        (iter([5]), "'int' in an iterator"),
    ):
        expected = rf"(?m)^a load of 'Person' takes rows or paths, and no {found}$"
        with pytest.raises(BadRequest, match=expected) as refused:
            graph.load(given, type="Person", mode="append")
        assert "a list of dictionaries" in (refused.value.remedy or "")
    assert set(stored_ages(graph)) == {"ada"}


def test_what_is_no_name_of_a_file_is_reported_with_what_to_give(graph: og.Graph) -> None:
    for given in (({"name": "bo"} for _ in range(1)), {"name": "bo"}, [5], 5, b"people.jsonl", None):
        with pytest.raises(BadRequest, match=r"^a load takes names of files, and no '") as refused:
            graph.load(given, mode="append")
        assert "type=" in (refused.value.remedy or "")


def test_rows_of_several_types_are_one_commit(tmp_path: Path) -> None:
    schema = "node Person { name: String @key }  edge Knows: Person -> Person"
    with og.init(tmp_path / "graph", schema=schema) as graph:
        before = graph.snapshot().id
        people, knows = pa.table({"name": ["ada", "bo"]}), [{"from": "ada", "to": "bo"}]
        done = graph.load({"Knows": knows, "Person": people}, mode="append")
        assert (done.nodes, done.edges) == ({"Person": 2}, {"Knows": 1})
        assert done.commit is not None
        assert done.commit.parent == before
        with pytest.raises(LoadRejected, match="<rows of Knows>: row 1"):
            graph.load({"Person": [{"name": "cy"}], "Knows": [{"from": "cy", "to": "dee"}]}, mode="append")
        assert graph.load({"Knows": []}, mode="overwrite").edges == {"Knows": 0}
        assert graph.snapshot().rows("Person").num_rows == 2
        with pytest.raises(BadRequest, match="unknown type 'Persn'"):
            graph.load({"Persn": people}, mode="append")
        with pytest.raises(BadRequest, match="takes names of files, and no 'dict'"):
            graph.load({"name": "ada"}, mode="append")
