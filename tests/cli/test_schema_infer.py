"""`omnigraph schema infer`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.cli.main import main

PEOPLE = 'handle,zip,age,joined,tags\nada,01234,36,2019-05-01,"[""a""]"\nbo,90210,,2020-01-31,\n'


def test_files_become_a_schema_that_a_graph_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "people.csv").write_text(PEOPLE, encoding="utf-8")
    pq.write_table(pa.table({"from": ["ada"], "to": ["bo"]}), tmp_path / "knows.parquet")
    schema = tmp_path / "team.pg"
    files = [str(tmp_path / "people.csv"), str(tmp_path / "knows.parquet")]
    assert main(["schema", "infer", *files, "--key", "Person.handle"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[3:] == [
        "// people.csv, 2 rows",
        "node Person {",
        "  handle: String @key",
        "  zip: String?",
        "  age: I64?",
        "  joined: Date?",
        "  tags: [String]?",
        "}",
        "",
        "// knows.parquet, 1 row",
        "edge Knows: Person -> Person",
    ]
    assert main(["schema", "infer", *files, "--key", "Person.handle", "--output", str(schema)]) == 0
    assert schema.read_text(encoding="utf-8") == text
    assert main(["init", str(tmp_path / "g"), "--schema", str(schema)]) == 0


def test_an_existing_file_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "people.csv").write_text(PEOPLE, encoding="utf-8")
    assert main(["schema", "infer", str(tmp_path / "people.csv"), "-o", str(tmp_path / "people.csv")]) == 1
    assert "help: name a file that does not exist yet" in capsys.readouterr().err
    assert (tmp_path / "people.csv").read_text(encoding="utf-8") == PEOPLE


def test_every_format_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table({"k": ["a", "b"], "n": [1, 2]})
    pa.feather.write_feather(rows, tmp_path / "boxes.arrow")
    (tmp_path / "cities.csv.gz").write_bytes(gzip.compress(b"k;n\na;1\nb;2\n"))
    (tmp_path / "dogs.jsonl").write_text('{"k": "a", "n": 1}\n{"k": "b"}\n', encoding="utf-8")
    with og.init(tmp_path / "g", schema="node Egg { k: String @key  n: I64? }  edge On: Egg -> Egg") as graph:
        graph.load({"Egg": rows}, mode="append")
        graph.load([{"from": "a", "to": "b"}], type="On", mode="append")
        graph.export(tmp_path / "out.jsonl")
        graph.export(tmp_path / "lance", format="lance")
    egg = next((tmp_path / "lance").rglob("Egg.lance"))
    names = ["boxes.arrow", "cities.csv.gz", "dogs.jsonl", "out.jsonl"]
    files = [*(str(tmp_path / name) for name in names), f"Nest={egg}"]
    assert main(["schema", "infer", *files, "--json"]) == 0
    text = json.loads(capsys.readouterr().out)["schema_source"]
    for name in ("Box", "City", "Dog", "Egg"):
        assert f"node {name} {{\n  k: String @key" in text
    assert text.count("  n: I64?\n") == 5
    assert "edge On: Box -> Box" in text  # the first type that has such ids
    assert "node Nest {" in text


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--key", "Person"], "'Person' is not TYPE.PROPERTY."),
        (["--key", "Person.a", "--key", "Person.b"], "'Person' has two keys"),
        (["--key", "Staff.a"], "there is no node type 'Staff' for the key 'Staff.a'"),
    ],
)
def test_wrong_keys_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], extra: list[str], message: str
) -> None:
    (tmp_path / "people.csv").write_text(PEOPLE, encoding="utf-8")
    assert main(["schema", "infer", str(tmp_path / "people.csv"), *extra]) != 0
    assert message in capsys.readouterr().err


def test_a_line_without_an_object_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n[2]\n', encoding="utf-8")
    assert main(["schema", "infer", str(tmp_path / "x.jsonl")]) == 1
    assert "'x.jsonl' has no JSON object on line 2" in capsys.readouterr().err
