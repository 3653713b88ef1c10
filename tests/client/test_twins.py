"""The same calls on a graph in a folder and on one behind a server, with the same results and errors."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph import errors
from tests.client.conftest import AnyGraph
from tests.server.running import PHOTO, SCHEMA

PEOPLE = "query people() { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"
ADD = "query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }"
SET = "query set($name: String, $age: I32?) { update Person set { age: $age } where name = $name }"
ALL = """query all() {
    match { $p: Person }
    return { $p.name, $p.age, $p.born, $p.score, $p.seen, $p.tags }
    order { $p.name }
}"""


def names(graph: AnyGraph, branch: str) -> list[object]:
    return [row["p.name"] for row in graph.query(PEOPLE, branch=branch)]


def test_a_query_returns_rows_types_and_the_commit(graph: AnyGraph) -> None:
    found = graph.query(ALL)
    assert found.rows()[0] == {
        "p.name": "Ada",
        "p.age": 36,
        "p.born": "1815-12-10",
        "p.score": 1.5,
        "p.seen": None,
        "p.tags": ["x", "y"],
    }
    assert [str(one) for one in found.types] == ["String", "I32?", "Date?", "F64?", "DateTime?", "[String]?"]
    assert found.table.column("p.born")[0].as_py() == date(1815, 12, 10)
    assert (found.query_name, found.branch, found.snapshot) == ("all", "main", None)
    assert found.graph_commit_id == graph.commits.list()[0].id
    assert len(found.to_pandas()) == 4


def test_a_result_is_streamed_in_batches(graph: AnyGraph) -> None:
    with graph.stream(PEOPLE) as batches:
        rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["p.name"] for row in rows[:2]] == ["Ada", "Bob"]


def test_parameters_may_be_python_values(graph: AnyGraph) -> None:
    query = "query born($day: Date) { match { $p: Person  $p.born = $day } return { $p.name } }"
    assert graph.query(query, {"day": date(1815, 12, 10)}).scalar() == "Ada"


def test_a_query_in_a_file_is_named_in_its_error(graph: AnyGraph, tmp_path: Path) -> None:
    (tmp_path / "wrong.gq").write_text("query q() {\n  match { $p: Missing }\n  return { $p.name }\n}\n")
    with pytest.raises(errors.TypeCheckError) as caught:
        graph.query(tmp_path / "wrong.gq")
    (found,) = caught.value.diagnostics
    assert (found.line, found.source_name) == (2, str(tmp_path / "wrong.gq"))
    assert "Missing" in str(caught.value)
    assert caught.value.render().count("^") >= len("Missing")


def test_limits_and_kinds_of_queries_fail_alike(graph: AnyGraph) -> None:
    with pytest.raises(errors.ResourceLimitExceeded) as limited:
        graph.query(PEOPLE, max_rows=1)
    assert limited.value.limit == 1
    with pytest.raises(errors.WrongQueryKind) as kind:
        graph.query(ADD, {"name": "x"})
    assert kind.value.query == "add"
    nullable = "query q($n: F64?) { match { $p: Person  $p.score = $n } return { $p.name } }"
    with pytest.raises(errors.ParameterError, match="'n'"):
        graph.query(nullable, {"n": float("nan")})
    with pytest.raises(errors.ParameterError) as wrong:
        graph.query("query q($n: I32) { match { $p: Person  $p.age = $n } return { $p.name } }", {"n": "x"})
    assert wrong.value.name == "n"
    with pytest.raises(errors.BranchNotFound) as missing:
        graph.query(PEOPLE, branch="nowhere")
    assert (missing.value.branch, missing.value.retryable) == ("nowhere", False)
    assert missing.value.remedy is not None


def test_explain_returns_the_steps(graph: AnyGraph) -> None:
    found = graph.explain(PEOPLE)
    assert found.query_name == "people"
    assert next(step.name for step in found.steps) == "Scan"
    assert found.rows == len(graph.query(PEOPLE))


def test_branches_are_created_listed_and_deleted(graph: AnyGraph) -> None:
    assert graph.branches.create("team/one") == "team/one"
    assert "team/one" in graph.branches
    assert graph.branches.list()[0] == "main"
    with pytest.raises(errors.BranchExists):
        graph.branches.create("team/one")
    graph.branches.delete("team/one")
    with pytest.raises(errors.BranchNotFound):
        graph.branches.delete("team/one")
    with pytest.raises(errors.InvalidName):
        graph.branches.create("a b")


def test_a_mutation_reports_what_it_did(graph: AnyGraph) -> None:
    graph.branches.create("mutated")
    before = graph.commits.list("mutated")[0]
    done = graph.mutate(ADD, {"name": "Eve", "age": 7}, branch="mutated", if_commit=before.id)
    assert (done.affected_nodes, done.affected_edges, done.query) == (1, 0, "add")
    assert done.tables == {"node:Person": og.WriteCounts(inserted=1)}
    assert done.commit == graph.commits.list("mutated")[0]
    assert done.commit is not None
    assert done.commit.parent == before.id
    with pytest.raises(errors.PreconditionFailed) as lost:
        graph.mutate(SET, {"name": "Eve", "age": 8}, branch="mutated", if_commit=before.id)
    assert (lost.value.expected, lost.value.actual) == (before.id, done.commit.id)
    nothing = graph.mutate(SET, {"name": "Missing", "age": 8}, branch="mutated")
    assert nothing.commit is None


def test_a_write_block_is_one_commit(graph: AnyGraph) -> None:
    graph.branches.create("written")
    before = graph.commits.list("written")[0]
    with graph.write("written", if_commit=before.id, retry=2, message="Add Ned") as tx:
        ned = tx.insert("Person", name="Ned", age=3, born=date(2020, 1, 31), photo=PHOTO, tags=("x",))
        seen = datetime(2030, 1, 31, 12, tzinfo=UTC)
        assert tx.insert("Person", {"name": "Oli", "score": 0.1, "seen": seen}) == "Oli"
        edge = tx.insert_edge("Knows", ned, "Ada", since=1999)
        tx.update("Person", ("name", "in", ["Ned", "Bob"]), age=4)
        assert len(tx) == 4
        with pytest.raises(errors.BadRequest, match="no result yet"):
            tx.result  # noqa: B018
    done = tx.result
    assert repr(tx) == "<Write to 'written' with 4 statements>"
    assert (done.affected_nodes, done.affected_edges, done.query) == (4, 1, "")
    assert done.tables == {
        "edge:Knows": og.WriteCounts(inserted=1),
        "node:Person": og.WriteCounts(inserted=2, updated=1),
    }
    assert done.commit == graph.commits.list("written")[0]
    assert done.commit is not None
    assert (done.commit.parent, done.commit.message) == (before.id, "Add Ned")
    pinned = graph.snapshot("written")
    rows = {row["name"]: row for row in pinned.rows("Person").to_pylist()}
    assert (rows["Ned"]["age"], rows["Ned"]["born"], rows["Ned"]["tags"]) == (4, date(2020, 1, 31), ["x"])
    assert (rows["Oli"]["score"], rows["Oli"]["seen"]) == (0.1, seen)
    assert pinned.blob("Person", "Ned", "photo").read() == PHOTO
    assert edge in pinned.rows("Knows").column("id").to_pylist()
    with pytest.raises(errors.PreconditionFailed) as lost, graph.write("written", if_commit=before.id) as tx:
        tx.insert("Person", name="Pat")
    assert (lost.value.expected, lost.value.actual) == (before.id, done.commit.id)


def test_a_write_block_deletes_and_may_change_nothing(graph: AnyGraph) -> None:
    graph.branches.create("deleted")
    with graph.write("deleted") as tx:
        tx.delete("Knows", ("from", "=", "Ada"))
        tx.delete("Person", ("age", ">=", 36))
        tx.delete("Person", ("age", "is null"))
    assert (tx.result.affected_nodes, tx.result.affected_edges) == (2, 1)
    assert names(graph, "deleted") == ["Bob", "Cy"]
    head = graph.commits.list("deleted")[0]
    with graph.write("deleted") as tx:
        tx.delete("Person", ("name", "=", "Missing"))
    assert tx.result.commit is None
    with graph.write("deleted") as tx:
        pass
    assert tx.result.commit is None
    assert graph.commits.list("deleted")[0] == head


def write_all(graph: AnyGraph, *calls: Callable[[Any], object]) -> Any:
    with graph.write() as tx:
        for call in calls:
            call(tx)
    return tx


def test_a_write_block_creates_what_is_new(graph: AnyGraph) -> None:
    graph.branches.create("created")
    with graph.write("created") as tx:
        assert tx.create("Person", name="Pia", age=1) == "Pia"
        tx.upsert("Person", {"name": "Pia", "age": 2})
    assert tx.result.tables == {"node:Person": og.WriteCounts(inserted=1)}
    with pytest.raises(errors.KeyConflict) as conflict, graph.write("created") as tx:
        tx.create("Person", {"name": "Pia"}, age=3)
    assert (conflict.value.type_name, conflict.value.entity_id) == ("Person", "Pia")
    assert conflict.value.remedy is not None


def test_a_write_block_updates_edges(graph: AnyGraph) -> None:
    graph.branches.create("linked")
    since = 'query q() { match { $p: Person { name: "Nia" }  $p $e:knows $q } return { $e.since as s } }'
    with graph.write("linked") as tx:
        tx.insert("Person", name="Nia")
        tx.insert_edge("Knows", "Nia", "Ada", since=1)
    assert graph.query(since, branch="linked").to_arrow().to_pylist() == [{"s": 1}]
    with graph.write("linked") as tx:
        tx.update("Knows", ("from", "=", "Nia"), since=2)
    assert tx.result.tables == {"edge:Knows": og.WriteCounts(updated=1)}
    assert (tx.result.affected_nodes, tx.result.affected_edges) == (0, 1)
    assert graph.query(since, branch="linked").to_arrow().to_pylist() == [{"s": 2}]


def add_one(tx: Any) -> None:
    tx.insert("Person", name="never")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda tx: tx.insert("Persn", name="x"), "unknown node type `Persn`"),
        (lambda tx: tx.insert("Person", age=1), "must provide non-nullable property `name`"),
        (lambda tx: tx.insert("Person", name="x", age="1"), "property 'age': cannot convert"),
        (lambda tx: tx.insert("Person", name="x", score=float("nan")), "must be finite"),
        (lambda tx: tx.insert_edge("Person", "a", "b"), "unknown edge type `Person`"),
        (lambda tx: tx.update("Person", ("age", "~", 1), age=2), "is not a test of rows"),
        (lambda tx: tx.update("Person", ("age", "=", 1), name="y"), "cannot update @key property"),
        (lambda tx: tx.delete("Person", ("photo", "=", "x")), "blob property"),
        (lambda tx: tx.delete("Person", ("name", "=", "never")), "mixes inserts/updates and deletes"),
        (lambda tx: tx.insert(7), "`type_name` must be a text"),
        (lambda tx: {tx: 1}["key"], "key"),
    ],
)
def test_an_error_in_a_write_block_is_raised_and_nothing_is_written(
    graph: AnyGraph, call: Callable[[Any], object], message: str
) -> None:
    head = graph.commits.list()[0]
    with pytest.raises((errors.BadRequest, KeyError), match=message):
        write_all(graph, add_one, call)
    assert graph.commits.list()[0] == head


def test_a_write_block_is_used_once_and_collects_only_inside(graph: AnyGraph) -> None:
    tx = write_all(graph)
    with pytest.raises(errors.BadRequest, match="only inside its `with` block"):
        add_one(tx)
    with pytest.raises(errors.BadRequest, match="can be used once"), tx:
        pass


def test_a_write_block_that_the_graph_refuses_writes_nothing(graph: AnyGraph) -> None:
    head = graph.commits.list()[0]
    with pytest.raises(errors.ConstraintViolation), graph.write() as tx:
        tx.insert_edge("Knows", "Ada", "Missing")
    with pytest.raises(errors.BranchNotFound), graph.write("nowhere") as tx:
        tx.insert("Person", name="never")
    with pytest.raises(errors.BadRequest, match="`retry` is a number of attempts"):
        graph.write(retry=-1)
    with pytest.raises(errors.InvalidName):
        graph.write("a b")
    assert graph.commits.list()[0] == head


def test_rows_of_a_type_are_loaded(graph: AnyGraph) -> None:
    rows = [{"name": "Flo", "age": 4}, {"name": "Gus", "age": None}]
    done = graph.load(rows, type="Person", mode="append", branch="loaded", from_="main")
    assert (done.nodes, done.edges, done.total, done.branch_created) == ({"Person": 2}, {}, 2, True)
    assert done.commit == graph.commits.list("loaded")[0]
    table = pa.table({"name": ["Flo"], "age": pa.array([5], pa.int32())})
    assert graph.load(table, type="Person", mode="merge", branch="loaded").total == 1
    with pytest.raises(errors.KeyConflict) as conflict:
        graph.load(rows, type="Person", mode="append", branch="loaded")
    assert (conflict.value.type_name, conflict.value.entity_id) == ("Person", "Flo")
    assert names(graph, "loaded")[4:] == ["Flo", "Gus"]


def test_a_patch_changes_what_rows_give(graph: AnyGraph, tmp_path: Path) -> None:
    rows = [{"name": "Flo", "age": 4, "tags": ["a"]}, {"name": "Gus", "age": 5, "tags": ["b"]}]
    graph.load(rows, type="Person", mode="append", branch="patched", from_="main")
    given = [{"name": "Flo", "age": 9}, {"name": "Gus", "age": None}]
    graph.load(given, type="Person", mode="patch", branch="patched", retry=1)
    (tmp_path / "more.jsonl").write_text('{"type": "Person", "data": {"name": "Gus", "tags": null}}\n')
    graph.load(tmp_path / "more.jsonl", mode="patch", branch="patched")
    found = {row["name"]: row for row in graph.snapshot("patched").rows("Person").to_pylist()}
    assert [(found[name]["age"], found[name]["tags"]) for name in ("Flo", "Gus")] == [
        (9, ["a"]),
        (None, None),
    ]
    with pytest.raises(errors.LoadRejected, match="does not exist, and a patch adds no rows"):
        graph.load([{"name": "Nemo", "age": 9}], type="Person", mode="patch", branch="patched")
    with pytest.raises(errors.BadRequest, match="mode 'patch'"):
        graph.load(given, type="Person", mode="merge", branch="patched", retry=1)


def test_files_are_loaded_and_their_lines_reported(graph: AnyGraph, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.ndjson", tmp_path / "bad.ndjson"
    good.write_text('{"type": "Person", "data": {"name": "Hal"}}')
    bad.write_text('\n{"type": "Person", "data": {"name": "Ida", "age": "x"}}\n')
    with pytest.raises(errors.LoadRejected) as refused:
        graph.load([good, bad], mode="append", branch="files", from_="main")
    (violation,) = refused.value.violations
    assert (violation.file, violation.line) == (str(bad), 2)
    assert "files" not in graph.branches
    done = graph.load(good, mode="append", branch="files", from_="main")
    assert done.nodes == {"Person": 1}


def test_files_of_columns_are_loaded_by_their_names(graph: AnyGraph, tmp_path: Path) -> None:
    (tmp_path / "Person.csv").write_text("name,age,tags\nNed,7,\nOlga,,\n")
    (tmp_path / "knows").mkdir()
    pq.write_table(pa.table({"from": ["Ned"], "to": ["Olga"]}), tmp_path / "knows" / "part-0.parquet")
    lines = gzip.compress(b'{"type": "Person", "data": {"name": "Pia"}}\n')
    (tmp_path / "more.ndjson.gz").write_bytes(lines)
    done = graph.load(tmp_path, mode="append", branch="columns", from_="main")
    assert (done.nodes, done.edges) == ({"Person": 3}, {"Knows": 1})
    assert names(graph, "columns")[4:] == ["Ned", "Olga", "Pia"]
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "Person.csv").write_text("name,age\nQuy,1\nRa,x\n")
    with pytest.raises(errors.LoadRejected) as refused:
        graph.load(bad / "Person.csv", mode="append", branch="columns")
    (violation,) = refused.value.violations
    assert (violation.file, violation.line) == (str(bad / "Person.csv"), 3)
    (tmp_path / "other.csv").write_text("name\nx\n")
    with pytest.raises(errors.BadRequest, match="other"):
        graph.load(tmp_path / "other.csv", mode="append", branch="columns")


def test_a_mapping_says_how_columns_become_properties(graph: AnyGraph, tmp_path: Path) -> None:
    (tmp_path / "people.txt").write_text("full name;years\nPia;7\nQuin;\n")
    entry = {
        "files": ["people.txt"],
        "type": "Person",
        "format": "csv",
        "delimiter": ";",
        "columns": {"full name": "name", "years": "age"},
    }
    mapping: dict[str, Any] = {"inputs": [entry]}
    at: dict[str, Any] = {"mode": "merge", "branch": "mapped", "from_": "main"}
    assert graph.load(tmp_path / "people.txt", mapping=mapping, **at).nodes == {"Person": 2}
    named = tmp_path / "mapping.yaml"
    named.write_text(json.dumps(mapping, indent=1))
    assert graph.load(tmp_path / "people.txt", mapping=named, **at).nodes == {"Person": 2}
    assert names(graph, "mapped")[4:] == ["Pia", "Quin"]
    rows = {"inputs": [{"files": ["Person.arrow"], "columns": {"full name": "name"}, "drop": ["years"]}]}
    done = graph.load([{"full name": "Rex", "years": 1}], type="Person", mapping=rows, **at)
    assert done.nodes == {"Person": 1}
    with pytest.raises(errors.BadRequest, match="cannot read mapping"):
        graph.load(tmp_path / "people.txt", mapping=tmp_path / "missing.yaml", **at)
    for wrong in ("inputs:\n- files: [people.txt]\n  type: Persn\n", "inputs: [\n"):
        named.write_text(wrong)
        with pytest.raises(errors.OmnigraphError, match=str(named)):
            graph.load(tmp_path / "people.txt", mapping=named, **at)


def test_wrong_records_are_left_out_and_written_to_a_file(graph: AnyGraph, tmp_path: Path) -> None:
    rejects = tmp_path / "rejects.ndjson"
    bad = tmp_path / "bad.ndjson"
    lines = [
        {"type": "Person", "data": {"name": "Sol", "age": 1}},
        {"type": "Person", "data": {"name": "Tam", "age": "x"}},
        {"edge": "Knows", "from": "Sol", "to": "Missing"},
    ]
    bad.write_text("".join(json.dumps(line) + "\n" for line in lines))
    at: dict[str, Any] = {"mode": "append", "branch": "skipped", "from_": "main"}
    with pytest.raises(errors.LoadRejected) as refused:
        graph.load(bad, rejects=rejects, **at)
    assert [(one.file, one.line) for one in refused.value.violations] == [(str(bad), 2)]
    (entry,) = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert (entry["file"], entry["line"], entry["record"]) == (str(bad), 2, lines[1])
    done = graph.load(bad, skip_bad=True, rejects=rejects, **at)
    assert (done.nodes, done.skipped_counts) == ({"Person": 1}, {"value": 1, "endpoint": 1})
    assert [(one.file, one.line) for one in done.skipped] == [(str(bad), 2), (str(bad), 3)]
    written = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert [one["record"] for one in written] == lines[1:]
    rows = [{"name": "Uma", "age": 2**40}, {"name": "Vic"}]
    done = graph.load(rows, type="Person", skip_bad=True, rejects=rejects, **at)
    assert (done.nodes, done.skipped_total) == ({"Person": 1}, 1)
    (entry,) = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert (entry["file"], entry["row"], entry["record"]["name"]) == ("<rows of Person>", 1, "Uma")
    with pytest.raises(errors.BranchNotFound):
        graph.load(bad, mode="append", branch="nowhere", rejects=rejects)
    assert rejects.read_text().count("\n") == 1
    with pytest.raises(errors.BadRequest, match="cannot write rejects"):
        graph.load(bad, rejects=bad, **at)


def test_a_dry_run_checks_everything_and_commits_nothing(graph: AnyGraph, tmp_path: Path) -> None:
    lines, columns = tmp_path / "lines.ndjson", tmp_path / "Person.csv"
    lines.write_text('{"type": "Person", "data": {"name": "Zoe"}}\n')
    columns.write_text("name,age\nZed,1\n")
    before = graph.snapshot().id
    at: dict[str, Any] = {"mode": "append", "dry_run": True}
    for data in (lines, columns, [lines, columns]):
        done = graph.load(data, **at)
        assert (done.commit, done.total) == (None, 2 if isinstance(data, list) else 1)
    done = graph.load([{"name": "Zara"}], type="Person", branch="tried", from_="main", **at)
    assert (done.nodes, done.branch_created) == ({"Person": 1}, False)
    with pytest.raises(errors.KeyConflict):
        graph.load([{"name": "Ada"}], type="Person", **at)
    assert (graph.snapshot().id, "tried" in graph.branches) == (before, False)


def test_files_are_loaded_as_the_types_that_the_caller_names(graph: AnyGraph, tmp_path: Path) -> None:
    lines, columns = tmp_path / "a[1].ndjson", tmp_path / "some people.csv"
    lines.write_text('{"name": "Abe", "age": 1}\n{"name": "Bea"}\n')
    columns.write_text("name,age\nCid,3\n")
    at: dict[str, Any] = {"mode": "append", "branch": "typed", "from_": "main"}
    assert graph.load(lines, type="Person", **at).nodes == {"Person": 2}
    assert graph.load(columns, type="node:Person", **at).nodes == {"Person": 1}
    ends = tmp_path / "ends.csv"
    ends.write_text("from,to,since\nAbe,Dot,1\n")
    done = graph.load({"Person": [{"name": "Dot"}], "Knows": ends}, **at)
    assert (done.nodes, done.edges) == ({"Person": 1}, {"Knows": 1})
    assert {"Abe", "Bea", "Cid", "Dot"} <= set(names(graph, "typed"))
    columns.write_text("name,age\nEva,1\nFay,x\n")
    with pytest.raises(errors.LoadRejected) as refused:
        graph.load({"Person": [str(columns)]}, **at)
    assert [(one.file, one.line) for one in refused.value.violations] == [(str(columns), 3)]
    with pytest.raises(errors.BadRequest, match="unknown type 'Missing'"):
        graph.load(columns, type="Missing", **at)


def test_rows_of_several_types_are_one_commit(graph: AnyGraph) -> None:
    people, knows = pandas.DataFrame({"name": ["Wil", "Xia"]}), [{"from": "Wil", "to": "Xia", "since": 2}]
    data = {"Person": people, "edge:Knows": knows}
    done = graph.load(data, mode="append", branch="several", from_="main")
    assert (done.nodes, done.edges) == ({"Person": 2}, {"Knows": 1})
    wrong = [{"from": "Wil", "to": "Xia", "since": 2**40}]
    with pytest.raises(errors.LoadRejected) as refused:
        graph.load({"Person": [], "Knows": wrong}, mode="append", branch="several")
    assert [(one.file, one.line) for one in refused.value.violations] == [("<rows of Knows>", 1)]


def test_no_rows_replace_all_rows_of_a_type(graph: AnyGraph) -> None:
    graph.branches.create("emptied")
    assert graph.load([], type="Knows", mode="overwrite", branch="emptied").total == 0
    assert graph.snapshot("emptied").rows("Knows").num_rows == 0
    with pytest.raises(errors.BadRequest, match="unknown type 'Missing'"):
        graph.load([], type="Missing", mode="append", branch="emptied")


def test_what_comes_out_of_a_pipe_is_loaded(graph: AnyGraph, tmp_path: Path) -> None:
    pipe = tmp_path / "people"
    os.mkfifo(pipe)
    mapping = {"inputs": [{"files": [str(pipe)], "type": "Person", "format": "csv"}]}
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(pipe.write_text, "name,age\nYan,5\n")
        done = graph.load(pipe, mapping=mapping, mode="append", branch="piped", from_="main")
        assert written.result() > 0
    assert (done.nodes, names(graph, "piped")[4:]) == ({"Person": 1}, ["Yan"])


def test_frames_are_loaded(graph: AnyGraph) -> None:
    graph.branches.create("frames")
    frames: list[Any] = [
        pandas.DataFrame({"name": ["Sam"], "age": [3]}),
        polars.DataFrame({"name": ["Tom"], "age": [4]}),
        pa.table({"name": ["Una"]}).to_reader(),
    ]
    for frame in frames:
        assert graph.load(frame, type="Person", mode="append", branch="frames").total == 1
    assert names(graph, "frames")[4:] == ["Sam", "Tom", "Una"]


def test_rows_of_a_type_are_read_as_a_table(graph: AnyGraph) -> None:
    pinned = graph.snapshot()
    people = pinned.rows("Person", columns=["name", "age"])
    assert sorted(people.to_pylist(), key=str)[0] == {"name": "Ada", "age": 36}
    assert (people.num_rows, pinned.rows("Person", limit=2).num_rows) == (4, 2)
    (edge,) = pinned.rows("Knows").to_pylist()
    assert (edge["src"], edge["dst"], edge["since"]) == ("Ada", "Bob", 1833)
    assert "photo" not in pinned.rows("Person").column_names
    for wrong in ({"columns": ["photo"]}, {"limit": -1}):
        with pytest.raises(errors.BadRequest):
            pinned.rows("Person", **wrong)
    with pytest.raises(errors.BadRequest, match="there is no type 'Missing'"):
        pinned.rows("Missing")


def test_wrong_inputs_of_a_load_are_refused(graph: AnyGraph, tmp_path: Path) -> None:
    with pytest.raises(errors.BadRequest, match="do not tell which type"):
        graph.load([{"name": "x"}], mode="append")
    with pytest.raises(errors.BadRequest, match="cannot read"):
        graph.load(tmp_path / "nothing.ndjson", mode="append")
    with pytest.raises(errors.BadRequest, match="unknown type 'Missing'"):
        graph.load([{"name": "x"}], type="Missing", mode="append")
    with pytest.raises(errors.BadRequest, match="not a mode"):
        graph.load([{"name": "x"}], type="Person", mode="replace")  # type: ignore[arg-type]


def test_a_snapshot_stays_as_it_is(graph: AnyGraph) -> None:
    graph.branches.create("pinned")
    pinned = graph.snapshot("pinned")
    graph.mutate(ADD, {"name": "Jo"}, branch="pinned")
    assert len(pinned.query(PEOPLE)) + 1 == len(graph.query(PEOPLE, branch="pinned"))
    assert pinned.commit is not None
    assert pinned.id == pinned.commit.id
    assert pinned.tables["node:Person"].rows == len(pinned.query(PEOPLE))
    assert graph.at(commit=pinned.id).tables == pinned.tables
    assert graph.at(version=pinned.version, branch="pinned").id == pinned.id
    assert graph.at(time=datetime.now(UTC), branch="pinned").version > pinned.version
    with pytest.raises(errors.BadRequest, match="exactly one of commit, version and time"):
        graph.at()
    with pytest.raises(errors.CommitNotFound):
        graph.at(commit="01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert graph.query(PEOPLE, commit=pinned.id).snapshot == pinned.id


def test_a_blob_is_read_whole_and_in_ranges(graph: AnyGraph) -> None:
    found = graph.snapshot().blob("Person", "Ada", "photo")
    assert (found.kind, found.size, found.uri) == ("managed", len(PHOTO), None)
    assert found.etag is not None
    assert found.etag.startswith('"')
    assert (found.read(), found.read(2, 3), found.read(8, 100)) == (PHOTO, PHOTO[2:5], PHOTO[8:])
    with pytest.raises(errors.UnsatisfiableRange):
        found.read(10)
    with pytest.raises(errors.NotFound, match="it is null"):
        graph.snapshot().blob("Person", "Bob", "photo")
    with pytest.raises(errors.BadRequest, match="it is not a Blob"):
        graph.snapshot().blob("Person", "Ada", "age")


def test_a_merge_is_previewed_refused_decided_and_done(graph: AnyGraph) -> None:
    graph.branches.create("base")
    graph.branches.create("side", from_="base")
    graph.mutate(SET, {"name": "Bob", "age": 1}, branch="side")
    graph.mutate(ADD, {"name": "Kim"}, branch="side")
    graph.mutate(SET, {"name": "Bob", "age": 2}, branch="base")
    preview = graph.merge("side", "base", dry_run=True)
    assert preview.outcome is og.MergeOutcome.MERGED
    (conflict,) = preview.conflicts
    assert (conflict.kind, conflict.entity_id) == (og.ConflictKind.DIVERGENT_UPDATE, "Bob")
    assert conflict.source is not None
    assert conflict.source.properties["age"] == 1
    with pytest.raises(errors.MergeConflicts) as refused:
        graph.merge("side", "base")
    assert refused.value.conflicts == (conflict,)
    decisions = preview.resolution_file()
    decisions["conflicts"][0]["take"] = "theirs"
    done = graph.merge("side", "base", resolutions=decisions, delete_branch=True)
    assert (done.outcome, done.resolved, done.branch_deleted) == (og.MergeOutcome.MERGED, 1, True)
    assert done.changes == {"node:Person": og.ChangeCounts(inserted=1, updated=1)}
    assert done.commit == graph.commits.list("base")[0]
    assert "side" not in graph.branches
    again = graph.merge("base", "base2" if graph.branches.create("base2", from_="base") else "main")
    assert (again.outcome, again.commit) == (og.MergeOutcome.ALREADY_UP_TO_DATE, None)


def test_decisions_of_a_preview_survive(graph: AnyGraph) -> None:
    graph.branches.create("left")
    graph.branches.create("right", from_="left")
    graph.mutate(SET, {"name": "Cy", "age": 1}, branch="left")
    graph.mutate(SET, {"name": "Cy", "age": 2}, branch="right")
    decisions = graph.merge("right", "left", dry_run=True).resolution_file()
    decisions["conflicts"][0]["take"] = "ours"
    decided = graph.merge("right", "left", dry_run=True, resolutions=decisions)
    assert (decided.conflicts, len(decided.met), decided.resolved) == ((), 1, 1)
    assert decided.resolution_file() == decisions


def test_a_diff_counts_and_lists_changes(graph: AnyGraph) -> None:
    graph.branches.create("later")
    before: Any = graph.snapshot("later")
    graph.mutate(ADD, {"name": "Lea", "age": 1}, branch="later")
    graph.mutate(SET, {"name": "Di", "age": 9}, branch="later")
    found = graph.diff(before, "later")
    assert found.stat() == {"node:Person": og.ChangeCounts(inserted=1, updated=1)}
    update, insert = found
    assert (update.id, update.op, update.changed) == ("Di", og.ChangeOperation.UPDATE, ("age",))
    assert insert.before is None
    assert insert.after is not None
    assert insert.after.properties["age"] == 1
    assert [one.id for one in graph.diff(before, "later", ops="insert")] == ["Lea"]
    assert not graph.diff("later", graph.commits.list("later")[0])
    with pytest.raises(errors.BadRequest, match="there is no type 'Missing'"):
        graph.diff("main", "later", types="Missing")


def test_a_feed_goes_on_where_a_reader_stopped(graph: AnyGraph) -> None:
    graph.branches.create("fed")
    start = graph.changes("fed", since="now").cursor
    done = [graph.mutate(ADD, {"name": f"M{at}"}, branch="fed") for at in range(3)]
    feed = graph.changes("fed", since=start, limit=2)
    first, second = feed
    assert [first.commit, second.commit] == [one.commit for one in done[:2]]
    assert [one.id for one in first.changes] == ["M0"]
    assert not feed.caught_up
    rest = graph.changes("fed", since=second.cursor)
    assert [block.commit for block in rest] == [done[2].commit]
    assert rest.caught_up
    assert list(graph.changes("fed", since=rest.cursor)) == []
    with pytest.raises(errors.ChangeCursorRejected):
        graph.changes("fed", since="c1.broken")


def test_pages_of_changes_are_limited(graph: AnyGraph) -> None:
    graph.load(
        [{"name": f"N{at}"} for at in range(3)], type="Person", mode="append", branch="paged", from_="main"
    )
    commit = graph.commits.list("paged")[0]
    page = graph.commits.change_page(commit.id, limit=2)
    assert page.commit == commit
    assert [one.id for one in page.changes] == ["N0", "N1"]
    rest = graph.commits.change_page(commit.id, limit=2, page_token=page.next_page_token)
    assert ([one.id for one in rest.changes], rest.next_page_token) == (["N2"], None)
    assert [one.id for one in graph.commits.changes(commit.id)] == ["N0", "N1", "N2"]
    feed = graph.change_page("paged", since=f"after:{commit.parent}", limit=2)
    assert feed.next_page_token is not None
    assert not feed.caught_up
    assert graph.change_page("paged", page_token=feed.next_page_token).caught_up


def test_a_commit_larger_than_a_page_stays_one_commit(graph: AnyGraph) -> None:
    rows = [{"name": f"P{at:04}"} for at in range(1500)]
    done = graph.load(rows, type="Person", mode="append", branch="large", from_="main")
    graph.mutate(ADD, {"name": "Q"}, branch="large")
    assert done.commit is not None
    found = [(block.commit.id, sum(1 for _ in block.changes)) for block in graph.changes("large")]
    assert found[-2:] == [(done.commit.id, 1500), (graph.commits.list("large")[0].id, 1)]


def test_commits_are_found(graph: AnyGraph) -> None:
    newest, older = graph.commits.list(limit=2)
    assert graph.commits.get(older.id) == older
    assert newest.parent == older.id
    assert [one.actor for one in graph.commits.list(actor="root")] == ["root"]
    with pytest.raises(errors.CommitNotFound) as missing:
        graph.commits.get("01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert missing.value.commit_id == "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    graph.branches.create("parted", from_="main")
    theirs = graph.mutate(ADD, {"name": "R"}, branch="parted").commit
    assert theirs is not None
    assert graph.commits.merge_base(newest.id, theirs.id) == newest


def test_an_export_is_a_file_or_a_stream_that_a_load_takes(graph: AnyGraph, tmp_path: Path) -> None:
    stream = io.BytesIO()
    done = graph.export(stream, types=["Person"])
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["data"]["name"] for line in lines] == names(graph, "main")
    (kind,) = done.types
    assert (kind.kind, kind.name, kind.rows, kind.bytes) == ("node", "Person", 4, len(stream.getvalue()))
    written = graph.export(tmp_path / "out.ndjson")
    assert written.rows == 5
    assert written.snapshot == graph.snapshot().id
    with pytest.raises(errors.BadRequest):
        graph.export(tmp_path / "out.ndjson")
    with og.init(tmp_path / "copy.omni", schema=SCHEMA) as copy:
        assert copy.load(tmp_path / "out.ndjson", mode="append").total == 5
    with pytest.raises(errors.BadRequest, match="Missing"):
        graph.export(io.BytesIO(), types=["Missing"])


def test_the_schema_is_read(graph: AnyGraph) -> None:
    assert graph.schema_source == SCHEMA
    assert list(graph.schema.nodes) == ["Person"]
    assert graph.format_version > 0


def test_a_schema_that_branches_forbid_is_refused(graph: AnyGraph) -> None:
    if "blocking" not in graph.branches:
        graph.branches.create("blocking")
    with pytest.raises(errors.SchemaApplyBlocked) as blocked:
        graph.apply_schema(SCHEMA + "node Pet { name: String @key }\n")
    assert "blocking" in blocked.value.branches
    with pytest.raises(errors.ParseError):
        graph.apply_schema("node {")


def test_wrong_arguments_are_named(graph: AnyGraph) -> None:
    with pytest.raises(errors.InvalidValue, match="`max_rows`"):
        graph.query(PEOPLE, max_rows="many")  # type: ignore[arg-type]
    with pytest.raises(errors.BadRequest):
        graph.query("people.gq")


def test_writes_take_a_message(graph: AnyGraph) -> None:
    rows = [{"name": "Noted"}]
    graph.load(rows, type="Person", mode="append", branch="noted", from_="main", message="Load a person")
    graph.mutate(SET, {"name": "Noted", "age": 7}, branch="noted", message="Set the age\n\nIt was missing.")
    graph.branches.create("noted-more", from_="noted")
    graph.mutate(SET, {"name": "Noted", "age": 8}, branch="noted-more")
    merged = graph.merge("noted-more", "noted", message="Take it in")
    assert merged.commit is not None
    assert merged.commit.message == "Take it in"
    found = graph.commits.list("noted", limit=3)
    assert [(one.subject, one.operation) for one in found] == [
        ("Take it in", "merge"),
        ("Set the age", "mutate"),
        ("Load a person", "load"),
    ]
    with pytest.raises(errors.InvalidValue, match="a commit message must not be blank"):
        graph.mutate(SET, {"name": "Noted", "age": 9}, branch="noted", message=" ")


def test_the_log_counts_what_commits_changed(graph: AnyGraph) -> None:
    rows = [{"name": "Logged"}, {"name": "Logged too"}]
    graph.load(rows, type="Person", mode="append", branch="logged", from_="main", message="Two")
    newest, older = graph.log("logged", limit=2)
    assert newest.commit == graph.commits.list("logged")[0]
    assert newest.changes == {"node:Person": og.ChangeCounts(inserted=2)}
    assert (newest.branches, newest.is_upkeep, older.branches) == (("logged",), False, ())
    assert graph.log("logged", limit=1, stat=False)[0].changes is None
    assert newest.commit.id in {one.commit.id for one in graph.log(all_branches=True, limit=None, stat=False)}
    assert graph.log("logged", actor="missing") == []
    shown = graph.show(newest.commit)
    assert (shown.commit, shown.stat()) == (newest.commit, newest.changes)
    assert graph.show(graph.commits.list()[-1].id).stat() == {}
    found = graph.status("logged")
    assert (found.head, found.branch) == (newest.commit, "logged")
    assert next(one for one in found.branches if one.name == "logged").ahead == 1
    with pytest.raises(errors.BranchNotFound):
        graph.log("missing")


def test_the_history_of_an_entity_has_what_each_commit_changed(graph: AnyGraph) -> None:
    rows = [{"name": "Blamed"}]
    graph.load(rows, type="Person", mode="append", branch="blamed", from_="main", message="One")
    graph.mutate(SET, {"name": "Blamed", "age": 7}, branch="blamed")
    newest, oldest = graph.history("Person", "Blamed", branch="blamed")
    assert newest.commit == graph.commits.list("blamed")[0]
    assert newest.properties == (og.PropertyChange("age", None, 7),)
    assert (oldest.change.op, oldest.commit.message) == ("insert", "One")
    assert graph.history("Person", "Blamed", branch="blamed", limit=1).changes == (newest,)
    assert graph.history("Person", "Blamed").changes == ()
    with pytest.raises(errors.BadRequest, match="there is no type 'Nothing'"):
        graph.history("Nothing", "Blamed")
    with pytest.raises(errors.InvalidValue, match="limit must not be negative"):
        graph.history("Person", "Blamed", limit=-1)


def test_commits_are_tagged_and_tags_stand_for_them(graph: AnyGraph) -> None:
    made = graph.tags.create("rel/1", message="As published")
    assert (made.commit_id, made.message) == (graph.commits.list()[0].id, "As published")
    assert (graph.tags.list(), graph.tags.get("rel/1"), list(graph.tags)) == ([made], made, ["rel/1"])
    assert (graph.commits.get("rel/1").id, graph.show("rel/1").commit.id) == (made.commit_id, made.commit_id)
    assert graph.log(limit=1)[0].tags == graph.log("rel/1", limit=1)[0].tags == ("rel/1",)
    assert graph.at(commit="rel/1").id == made.commit_id
    with pytest.raises(errors.TagExists) as taken:
        graph.tags.create("rel/1")
    assert taken.value.data()["tag"] == "rel/1"
    graph.branches.create("tagged", from_="rel/1")
    done = graph.mutate(ADD, {"name": "Tagged", "age": 1}, branch="tagged")
    assert done.commit is not None
    assert done.commit.parent == made.commit_id
    assert graph.tags.create("rel/1", at="tagged", force=True).commit_id == done.commit.id
    assert graph.diff("main", "rel/1").stat() == {"node:Person": og.ChangeCounts(inserted=1)}
    graph.tags.delete("rel/1")
    graph.branches.delete("tagged")
    for failing in (graph.tags.delete, graph.tags.get):
        with pytest.raises(errors.TagNotFound):
            failing("rel/1")
    with pytest.raises(errors.InvalidName):
        graph.tags.create("a b")
    with pytest.raises(errors.BranchNotFound):
        graph.branches.create("tagged", from_="rel/1")


def test_commits_are_reverted_picked_and_restored(graph: AnyGraph) -> None:
    graph.branches.create("replayed")
    graph.branches.create("picked")
    before = names(graph, "replayed")
    graph.mutate(ADD, {"name": "Replay", "age": 1}, branch="replayed", message="Add Replay")
    made = graph.commits.list("replayed")[0]
    picked = graph.cherry_pick(made, "picked", message="Take it")
    assert picked.commit is not None
    assert (picked.commit.message, names(graph, "picked")) == ("Take it", [*before, "Replay"])
    undone = graph.revert(made.id, "replayed")
    assert undone.commit is not None
    assert (undone.commit.subject, names(graph, "replayed")) == ('Revert "Add Replay"', before)
    graph.reset(made.id, "replayed")
    assert names(graph, "replayed") == [*before, "Replay"]
    graph.mutate(SET, {"name": "Replay", "age": 2}, branch="replayed")
    with pytest.raises(errors.MergeConflicts, match="1 conflict"):
        graph.revert(made.id, "replayed")


def test_strategies_for_types_and_properties_travel(graph: AnyGraph) -> None:
    graph.branches.create("ours")
    graph.mutate(ADD, {"name": "Torn", "age": 1}, branch="ours")
    graph.branches.create("theirs", from_="ours")
    graph.mutate(SET, {"name": "Torn", "age": 2}, branch="theirs")
    graph.mutate(SET, {"name": "Torn", "age": 3}, branch="ours")
    with pytest.raises(errors.BadRequest, match="'Robot', which is not there"):
        graph.merge("theirs", "ours", strategy={"Robot": "ours"})
    seen = graph.merge("theirs", "ours", dry_run=True, strategy=["ours", "Person.age=theirs"])
    done = graph.merge("theirs", "ours", strategy={"*": "ours", "Person.age": "theirs"})
    assert seen.by_branch == done.by_branch
    assert done.by_branch["node:Person"].target == og.ChangeCounts(updated=1)
    aged = [row["p.age"] for row in graph.query(PEOPLE, branch="ours") if row["p.name"] == "Torn"]
    assert aged == [2]
