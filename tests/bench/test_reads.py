"""Reads are measured on data of a known shape, with equal questions in every language."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from bench import documents, social
from bench.made import write_lines
from bench.social_queries import CYPHER, OMNIGRAPH, PARAMETERS, SQL, Followed
from omnigraph.lang.query.compile import compile_query
from omnigraph.lang.schema import compile_schema

TINY = social.Size(persons=300, cities=40, follows=2_000)


def test_the_same_size_gives_the_same_network_of_that_size() -> None:
    first, second = social.generate(TINY), social.generate(TINY)
    assert all(first[name].equals(second[name]) for name in first)
    assert [len(first[name]) for name in ("Person", "City", "Follows", "LivesIn")] == [300, 40, 2_000, 300]


def test_no_person_follows_themselves_or_another_twice_and_few_are_followed_by_many() -> None:
    follows = social.generate(TINY)["Follows"]
    source, target = follows["src"].to_numpy(), follows["dst"].to_numpy()
    assert not (source == target).any()
    assert len(np.unique(source * TINY.persons + target)) == TINY.follows
    followers = np.sort(np.bincount(target, minlength=TINY.persons))
    assert followers[-3:].sum() > 10 * followers[:3].sum()


def test_edges_end_at_nodes_that_are_there() -> None:
    tables = social.generate(TINY)
    for name, ends in social.EDGES.items():
        for column, type_ in zip(("src", "dst"), ends, strict=True):
            assert set(tables[name][column].to_pylist()) <= set(tables[type_]["number"].to_pylist())


def test_records_are_written_as_json_that_says_what_the_tables_say(tmp_path: Path) -> None:
    social.write(TINY, tmp_path / "data")
    lines = (tmp_path / "data" / "records.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    tables = social.generate(TINY)
    persons = [record["data"] for record in records if record.get("type") == "Person"]
    shown = [{**row, "birthday": str(row["birthday"])} for row in tables["Person"].to_pylist()]
    assert persons == shown
    follows = [record for record in records if record.get("edge") == "Follows"]
    assert [int(record["to"]) for record in follows] == tables["Follows"]["dst"].to_pylist()


def test_lines_are_added_to_those_that_are_there(tmp_path: Path) -> None:
    import pyarrow as pa

    for values in ([1, 2], [3]):
        write_lines(tmp_path / "lines", ["<", pa.array(values), ">"])
    assert (tmp_path / "lines").read_text() == "<1>\n<2>\n<3>\n"


def test_every_question_is_asked_in_every_language_and_compiles_in_ours() -> None:
    assert PARAMETERS.keys() <= OMNIGRAPH.keys() & SQL.keys()
    assert CYPHER.keys() == OMNIGRAPH.keys()
    catalog = compile_schema(social.SCHEMA)
    for text in OMNIGRAPH.values():
        for part in (text.first, text.second) if isinstance(text, Followed) else (text,):
            compile_query(part, catalog)


def test_the_right_answers_of_searches_are_those_of_a_look_at_every_document(tmp_path: Path) -> None:
    size = documents.Size(documents=50, authors=5, words=40, clusters=4)
    documents.write(size, tmp_path / "data")
    table = documents.generate(size)["Document"].to_pylist()
    exact = documents.Exact(tmp_path / "data")
    (question,) = documents.questions(documents.Size(50, 5, 400, 4), 1)
    by_distance = sorted(table, key=lambda row: math.dist(row["embedding"], question.vector))
    assert exact.nearest(question.vector) == {row["number"] for row in by_distance[: documents.BEST]}
    words = set(question.text.split())
    having = [bool(words & set(row["body"].split())) for row in table]
    assert (exact.relevance(question) > 0).tolist() == having
    assert any(having)
