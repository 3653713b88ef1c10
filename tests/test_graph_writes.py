"""Writing through the Python API: mutations, loads, write blocks, and reading rows back."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import errors, failpoints
from omnigraph.cli.main import main
from omnigraph.engine.load.sources import item_reader
from omnigraph.engine.rows.ids import generate_ids
from omnigraph.engine.write.mutate import WriteCounts
from omnigraph.storage.location import Location
from tests.engine.crash.turns import turns
from tests.storage.conftest import s3_endpoint, s3_root

__all__ = ["s3_endpoint", "s3_root"]

SCHEMA = """
node Person {
  handle: String @key
  age: I32?
  score: F64?
  joined: Date?
  seen: DateTime?
  role: enum(dev, ops)?
  tags: [String]?
  face: Vector(2)?
  photo: Blob?
}
node Log { msg: String }
edge Mentors: Person -> Person { since: I32? }
"""
PEOPLE = [{"handle": "ada", "age": 36}, {"handle": "bo", "age": 20}, {"handle": "cy"}]
INSERT = "query add($h: String, $a: I32?) { insert Person { handle: $h, age: $a } }"


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[og.Graph]:
    with og.init(tmp_path / "g.omni", schema=SCHEMA) as made:
        yield made


@pytest.fixture
def people(tmp_path: Path) -> Path:
    return write_records(tmp_path / "people.jsonl", *({"type": "Person", "data": row} for row in PEOPLE))


def write_records(path: Path, *records: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return path


def ages(graph: og.Graph, branch: str = "main") -> dict[str, int | None]:
    rows = graph.snapshot(branch).rows("Person", columns=["handle", "age"]).to_pylist()
    return {row["handle"]: row["age"] for row in rows}


# --- mutate --------------------------------------------------------------------------------------


def test_a_mutation_is_one_commit_with_its_author(graph: og.Graph) -> None:
    before = graph.snapshot()
    done = graph.mutate(INSERT, {"h": "ada", "a": 36}, actor="ann")
    assert (done.affected_nodes, done.affected_edges, done.query) == (1, 0, "add")
    assert done.commit == graph.commits.list(actor="ann")[0] == graph.snapshot().commit
    assert done.commit.parent == before.id
    assert ages(graph) == {"ada": 36}
    assert before.rows("Person").num_rows == 0


def test_a_mutation_on_a_branch_leaves_the_others_alone(graph: og.Graph, people: Path) -> None:
    graph.load(people, mode="append")
    graph.branches.create("work")
    graph.mutate('query q() { delete Person where handle = "ada" }', branch="work")
    assert ages(graph, "work") == {"bo": 20, "cy": None}
    assert len(ages(graph)) == 3


def test_a_query_is_chosen_by_name_from_a_text_or_a_file(graph: og.Graph, tmp_path: Path) -> None:
    both = INSERT + 'query other() { insert Log { msg: "x" } }'
    (tmp_path / "q.gq").write_text(both, encoding="utf-8")
    assert graph.mutate(both, name="other").query == "other"
    assert graph.mutate(tmp_path / "q.gq", {"h": "ada"}, name="add").affected_nodes == 1
    with pytest.raises(errors.QueryNotFound):
        graph.mutate(both)
    (tmp_path / "q.gq").write_text("query q() { insert Nothing { a: 1 } }", encoding="utf-8")
    with pytest.raises(errors.TypeCheckError, match=r"q\.gq:1:13"):
        graph.mutate(tmp_path / "q.gq")


def test_a_read_is_no_mutation(graph: og.Graph) -> None:
    with pytest.raises(errors.WrongQueryKind, match="query 'q' only reads"):
        graph.mutate("query q() { match { $p: Person } return { $p.age as a } }")


def test_python_dates_and_numbers_are_parameters(graph: og.Graph) -> None:
    query = """query q($d: Date, $t: DateTime, $s: F64, $v: Vector(2), $b: Blob) {
      insert Person { handle: "ada", joined: $d, seen: $t, score: $s, face: $v, photo: $b }
    }"""
    moment = datetime(2024, 1, 1, 12, 30, 0, 250_000, tzinfo=UTC)
    given = {"d": date(2021, 3, 4), "t": moment, "s": np.float64(1.5), "v": np.array([1, 2]), "b": b"face"}
    graph.mutate(query, given)
    (row,) = graph.snapshot().rows("Person").to_pylist()
    assert (row["joined"], row["seen"], row["score"], row["face"]) == (date(2021, 3, 4), moment, 1.5, [1, 2])
    with pytest.raises(errors.InvalidValue, match="has no zone"):
        graph.mutate(query, {**given, "t": datetime(2024, 1, 1)})  # noqa: DTZ001


@pytest.mark.parametrize("unit", ["ns", "ps"])
def test_numpy_times_are_not_taken_for_numbers(graph: og.Graph, unit: Literal["ns", "ps"]) -> None:
    moment = np.datetime64("2024-01-01", unit)
    with graph.write() as tx:
        tx.insert("Person", handle="ada", joined=np.datetime64("2024-01-01"))
        for wrong in (moment, np.array([moment]), np.timedelta64(5, unit)):
            with pytest.raises(errors.InvalidValue, match="is no moment: it has no zone"):
                tx.insert("Person", handle="bo", seen=wrong)
    with pytest.raises(errors.InvalidValue, match="is no moment: it has no zone"):
        graph.mutate("query q($t: DateTime) { update Person set { seen: $t } where age = 1 }", {"t": moment})
    assert [row["joined"] for row in graph.snapshot().rows("Person").to_pylist()] == [date(2024, 1, 1)]


ACTORS: dict[str, Any] = {
    "number": 5,
    "bytes": b"ann",
    "empty": "",
    "blank": "  ",
    "line": "ann\nbo",
    "escape": "\x1b[31m",
    "surrogate": "\ud800",
    "long": "a" * 257,
    "reserved": "omnigraph:recovery",
}


@pytest.mark.parametrize("actor", ACTORS.values(), ids=ACTORS)
def test_an_actor_that_a_commit_cannot_record_writes_nothing(
    graph: og.Graph, people: Path, actor: Any
) -> None:
    graph.branches.create("draft")
    writes: list[Callable[[], object]] = [
        lambda: graph.mutate(INSERT, {"h": "ada"}, actor=actor),
        lambda: graph.write(actor=actor),
        lambda: graph.load(people, mode="append", actor=actor),
        lambda: graph.load(people, mode="append", branch="new", from_="main", actor=actor),
        lambda: graph.merge("draft", actor=actor),
        lambda: graph.apply_schema(SCHEMA + "node Later { k: String @key }", actor=actor),
        lambda: graph.optimize(actor=actor),
        lambda: graph.ensure_indices(actor=actor),
    ]
    for write in writes:
        with pytest.raises(errors.InvalidName):
            write()
    assert len(graph.commits.list()) == 1
    assert graph.branches.list() == ["main", "draft"]


def test_a_condition_is_the_id_of_a_commit_and_a_branch_a_name(graph: og.Graph) -> None:
    commit: Any = graph.commits.list()[0]
    with pytest.raises(errors.BadRequest, match="`if_commit` must be a text or None, got Commit"):
        graph.mutate(INSERT, {"h": "ada"}, if_commit=commit)
    with pytest.raises(errors.InvalidName, match="the name of a branch is a text, not int"):
        graph.mutate(INSERT, {"h": "ada"}, branch=5)  # type: ignore[arg-type]


def test_an_update_in_a_block_sets_something(graph: og.Graph) -> None:
    with graph.write() as tx, pytest.raises(errors.BadRequest, match="update of `Person` sets nothing"):
        tx.update("Person", ("handle", "=", "ada"))
    assert len(graph.commits.list()) == 1


def test_a_wrong_parameter_is_reported_by_name(graph: og.Graph) -> None:
    with pytest.raises(errors.ParameterError, match="param 'a': expected integer"):
        graph.mutate(INSERT, {"h": "ada", "a": "x"})
    with pytest.raises(errors.ParameterError, match="parameter 'h' not provided"):
        graph.mutate(INSERT)
    with pytest.raises(errors.ParameterError, match="params must be a JSON object"):
        graph.mutate(INSERT, ["ada"])  # type: ignore[arg-type]


def test_a_condition_holds_only_on_the_newest_commit(graph: og.Graph) -> None:
    head = graph.snapshot().id
    first = graph.mutate(INSERT, {"h": "ada"}, if_commit=head)
    assert first.commit is not None
    with pytest.raises(errors.PreconditionFailed) as lost:
        graph.mutate(INSERT, {"h": "bo"}, if_commit=head)
    assert (lost.value.expected, lost.value.actual) == (head, first.commit.id)
    with pytest.raises(errors.PreconditionFailed), graph.write(if_commit=head) as tx:
        tx.insert("Log", msg="x")
    assert graph.snapshot().id == first.commit.id


@pytest.mark.parametrize("tries", [1, 2], ids=["a no-op", "a write"])
def test_a_condition_that_fails_while_the_write_is_prepared_is_reported(graph: og.Graph, tries: int) -> None:
    """Also where nothing had to be done: whether that holds was asked of a head that is gone."""
    name = [failpoints.MUTATION_POST_NO_EFFECT_PRE_GATE, failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE]

    def overtake() -> None:
        with og.open(graph.uri) as other:
            other.mutate(INSERT, {"h": "zed"})

    graph.mutate(INSERT, {"h": "ada", "a": 1})
    head = graph.snapshot().id
    text = f'query q() {{ update Person set {{ age: 2 }} where handle = "{["zed", "ada"][tries - 1]}" }}'
    with (
        failpoints.arm(name[tries - 1], failpoints.once(overtake)),
        pytest.raises(errors.PreconditionFailed) as lost,
    ):
        graph.mutate(text, if_commit=head)
    assert lost.value.actual == graph.snapshot().id
    assert ages(graph) == {"ada": 1, "zed": None}


def test_a_receipt_counts_the_stored_rows_of_each_type(graph: og.Graph) -> None:
    graph.mutate(INSERT, {"h": "ada"})
    both = 'insert Person { handle: "ada" } insert Person { handle: "bo" } insert Log { msg: "x" }'
    done = graph.mutate(f'query q() {{ {both} insert Mentors {{ from: "ada", to: "bo" }} }}')
    assert done.tables == {
        "node:Person": WriteCounts(inserted=1, updated=1),
        "node:Log": WriteCounts(inserted=1),
        "edge:Mentors": WriteCounts(inserted=1),
    }
    done = graph.mutate("query q() { update Person set { age: 1 } where age is null }")
    assert done.tables == {"node:Person": WriteCounts(updated=2)}
    done = graph.mutate('query q() { delete Person where handle = "ada" }')
    assert done.tables == {"node:Person": WriteCounts(deleted=1), "edge:Mentors": WriteCounts(deleted=1)}
    assert graph.mutate('query q() { delete Person where handle = "ada" }').tables == {}


def test_no_write_where_none_is_allowed(graph: og.Graph, people: Path) -> None:
    with og.open(graph.uri, read_only=True) as reader:
        for write in (
            lambda: reader.mutate(INSERT, {"h": "ada"}),
            lambda: reader.load(people, mode="append"),
            reader.write,
        ):
            with pytest.raises(errors.ReadOnlyGraph):
                write()
    with pytest.raises(errors.GraphClosed):
        reader.mutate(INSERT, {"h": "ada"})
    with pytest.raises(errors.BranchNotFound):
        graph.mutate(INSERT, {"h": "ada"}, branch="nowhere")


# --- write blocks --------------------------------------------------------------------------------


def test_a_block_commits_once_at_its_end(graph: og.Graph) -> None:
    with graph.write(actor="ann") as tx:
        tx.insert("Person", handle="ada", age=36, tags=["x"], joined=date(2021, 3, 4))
        tx.insert("Person", {"handle": "bo"}, age=20)
        tx.insert_edge("Mentors", "ada", "bo", since=2019)
        tx.update("Person", ("age", "<", 30), age=21)
        assert len(graph.commits.list()) == 1
        assert repr(tx) == "<Write to 'main' with 4 statements>"
    assert (tx.result.affected_nodes, tx.result.affected_edges) == (3, 1)
    assert tx.result.commit == graph.commits.list()[0]
    assert tx.result.commit.actor == "ann"
    assert len(graph.commits.list()) == 2
    assert ages(graph) == {"ada": 36, "bo": 21}
    (edge,) = graph.snapshot().rows("Mentors").to_pylist()
    assert (edge["src"], edge["dst"], edge["since"]) == ("ada", "bo", 2019)


def test_what_a_block_inserts_can_be_named_in_it(graph: og.Graph) -> None:
    graph.apply_schema(
        f"{SCHEMA}\nnode Spot {{ x: I32  y: F64  @key(x, y) }}\n"
        "edge Wrote: Person -> Log\nedge On: Log -> Spot\n"
    )
    with graph.write() as tx:
        ada, log = tx.insert("Person", handle="ada"), tx.insert("Log", msg="x")
        spot = tx.insert("Spot", x=1, y=2.5)
        wrote, on = tx.insert_edge("Wrote", ada, log), tx.insert_edge("On", log, spot)
        nameless = tx.insert("Person", handle="")
        tx.insert_edge("Mentors", nameless, ada)
    assert (ada, nameless, spot) == ("ada", "", '["1","2.5"]')
    now = graph.snapshot()
    assert now.rows("Log").to_pylist() == [{"id": log, "msg": "x"}]
    assert now.rows("Spot").to_pylist() == [{"id": spot, "x": 1, "y": 2.5}]
    assert now.rows("Wrote").to_pylist() == [{"id": wrote, "src": "ada", "dst": log}]
    assert now.rows("On").to_pylist() == [{"id": on, "src": log, "dst": spot}]


def test_an_error_in_a_block_writes_nothing(graph: og.Graph) -> None:
    head = graph.snapshot().id

    def dies(tx: Any) -> None:
        tx.insert("Person", handle="ada")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"), graph.write() as tx:
        dies(tx)
    assert graph.snapshot().id == head
    with pytest.raises(errors.BadRequest, match="no result yet"):
        tx.result  # noqa: B018


def test_a_block_that_breaks_a_rule_writes_nothing(graph: og.Graph) -> None:
    head = graph.snapshot().id
    tx = graph.write()
    tx.__enter__()
    tx.insert("Person", handle="ada")
    tx.insert_edge("Mentors", "ada", "missing")
    with pytest.raises(errors.ConstraintViolation, match="dst 'missing' not found in Person"):
        tx.__exit__(None, None, None)
    assert graph.snapshot().id == head


@pytest.mark.parametrize(
    ("where", "left"),
    [
        (("handle", "=", "ada"), "bo cy"),
        (("age", ">=", 20), "cy"),
        (("age", "=", 20.0), "ada cy"),
        (("age", "!=", 36), "ada cy"),
        (("age", "in", [36, 7]), "bo cy"),
        (("handle", "in", ("bo", "cy")), "ada"),
        (("age", "is null"), "ada bo"),
        (("age", "is not null"), "cy"),
        (("age", "in", []), "ada bo cy"),
        (("joined", "<", date(2030, 1, 1)), "ada bo cy"),
    ],
    ids=str,
)
def test_rows_are_deleted_by_a_test(graph: og.Graph, people: Path, where: Any, left: str) -> None:
    graph.load(people, mode="append")
    with graph.write() as tx:
        tx.delete("Person", where)
    assert sorted(ages(graph)) == left.split()
    assert (tx.result.commit is None) == (left == "ada bo cy")


def test_edges_are_deleted_by_their_ends(graph: og.Graph, people: Path) -> None:
    graph.load(people, mode="append")
    with graph.write() as tx:
        for target in ("bo", "cy"):
            tx.insert_edge("Mentors", "ada", target)
    with graph.write() as tx:
        tx.delete("Mentors", ("to", "=", "bo"))
    assert tx.result.affected_edges == 1
    assert graph.snapshot().rows("Mentors").column("dst").to_pylist() == ["cy"]


def blocks() -> list[tuple[str, str, Any]]:
    return [
        ("unknown node type `Persn`", "BadRequest", lambda tx: tx.insert("Persn", handle="x")),
        ("unknown node type `Mentors`", "BadRequest", lambda tx: tx.insert("Mentors")),
        ("unknown edge type `Person`", "BadRequest", lambda tx: tx.insert_edge("Person", "a", "b")),
        (
            "type `Person` has no property `nick`",
            "BadRequest",
            lambda tx: tx.insert("Person", handle="x", nick=1),
        ),
        (
            "insert for `Person` must provide non-nullable property `handle`",
            "BadRequest",
            lambda tx: tx.insert("Person", age=1),
        ),
        (
            "property 'age': cannot convert String(\"7\") to Int32",
            "InvalidValue",
            lambda tx: tx.insert("Person", handle="x", age="7"),
        ),
        (
            "property 'handle': null is not accepted",
            "InvalidValue",
            lambda tx: tx.insert("Person", handle=None),
        ),
        ("property 'from': null is not", "InvalidValue", lambda tx: tx.insert_edge("Mentors", None, "b")),
        (
            "cannot update @key property 'handle'",
            "BadRequest",
            lambda tx: tx.update("Person", ("age", "=", 1), handle="x"),
        ),
        (
            "type `Mentors` has no property `to`",
            "BadRequest",
            lambda tx: tx.update("Mentors", ("since", "=", 1), to="bo"),
        ),
        ("null never compares", "BadRequest", lambda tx: tx.delete("Person", ("age", "=", None))),
        ("is not a test of rows", "BadRequest", lambda tx: tx.delete("Person", ("age", "like", 1))),
        ("is not a test of rows", "BadRequest", lambda tx: tx.delete("Person", "age > 1")),
        ("in requires a list, got int", "BadRequest", lambda tx: tx.delete("Person", ("age", "in", 1))),
        (
            "list equality is not supported",
            "BadRequest",
            lambda tx: tx.delete("Person", ("tags", "=", ["x"])),
        ),
        ("blob property `photo`", "BadRequest", lambda tx: tx.delete("Person", ("photo", "is null"))),
        ("property 'age': cannot convert", "InvalidValue", lambda tx: tx.delete("Person", ("age", "=", "x"))),
        ("unknown node/edge type `X`", "BadRequest", lambda tx: tx.delete("X", ("a", "=", 1))),
    ]


@pytest.mark.parametrize(("message", "kind", "act"), blocks(), ids=[it[0] for it in blocks()])
def test_a_mistake_is_reported_where_it_is_made(graph: og.Graph, message: str, kind: str, act: Any) -> None:
    head = graph.snapshot().id
    tx = graph.write()
    tx.__enter__()
    with pytest.raises(errors.BadRequest) as caught:
        act(tx)
    assert type(caught.value).__name__ == kind
    assert message in caught.value.message
    assert graph.snapshot().id == head


def test_a_block_writes_or_deletes(graph: og.Graph) -> None:
    for first, second in (("insert", "delete"), ("delete", "insert")):
        tx = graph.write()
        tx.__enter__()
        calls = {
            "insert": lambda tx=tx: tx.insert("Log", msg="a"),
            "delete": lambda tx=tx: tx.delete("Log", ("msg", "=", "b")),
        }
        calls[first]()
        with pytest.raises(errors.BadRequest, match="mixes inserts/updates and deletes"):
            calls[second]()


def test_a_block_is_used_once_and_inside(graph: og.Graph) -> None:
    tx = graph.write()
    with pytest.raises(errors.BadRequest, match="only inside its `with` block"):
        tx.insert("Log", msg="a")
    with tx:
        tx.insert("Log", msg="a")
    with pytest.raises(errors.BadRequest, match="only inside"):
        tx.insert("Log", msg="b")
    with pytest.raises(errors.BadRequest, match="can be used once"):
        tx.__enter__()


def test_an_empty_block_makes_no_commit(graph: og.Graph) -> None:
    head = graph.snapshot().id
    with graph.write() as tx:
        pass
    assert tx.result.commit is None
    assert graph.snapshot().id == head


# --- load ----------------------------------------------------------------------------------------


def test_files_are_read_in_order_folders_and_patterns_by_path(graph: og.Graph, tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.ndjson", "c/d.jsonl", "notes.txt"):
        write_records(tmp_path / "in" / name, {"type": "Log", "data": {"msg": name}})
    done = graph.load(tmp_path / "in", mode="append")
    assert (done.nodes, done.edges, done.total, done.branch_created) == ({"Log": 3}, {}, 3, False)
    logs = sorted(graph.snapshot().rows("Log").to_pylist(), key=lambda row: row["id"])
    # Generated ids follow the order of files and lines.
    assert [row["msg"] for row in logs] == ["a.ndjson", "b.jsonl", "c/d.jsonl"]
    pattern = str(tmp_path / "in" / "*.jsonl")
    assert graph.load([pattern, tmp_path / "in" / "notes.txt"], mode="overwrite").nodes == {"Log": 2}


def test_a_load_of_nothing_is_reported(graph: og.Graph, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for files, message in (
        ([], "at least one file"),
        (tmp_path / "empty", r"has no files that end with \.arrow, "),
        (tmp_path / "*.jsonl", "no file matches"),
        (tmp_path / "nowhere.jsonl", "cannot read .*nowhere.jsonl"),
    ):
        with pytest.raises(errors.BadRequest, match=message):
            graph.load(files, mode="append")
    with pytest.raises(errors.BadRequest, match="'upsert' is not a mode of loading"):
        graph.load(tmp_path, mode="upsert")  # type: ignore[arg-type]


def test_a_missing_branch_is_made_when_a_source_is_named(graph: og.Graph, people: Path) -> None:
    graph.load(people, mode="append")
    with pytest.raises(errors.BranchNotFound):
        graph.load(people, mode="merge", branch="typo")
    first = graph.load(people, mode="merge", branch="work", from_="main", actor="ann")
    again = graph.load(people, mode="merge", branch="work", from_="main")
    assert (first.branch_created, again.branch_created) == (True, False)
    assert [commit.actor for commit in graph.commits.list("work")] == [None, "ann", None, None]
    assert len(graph.commits.list()) == 2


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({"type": "Person", "data": {"age": "x"}}, errors.LoadRejected),
        ({"type": "Person", "data": {"handle": "ada"}}, errors.KeyConflict),
        ({"edge": "Mentors", "from": "ada", "to": "missing"}, errors.LoadRejected),
    ],
    ids=["bad value", "stored key", "missing end"],
)
def test_a_refused_load_makes_no_branch(
    graph: og.Graph, people: Path, tmp_path: Path, record: dict[str, Any], error: type[Exception]
) -> None:
    graph.load(people, mode="append")
    bad = write_records(tmp_path / "bad.jsonl", record)
    name = failpoints.BRANCH_CREATE_AFTER_MANIFEST_BRANCH_CREATE
    with failpoints.arm(name, failpoints.error(name)), pytest.raises(error):
        graph.load(bad, mode="append", branch="work", from_="main")
    assert graph.branches.list() == ["main"]


def test_a_branch_made_for_a_load_that_then_fails_goes_again(graph: og.Graph, people: Path) -> None:
    name = failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE
    with failpoints.arm(name, failpoints.error(name)), pytest.raises(errors.OmnigraphError):
        graph.load(people, mode="append", branch="work", from_="main")
    assert graph.branches.list() == ["main"]
    assert graph.load(people, mode="append", branch="work", from_="main").branch_created


def test_a_branch_made_for_a_load_stays_when_recovery_may_finish_it(graph: og.Graph, people: Path) -> None:
    name = failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER
    with failpoints.arm(name, failpoints.error(name)), pytest.raises(errors.RecoveryRequired):
        graph.load(people, mode="append", branch="work", from_="main")
    graph.refresh()
    assert len(ages(graph, "work")) == 3
    assert ages(graph) == {}


def test_everything_that_is_wrong_is_reported_with_its_place(graph: og.Graph, tmp_path: Path) -> None:
    good = {"type": "Person", "data": {"handle": "kim"}}
    first = write_records(tmp_path / "1.jsonl", good, {"type": "Person", "data": {"age": "x"}})
    second = write_records(tmp_path / "2.jsonl", {"type": "Persn"})
    head = graph.snapshot().id
    with pytest.raises(errors.LoadRejected) as caught:
        graph.load([first, second], mode="append")
    assert [(wrong.file, wrong.line) for wrong in caught.value.violations] == [
        (str(first), 2),
        (str(first), 2),
        (str(second), 1),
    ]
    assert caught.value.total == 3
    assert graph.snapshot().id == head
    done = graph.load([first, second], mode="append", skip_bad=True)
    assert (done.nodes, len(done.skipped)) == ({"Person": 1}, 3)
    assert ages(graph) == {"kim": None}


def test_skipped_rows_are_reported_for_every_stage(graph: og.Graph, people: Path, tmp_path: Path) -> None:
    graph.load(people, mode="append")
    more = write_records(
        tmp_path / "more.jsonl",
        {"type": "Person", "data": {"handle": "ada"}},
        {"type": "Person", "data": {"handle": "dee"}},
        {"edge": "Mentors", "from": "dee", "to": "missing"},
    )
    done = graph.load(more, mode="append", skip_bad=True)
    assert (done.nodes, done.edges) == ({"Person": 1}, {"Mentors": 0})
    assert [(wrong.line, wrong.reason) for wrong in done.skipped] == [
        (1, "node type 'Person' already has id 'ada'"),
        (3, "dst 'missing' not found in Person"),
    ]


def test_progress_counts_bytes_and_lines(
    graph: og.Graph, people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_reader, "SMALL", 0)  # one file after the other
    more = write_records(tmp_path / "more.jsonl", {"type": "Log", "data": {"msg": "x"}})
    heard: list[og.Progress] = []
    graph.load([people, more], mode="append", progress=heard.append)
    sizes = [file.stat().st_size for file in (people, more)]
    counts = [(now.tasks_done, now.rows, now.bytes) for now in heard]
    assert counts == sorted(counts)
    assert (1, 3, sizes[0]) in counts
    assert counts[-1] == (2, 4, sum(sizes))
    assert {(now.stage, now.tasks, now.all_bytes) for now in heard} == {("read", 2, sum(sizes))}


# --- rows ----------------------------------------------------------------------------------------


def test_rows_are_an_arrow_table_without_blobs(graph: og.Graph, people: Path) -> None:
    graph.load(people, mode="append")
    rows = graph.snapshot().rows("Person")
    assert isinstance(rows, pa.Table)
    assert "photo" not in rows.column_names
    assert rows.column_names[0] == "id"
    assert rows.num_rows == 3
    assert graph.snapshot().rows("node:Person", columns=["age"], limit=2).shape == (2, 1)
    assert graph.snapshot().rows("Mentors").column_names == ["id", "src", "dst", "since"]


def test_a_snapshot_keeps_its_rows(graph: og.Graph, people: Path) -> None:
    first = graph.load(people, mode="append").commit
    assert first is not None
    graph.mutate('query q() { delete Person where handle = "ada" }')
    assert graph.snapshot().rows("Person").num_rows == 2
    assert graph.at(commit=first.id).rows("Person").num_rows == 3


def test_wrong_questions_for_rows_are_reported(graph: og.Graph) -> None:
    snapshot = graph.snapshot()
    with pytest.raises(errors.BadRequest, match="no type 'Persn'") as caught:
        snapshot.rows("Persn")
    assert "Person" in str(caught.value.remedy)
    for column in ("nick", "photo"):
        with pytest.raises(errors.BadRequest, match=f"has no column '{column}'"):
            snapshot.rows("Person", columns=[column])
    with pytest.raises(errors.InvalidValue, match="limit"):
        snapshot.rows("Person", limit=-1)


@pytest.mark.parametrize("limit", [2**63, 2**70])
def test_rows_take_a_limit_beyond_64_bits(graph: og.Graph, limit: int) -> None:
    assert graph.snapshot().rows("Person", limit=limit).num_rows == graph.snapshot().rows("Person").num_rows


# --- together ------------------------------------------------------------------------------------


def test_threads_share_a_graph(graph: og.Graph) -> None:
    def insert(number: int) -> None:
        graph.mutate(INSERT, {"h": f"p{number}", "a": number})

    threads = [threading.Thread(target=insert, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ages(graph) == {f"p{number}": number for number in range(6)}
    assert len(graph.commits.list()) == 7


def test_a_write_that_was_cut_off_is_dealt_with_by_the_next_one(graph: og.Graph) -> None:
    name = failpoints.MUTATION_POST_FINALIZE_PRE_PUBLISHER
    with failpoints.arm(name, failpoints.error(name)), pytest.raises(errors.RecoveryRequired):
        graph.mutate(INSERT, {"h": "ada"})
    assert ages(graph) == {}
    graph.mutate(INSERT, {"h": "bo"})
    assert ages(graph) == {"ada": None, "bo": None}


@pytest.mark.s3
def test_a_bucket_is_written_like_a_folder(s3_root: Location, people: Path, tmp_path: Path) -> None:
    with og.init(s3_root.uri, schema=SCHEMA) as graph:
        assert graph.load(people, mode="append", branch="work", from_="main").branch_created
        with graph.write("work", actor="ann") as tx:
            tx.insert_edge("Mentors", "ada", "bo", since=2019)
        assert tx.result.affected_edges == 1
        name = failpoints.MUTATION_POST_TABLE_COMMIT
        # In turn: otherwise the other table may be written, too, and the write be complete.
        armed = failpoints.arm(name, failpoints.error(name))
        with armed, turns(reverse=False), pytest.raises(errors.RecoveryRequired):
            graph.mutate('query q() { delete Person where handle = "ada" }', branch="work")
    assert main(["recover", s3_root.uri]) == 0
    assert main(["doctor", s3_root.uri]) == 0
    with og.open(s3_root.uri, read_only=True) as graph:
        assert len(ages(graph, "work")) == 3
        assert graph.snapshot("work").rows("Mentors").num_rows == 1
        assert ages(graph) == {}


def test_ids_of_one_block_differ(graph: og.Graph) -> None:
    with graph.write() as tx:
        for _ in range(50):
            tx.insert("Log", msg="same")
    ids = graph.snapshot().rows("Log").column("id").to_pylist()
    assert len(set(ids)) == 50
    assert {len(found) for found in ids} == {len(generate_ids(1, 0)[0].as_py())}
