"""Mapping files: what they make of columns, and what is said about those that make no sense."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from omnigraph.engine.load.sources.mapping import build_mapping, parse_mapping, read_mapping
from omnigraph.errors import BadRequest, OmnigraphError
from tests.engine.load.sources.support import plan, read
from tests.lang.casefile import Case, read_cases

CASES = read_cases(Path(__file__).with_name("mapping_errors.txt"))
PEOPLE = pa.table({"login": ["ada", "bo"], "years": [36, 20], "city": ["X", "Y"]})


@pytest.fixture
def people(tmp_path: Path) -> Path:
    pq.write_table(PEOPLE, tmp_path / "people.parquet")
    return tmp_path / "people.parquet"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_mapping_that_makes_no_sense_is_refused_with_its_place(case: Case, people: Path) -> None:
    with pytest.raises(OmnigraphError) as refused:
        plan(people, mapping=parse_mapping(case.section("mapping") or "", "map.yaml"))
    message, _, remedy = (case.section("error") or "").strip().partition("\nhelp: ")
    assert refused.value.message.replace(str(people), people.name) == message
    assert (refused.value.remedy or "") == remedy


def test_columns_key_constants_and_drop(people: Path) -> None:
    mapping = parse_mapping(
        """
        inputs:
          - files: "elsewhere/*"
            type: Note
          - files: people.parquet
            type: Person
            key: login
            columns: {years: age}
            constants: {role: dev, tags: [x, y], born: 2001-02-03, face: [1, 2.5], photo: "base64:AA=="}
            drop: [city]
        """
    )
    rows = read(people, mapping=mapping).rows["node:Person"]
    assert [(row["handle"], row["age"], row["role"], row["tags"]) for row in rows] == [
        ("ada", 36, "dev", ["x", "y"]),
        ("bo", 20, "dev", ["x", "y"]),
    ]
    assert [str(row["born"]) for row in rows] == ["2001-02-03"] * 2
    assert [(row["face"], row["photo"]) for row in rows] == [([1.0, 2.5], b"\0")] * 2


def test_a_star_drops_what_is_no_property(people: Path) -> None:
    mapping = build_mapping(
        {"inputs": [{"files": "people.*", "type": "Person", "key": "login", "drop": "*"}]}
    )
    assert [row["handle"] for row in read(people, mapping=mapping).rows["node:Person"]] == ["ada", "bo"]


def test_ends_and_ids_of_edges_may_have_any_name_and_an_end_may_be_the_same_for_all(people: Path) -> None:
    entry = {"files": "people.parquet", "edge": "KNOWS", "from": "login", "id": "city", "drop": "years"}
    mapping = build_mapping({"inputs": [{**entry, "constants": {"to": "cy", "weight": 1}}]})
    rows = read(people, mapping=mapping).rows["edge:Knows"]
    assert [(row["id"], row["src"], row["dst"], row["weight"]) for row in rows] == [
        ("X", "ada", "cy", 1.0),
        ("Y", "bo", "cy", 1.0),
    ]


def test_the_first_entry_that_covers_a_file_holds(tmp_path: Path) -> None:
    entries = [
        {"files": "in/*.csv", "type": "Note"},
        {"files": ["*.csv", "/abs/*.tsv"], "edge": "Knows"},
    ]
    mapping = build_mapping({"inputs": entries})
    assert mapping.entry("/data/in/x.csv").type == "Note"
    assert mapping.entry("in/x.csv").type == "Note"
    assert mapping.entry("main/x.csv").edge == "Knows"
    assert mapping.entry("x.tsv").edge is None
    assert mapping.entry("/abs/x.tsv").edge == "Knows"


def test_a_mapping_is_checked_by_the_type_that_the_name_of_the_file_tells(tmp_path: Path) -> None:
    pq.write_table(PEOPLE, tmp_path / "Person.parquet")
    mapping = build_mapping({"inputs": [{"files": "*.parquet", "columns": {"login": "nick"}}]}, "m")
    with pytest.raises(BadRequest, match="m: node type 'Person' has no property 'nick'"):
        plan(tmp_path / "Person.parquet", mapping=mapping)


def test_a_property_that_is_named_like_an_end_is_reached_through_a_mapping(tmp_path: Path) -> None:
    schema = "node T { k: String @key }\nedge E: T -> T { from: String? }"
    pq.write_table(pa.table({"from": ["a"], "to": ["b"], "origin": ["o"]}), tmp_path / "E.parquet")
    mapping = build_mapping({"inputs": [{"files": "*", "columns": {"origin": "from"}}]})
    (row,) = read(tmp_path / "E.parquet", schema=schema, mapping=mapping).rows["edge:E"]
    assert (row["src"], row["dst"], row["from"]) == ("a", "b", "o")


def test_json_is_a_mapping_too_and_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text('{"inputs": [{"files": "*.csv", "type": "Note", "multiline": false}]}')
    (entry,) = read_mapping(tmp_path / "m.json").entries
    assert (entry.type, entry.multiline) == ("Note", False)
    with pytest.raises(BadRequest, match=r"cannot read mapping '.*absent\.yaml'"):
        read_mapping(tmp_path / "absent.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"inputs: \xff")
    with pytest.raises(BadRequest, match="is not UTF-8"):
        read_mapping(tmp_path / "latin.yaml")


@pytest.mark.parametrize("text", ["a: &x [*x]", "inputs: !!python/none x", "a: 0x1F\n", "? [a]\n: b"])
def test_yaml_that_is_more_than_plain_values_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match=r"map\.yaml:1:\d+: "):
        parse_mapping(text, "map.yaml")
