"""What a load skips: counted, the first of it reported, and all of it written to a file on request."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph import errors, failpoints

SCHEMA = """
node Person { handle: String @key  age: I32?  badge: I64? @unique }
edge Mentors: Person -> Person @card(0..1)
"""


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as made:
        yield made


def person(handle: str, **more: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"handle": handle, **more}}


def write_records(path: Path, *records: dict[str, Any] | str) -> Path:
    texts = (record if isinstance(record, str) else json.dumps(record) for record in records)
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def handles(graph: og.Graph) -> list[str]:
    return sorted(graph.snapshot().rows("Person").column("handle").to_pylist())


def residue(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_all_that_is_left_out_is_in_the_file_with_its_record(graph: og.Graph, tmp_path: Path) -> None:
    graph.load(write_records(tmp_path / "0.jsonl", person("old", badge=1)), mode="append")
    mentors = {"edge": "Mentors", "from": "ada", "to": "missing"}
    first = write_records(tmp_path / "1.jsonl", "{not json", person("ada"), person("bo", age="x"), "[1]")
    second = write_records(
        tmp_path / "2.jsonl", person("ada", age=7), person("cy", badge=1), mentors, person("di")
    )
    rejects = tmp_path / "left.ndjson"
    done = graph.load([first, second], mode="append", skip_bad=True, rejects=rejects)
    found = [(row["file"], row["line"], row["entity"], row["record"]) for row in read(rejects)]
    edge = found.pop()
    assert found == [
        (str(first), 1, None, "{not json"),
        (str(first), 3, "node:Person 'bo'", person("bo", age="x")),
        (str(first), 4, None, [1]),
        (str(second), 1, "node:Person 'ada'", person("ada", age=7)),
        (str(second), 2, "node:Person 'cy'", person("cy", badge=1)),
    ]
    assert (*edge[:2], edge[3]) == (str(second), 3, mentors)
    assert [row["reason"] for row in read(rejects)] == [wrong.reason for wrong in done.skipped]
    assert done.skipped_counts == {"record": 2, "value": 1, "unique": 2, "endpoint": 1}
    assert done.skipped_total == 6
    assert handles(graph) == ["ada", "di", "old"]
    assert residue(tmp_path) == []


def test_only_the_first_hundred_are_kept_in_memory_and_all_are_counted(
    graph: og.Graph, tmp_path: Path
) -> None:
    bad = (person(f"p{number}", age="x") for number in range(120))
    twice = (person("ada") for _ in range(31))
    file = write_records(tmp_path / "1.jsonl", *bad, *twice)
    done = graph.load(file, mode="append", skip_bad=True, rejects=tmp_path / "left")
    assert [wrong.line for wrong in done.skipped] == list(range(1, 101))
    assert done.skipped_counts == {"value": 120, "unique": 30}
    assert [row["line"] for row in read(tmp_path / "left")] == [*range(1, 121), *range(122, 152)]


def test_a_load_without_a_flaw_leaves_an_empty_file(graph: og.Graph, tmp_path: Path) -> None:
    rejects = write_records(tmp_path / "left", "of another load")
    done = graph.load(
        write_records(tmp_path / "1.jsonl", person("ada")), mode="append", skip_bad=True, rejects=rejects
    )
    assert (done.skipped, done.skipped_total, rejects.read_bytes()) == ((), 0, b"")


@pytest.mark.parametrize(
    "name", ["nowhere/left", ".", "1.jsonl", "pipe"], ids=["no folder", "a folder", "an input", "no file"]
)
def test_nothing_is_loaded_when_the_file_cannot_be_written(
    graph: og.Graph, tmp_path: Path, name: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    file = write_records(tmp_path / "1.jsonl", person("ada"))
    head = graph.snapshot().id
    with pytest.raises(errors.BadRequest, match="cannot write"):
        graph.load(file, mode="append", skip_bad=True, rejects=tmp_path / name)
    assert graph.snapshot().id == head
    assert read(file) == [person("ada")]


def test_a_load_that_fails_leaves_the_file_as_it_was(graph: og.Graph, tmp_path: Path) -> None:
    rejects = write_records(tmp_path / "left", "of another load")
    files = [write_records(tmp_path / "1.jsonl", person("ada", age="x")), tmp_path / "missing.jsonl"]
    with pytest.raises(errors.BadRequest, match=r"cannot read .*missing\.jsonl"):
        graph.load(files, mode="append", skip_bad=True, rejects=rejects)
    assert rejects.read_text() == "of another load\n"
    assert residue(tmp_path) == []


def test_the_file_tells_what_the_load_left_out_when_it_took_effect(graph: og.Graph, tmp_path: Path) -> None:
    file = write_records(tmp_path / "1.jsonl", person("ada", age="x"), person("bo"), person("cy"))

    def overtake() -> None:
        with og.open(graph.uri) as other, other.write() as tx:
            tx.insert("Person", handle="bo")

    name = failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE
    with failpoints.arm(name, failpoints.once(overtake)):
        done = graph.load(file, mode="append", skip_bad=True, rejects=tmp_path / "left")
    assert [row["line"] for row in read(tmp_path / "left")] == [1, 2]
    assert done.skipped_counts == {"value": 1, "key_conflict": 1}
    assert handles(graph) == ["bo", "cy"]


def test_a_file_that_cannot_get_its_name_any_more_is_reported_and_kept(
    graph: og.Graph, tmp_path: Path
) -> None:
    file = write_records(tmp_path / "1.jsonl", person("ada"), person("bo", age="x"))
    rejects = tmp_path / "left"

    def in_the_way(now: og.Progress) -> None:
        rejects.mkdir(exist_ok=True)

    with pytest.raises(errors.BadRequest, match=r"the load is done, but .*left' cannot be written") as caught:
        graph.load(file, mode="append", skip_bad=True, rejects=rejects, progress=in_the_way)
    (name,) = residue(tmp_path)
    assert name in (caught.value.remedy or "")
    assert [row["line"] for row in read(tmp_path / name)] == [2]
    assert handles(graph) == ["ada"]


def test_a_load_that_is_refused_leaves_all_that_is_wrong_in_the_file(graph: og.Graph, tmp_path: Path) -> None:
    rejects, head = tmp_path / "left", graph.snapshot().id
    file = write_records(tmp_path / "1.jsonl", *(person(f"p{at}", age="x") for at in range(120)), "[1]")
    with pytest.raises(errors.LoadRejected) as refused:
        graph.load(file, mode="append", rejects=rejects)
    assert (len(refused.value.violations), refused.value.total) == (100, 121)
    assert refused.value.counts == {"value": 120, "record": 1}
    assert [row["record"] for row in read(rejects)[-2:]] == [person("p119", age="x"), [1]]
    assert len(read(rejects)) == 121
    twice = write_records(
        tmp_path / "2.jsonl", person("ada"), person("bo"), *(person("ada") for _ in range(130))
    )
    with pytest.raises(errors.LoadRejected, match="ada"):
        graph.load(twice, mode="append", rejects=rejects)
    assert [row["line"] for row in read(rejects)] == list(range(3, 133))
    assert (graph.snapshot().id, residue(tmp_path)) == (head, [])


def test_problems_that_skipping_does_not_fix_are_in_the_file_after_skipped_rows(
    graph: og.Graph, tmp_path: Path
) -> None:
    knows = {"edge": "Mentors", "from": "ada", "to": "bo"}
    graph.load(write_records(tmp_path / "0.jsonl", person("ada"), person("bo"), knows), mode="append")
    file, rejects = write_records(tmp_path / "1.jsonl", "{", person("ada")), tmp_path / "left"
    with pytest.raises(errors.LoadRejected, match="'bo' not found"):
        graph.load(file, mode="overwrite", skip_bad=True, rejects=rejects)
    assert [(row["line"], row["record"]) for row in read(rejects)] == [(1, "{"), (None, None)]


def test_a_file_that_does_not_fit_as_a_whole_is_in_the_file(graph: og.Graph, tmp_path: Path) -> None:
    pq.write_table(pa.table({"handle": ["ada"], "agee": [1]}), tmp_path / "Person.parquet")
    with pytest.raises(errors.LoadRejected):
        graph.load(tmp_path / "Person.parquet", mode="append", rejects=tmp_path / "left")
    (row,) = read(tmp_path / "left")
    assert (row["line"], row["record"]) == (None, None)
    assert row["reason"] == "unknown input field 'agee' for 'node:Person'"


def test_a_record_with_line_ends_between_quotes_is_reported_with_all_its_lines(
    graph: og.Graph, tmp_path: Path
) -> None:
    file, rejects = tmp_path / "Person.csv", tmp_path / "left"
    file.write_text('handle,age\n"a\nd\na",x\nbo,x\n"c\ny",x\n')
    graph.load(file, mode="append", skip_bad=True, rejects=rejects)
    records = [(2, '"a\nd\na",x'), (5, "bo,x"), (6, '"c\ny",x')]
    assert [(row["line"], row["record"]) for row in read(rejects)] == records


@pytest.mark.parametrize("ending", ["parquet", "arrow", "lance"])
def test_rows_of_columns_are_reported_as_objects(graph: og.Graph, tmp_path: Path, ending: str) -> None:
    handles = [b"a0", b"a1", b"a2", b"\xff", b"a4", b"a4"]
    rows = pa.table(
        {
            "handle": pa.array(handles, pa.binary()).cast(pa.string(), safe=False)
            if ending != "lance"
            else pa.array(["a0", "a1", "a2", None, "a4", "a4"]),
            "age": pa.array([1, 2, 2**40, 4, 5, 6], pa.int64()),
        }
    )
    file = tmp_path / f"Person.{ending}"
    if ending == "parquet":
        pq.write_table(rows, file, row_group_size=2)
    elif ending == "arrow":
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=2)
    else:
        lance.write_dataset(rows, str(file))
    rejects = tmp_path / "left"
    done = graph.load(file, mode="append", skip_bad=True, rejects=rejects)
    found = read(rejects)
    assert [row["record"] for row in found] == [
        {"handle": "a2", "age": 2**40},
        {"handle": None if ending == "lance" else "\ufffd", "age": 4},
        {"handle": "a4", "age": 6},
    ]
    places = [(row.get("row_group"), row.get("row", row.get("line"))) for row in found]
    assert places == ([(2, 1), (2, 2), (3, 2)] if ending == "parquet" else [(None, 3), (None, 4), (None, 6)])
    assert done.nodes == {"Person": 3}
