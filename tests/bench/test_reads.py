"""The read benchmark compares equal questions about equal data, and says so when answers differ."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import documents, social
from bench.comparison import AGAIN, OURS, Section, same_answers, sections_of
from bench.made import write_lines
from bench.social_queries import CYPHER, OMNIGRAPH, PARAMETERS, SQL, Followed
from omnigraph.lang.query.compile import compile_query
from omnigraph.lang.schema import compile_schema

ROOT = Path(__file__).resolve().parents[2]
TINY = social.Size(persons=300, cities=40, follows=2_000)


def test_the_same_size_gives_the_same_network_of_that_size() -> None:
    first, second = social.generate(TINY), social.generate(TINY)
    assert all(first[name].equals(second[name]) for name in first)
    assert [len(first[name]) for name in ("Person", "City", "Follows", "LivesIn")] == [300, 40, 2_000, 300]


def test_nobody_follows_themselves_or_anybody_twice_and_few_are_followed_by_many() -> None:
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


def test_answers_may_differ_in_order_and_in_the_last_digit() -> None:
    same_answers("q", {"a": [("x", 0.1 + 0.2), ("y", 1.0)], "b": [("y", 1.0), ("x", 0.3)]})


def test_answers_with_other_values_or_other_rows_are_refused() -> None:
    for other in ([("x", 2)], [("x", 1), ("x", 1)], []):
        with pytest.raises(AssertionError, match="q: a gave"):
            same_answers("q", {"a": [("x", 1)], "b": other})


def test_of_the_first_few_only_those_that_share_the_last_place_may_differ() -> None:
    first = [("x", 9), ("y", 5), ("z", 5)]
    same_answers("q", {"a": first, "b": [("x", 9), ("y", 5), ("w", 5)]}, ranked=1)
    with pytest.raises(AssertionError):
        same_answers("q", {"a": first, "b": [("v", 9), ("y", 5), ("z", 5)]}, ranked=1)
    with pytest.raises(AssertionError):
        same_answers("q", {"a": first, "b": [("x", 9), ("y", 5), ("z", 4)]}, ranked=1)


def test_ratios_are_of_medians_and_their_mean_is_geometric() -> None:
    section = Section(
        "s", {"t": {OURS: [1.0, 9.0, 2.0], "peer": [4.0, 1.0, 8.0]}, "u": {OURS: [8.0], "peer": [1.0]}}
    )
    assert section.ratios("peer") == {"t": 0.5, "u": 8.0}
    assert section.text().splitlines()[-1].split() == ["geometric", "mean", "2.00"]
    (again,) = sections_of(section.timings())
    assert again.text() == section.text()


@pytest.mark.bench
def test_reads_are_measured_beside_ourselves_at_least(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--short", "--results", str(tmp_path), "reads"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.iterdir()
    kept = json.loads(path.read_text(encoding="utf-8"))
    warm = kept["facts"]["ratios"]["nine questions, warm"][AGAIN]
    assert len(warm) == len(PARAMETERS)
    assert kept["facts"]["recall of vectors"][OURS] >= 0.98
    assert kept["facts"]["recall of texts"][OURS] >= 0.98
    assert "memory of a result" in done.stdout
