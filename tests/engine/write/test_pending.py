"""Rows written and not stored yet: what later statements of the same mutation see of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.rows.ids import generate_ids
from omnigraph.engine.rows.predicate import Bindings, bind_predicate, evaluate_rows, filter_rows
from omnigraph.engine.write.pending_rows import (
    PendingLimits,
    PendingRows,
    assign_values,
    build_edges,
    build_nodes,
)
from omnigraph.errors import BadRequest, InternalError, InvalidValue, ResourceLimitExceeded
from omnigraph.lang.query.terms import ROW, Compare, Const, Predicate, Prop
from omnigraph.lang.types import I64, STRING, Scalar, ValueType
from omnigraph.storage.location import Location
from omnigraph.storage.tables import Tables
from tests.engine.write.support import InMemory, fixture_lines

STORED = InMemory.of(fixture_lines())
PERSON, LOG, MENTORS = (STORED.targets[key] for key in ("node:Person", "node:Log", "edge:Mentors"))
AGE = Prop(ROW, "age", ValueType(Scalar.I32, nullable=True))


def people(*values: dict[str, Any]) -> pa.Table:
    return build_nodes(PERSON, values, generate_ids(len(values), 0))


def visible_ages(pending: PendingRows, where: Predicate) -> dict[str, int | None]:
    """Ages by id, as a statement sees them."""
    test = bind_predicate(where, Bindings())
    stored = filter_rows(STORED.tables["node:Person"], where, Bindings())
    rows = pending.read(stored, lambda rows: evaluate_rows(rows, test))
    return dict(zip(rows.column("id").to_pylist(), rows.column("age").to_pylist(), strict=True))


def older_than(age: int) -> Predicate:
    return Compare(">", AGE, Const(age, I64))


def test_a_keyed_insert_replaces_the_whole_row() -> None:
    pending = PendingRows(PERSON)
    pending.put(people({"handle": "bo", "age": 21}))
    final = pending.final(STORED)
    assert final.added.num_rows == 0
    (row,) = final.changed.to_pylist()
    assert (row["id"], row["age"], row["score"], row["role"]) == ("bo", 21, None, None)


def test_the_last_write_to_an_id_counts() -> None:
    pending = PendingRows(PERSON)
    pending.put(people({"handle": "z", "age": 1}))
    pending.put(people({"handle": "y"}))
    pending.put(people({"handle": "z", "age": 2}))
    assert [(row["id"], row["age"]) for row in pending.rows().to_pylist()] == [("y", None), ("z", 2)]
    assert pending.final(STORED).added.num_rows == 2


def test_rows_without_a_key_are_always_new() -> None:
    pending = PendingRows(LOG)
    for _ in range(2):
        pending.put(build_nodes(LOG, [{"msg": "a"}], generate_ids(1, 5)), fresh=True)
    assert pending.change().adds_only
    final = pending.final(STORED)
    assert (final.added.column("msg").to_pylist(), final.changed.num_rows) == (["a", "a"], 0)
    pending.put(assign_values(pending.rows(), LOG, {"msg": "b"}))
    assert not pending.change().adds_only
    assert pending.final(STORED).added.column("msg").to_pylist() == ["b", "b"]


def test_a_later_update_sees_what_an_earlier_one_wrote() -> None:
    pending = PendingRows(PERSON)
    bo = filter_rows(
        STORED.tables["node:Person"],
        Compare("=", Prop(ROW, "handle", STRING), Const("bo", STRING)),
        Bindings(),
    )
    pending.put(assign_values(bo, PERSON, {"age": 99}))
    assert visible_ages(pending, older_than(90)) == {"bo": 99}
    assert visible_ages(pending, older_than(30)) == {"ada": 36, "dee": 36, "bo": 99}
    assert visible_ages(pending, Compare("=", AGE, Const(20, I64))) == {}
    rows = pending.read(
        pa.table({"id": pa.array([], pa.string())}), lambda rows: pa.array([True] * rows.num_rows)
    )
    assert rows.to_pylist() == [{"id": "bo"}]


def test_deleted_rows_are_seen_no_more_and_come_back_when_they_are_written_again() -> None:
    pending = PendingRows(PERSON)
    pending.put(people({"handle": "kim", "age": 50}))
    pending.delete(pa.chunked_array([["kim", "ada"]]))
    pending.delete(pa.chunked_array([["ada"]]))
    assert pending.deleted.to_pylist() == ["kim", "ada"]
    assert visible_ages(pending, older_than(30)) == {"dee": 36}
    pending.put(people({"handle": "ada", "age": 37}))
    assert visible_ages(pending, older_than(30)) == {"dee": 36, "ada": 37}
    change = pending.change()
    assert (change.ids.to_pylist(), change.deleted.to_pylist()) == (["ada"], ["kim"])


def test_too_much_for_one_commit_is_refused() -> None:
    pending = PendingRows(LOG)
    pending.put(build_nodes(LOG, [{"msg": "a"}] * 8192, generate_ids(8192, 5)))
    with pytest.raises(ResourceLimitExceeded) as caught:
        pending.put(build_nodes(LOG, [{"msg": "a"}], generate_ids(1, 5)))
    assert (
        caught.value.message
        == "resource limit exceeded for keyed entities for node:Log: actual 8193, limit 8192"
    )
    small = PendingRows(LOG, PendingLimits(bytes=1000))
    with pytest.raises(ResourceLimitExceeded, match="keyed entity bytes for node:Log"):
        small.put(build_nodes(LOG, [{"msg": "a" * 2000}], generate_ids(1, 5)))


def test_the_environment_sets_other_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_MUTATION_ROWS", "2")
    monkeypatch.setenv("OMNIGRAPH_MUTATION_BYTES", "100000000")
    pending = PendingRows(LOG)
    pending.put(build_nodes(LOG, [{"msg": "a" * 40_000_000}] * 2, generate_ids(2, 5)))
    with pytest.raises(ResourceLimitExceeded, match="actual 3, limit 2"):
        pending.put(build_nodes(LOG, [{"msg": "a"}], generate_ids(1, 5)))


@pytest.mark.parametrize("value", ["0", "-1", "many", ""])
def test_a_limit_that_is_no_number_is_reported(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_MUTATION_BYTES", value)
    with pytest.raises(BadRequest, match=f"OMNIGRAPH_MUTATION_BYTES is '{value}'"):
        PendingRows(LOG)


def test_rows_of_another_table_are_refused() -> None:
    with pytest.raises(InternalError, match="other columns"):
        PendingRows(LOG).put(people({"handle": "x"}))
    with pytest.raises(InternalError, match="needs their ids"):
        PendingRows(LOG).read(pa.table({"msg": ["x"]}), lambda rows: None)


def test_missing_values_of_statements_are_reported() -> None:
    with pytest.raises(InvalidValue, match="insert @key property 'handle' cannot contain null"):
        people({"age": 1})
    with pytest.raises(InvalidValue, match="missing required property 'msg'"):
        build_nodes(LOG, [{}], generate_ids(1, 0))
    row = build_nodes(LOG, [{"msg": "x"}], generate_ids(1, 0))
    with pytest.raises(InvalidValue, match="missing required property 'msg'"):
        assign_values(row, LOG, {"msg": None})


def test_edges_have_ends_and_properties() -> None:
    rows = build_edges(MENTORS, ["ada"], ["bo"], [{"since": 2020}], pa.array(["e1"]))
    assert rows.to_pylist() == [{"id": "e1", "src": "ada", "dst": "bo", "since": 2020, "note": None}]


def test_assigned_blobs_can_be_emptied() -> None:
    schema = "node B { x: Blob? }"
    target = InMemory.of(b"", schema).targets["node:B"]
    rows = build_nodes(target, [{"x": "base64:YQ=="}, {}], pa.array(["1", "2"]))
    assert rows.column("x").combine_chunks().is_null().to_pylist() == [False, True]
    assert assign_values(rows, target, {"x": None}).column("x").null_count == 2
    with pytest.raises(InvalidValue, match="invalid base64 blob data"):
        build_nodes(target, [{"x": "base64:a"}], pa.array(["1"]))


def test_blobs_that_were_read_keep_their_bytes_or_the_write_fails(tmp_path: Path) -> None:
    target = InMemory.of(b"", "node B { x: Blob?  n: I32? }").targets["node:B"]
    rows = build_nodes(target, [{"x": "base64:YWI="}, {}, {"x": "base64:"}], pa.array(["1", "2", "3"]))
    place = Location.parse(tmp_path / "b")
    table = Tables().create(place, target.schema, primary_key="id", rows=rows)
    pending = PendingRows(target)
    with pytest.raises(InternalError, match="Blob property 'x' was read without its bytes"):
        pending.read(table.scan(), lambda rows: None)
    with pytest.raises(InternalError, match="Blob property 'x' has lost its bytes"):
        pending.put(table.scan().cast(target.schema))
    whole = lance.dataset(place.uri).scanner(blob_handling="all_binary").to_table()
    found = pending.read(whole, lambda rows: None)
    pending.put(assign_values(found, target, {"n": 7}))
    assert pending.rows().column("x").chunk(0).storage.field("data").to_pylist() == [b"ab", None, b""]
    assert pending.rows().column("x").null_count == 1


_HANDLES = st.sampled_from(["ada", "bo", "cy", "kim", "lu"])
_STEPS = st.lists(
    st.tuples(st.just("put"), st.lists(st.tuples(_HANDLES, st.none() | st.integers(0, 60)), max_size=4))
    | st.tuples(st.just("delete"), st.lists(_HANDLES, max_size=3))
    | st.tuples(st.just("update"), st.tuples(st.integers(0, 60), st.integers(0, 60))),
    max_size=8,
)


@pytest.mark.fuzz
@given(_STEPS)
def test_pending_rows_over_stored_ones_are_one_table(steps: list[tuple[str, Any]]) -> None:
    before = {row["id"]: row["age"] for row in STORED.tables["node:Person"].select(["id", "age"]).to_pylist()}
    model, pending = dict(before), PendingRows(PERSON)
    for kind, what in steps:
        if kind == "put":
            pending.put(people(*({"handle": handle, "age": age} for handle, age in what)))
            model.update(what)
        elif kind == "delete":
            pending.delete(pa.chunked_array([what], pa.string()))
            model = {handle: age for handle, age in model.items() if handle not in what}
        else:
            above, age = what
            test = bind_predicate(older_than(above), Bindings())
            stored = filter_rows(STORED.tables["node:Person"], older_than(above), Bindings())
            hit = pending.read(stored, partial(evaluate_rows, test=test))
            pending.put(assign_values(hit, PERSON, {"age": age}))
            model = {h: age if a is not None and a > above else a for h, a in model.items()}
        expected = {handle: age for handle, age in model.items() if age is not None and age > 10}
        assert visible_ages(pending, older_than(10)) == expected
    final = pending.final(STORED)
    after = {h: a for h, a in before.items() if h not in final.deleted.to_pylist()}
    for rows, known in ((final.added, False), (final.changed, True)):
        found = {row["id"]: row["age"] for row in rows.to_pylist()}
        assert all((handle in before) is known for handle in found)
        after.update(found)
    assert after == model
