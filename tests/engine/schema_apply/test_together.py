"""Schema changes beside readers and writers of other handles and processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

import omnigraph as og
from omnigraph import errors, failpoints
from omnigraph.engine.write.mutate import MutationSchema, SchemaMoved
from omnigraph.graph import Graph
from tests.python_process import PIPE, Python

OLD = "node P { k: String @key  a: I32? }"
NEW = 'node P { k: String @key  b: I32? @rename_from("a") }'

WRITER = """
import json, sys
import omnigraph as og
from omnigraph.errors import CompileError, ReadSetChanged
graph, done = og.open(sys.argv[1]), []
print("ready", flush=True)
for number in range(int(sys.argv[2])):
    name = "a" if "a" in graph.schema.nodes["P"].properties else "b"
    try:
        graph.mutate(f'query q($k: String) {{ insert P {{ k: $k, {name}: {number} }} }}', {"k": f"k{number}"})
        done.append(number)
    except (CompileError, ReadSetChanged):
        pass
print(json.dumps(done), flush=True)
"""


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return og.init(tmp_path / "g.omni", schema=OLD)


def test_a_writer_in_another_process_loses_nothing_that_was_acknowledged(graph: Graph) -> None:
    wanted = [NEW, 'node P { k: String @key  a: I32? @rename_from("b") }']
    with Python("-c", WRITER, graph.uri, "40", stdout=PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        for number in range(6):
            assert graph.apply_schema(wanted[number % 2]).applied
        done = json.loads(writer.stdout.readline())
    assert writer.returncode == 0
    assert len(done) > 30
    assert {row["k"]: row["a"] for row in graph.snapshot().rows("P").to_pylist()} == {
        f"k{number}": number for number in done
    }


def test_a_handle_that_is_open_elsewhere_sees_the_new_schema(graph: Graph) -> None:
    with og.open(graph.uri) as other, og.open(graph.uri, read_only=True) as reader:
        other.mutate('query q() { insert P { k: "x", a: 1 } }')
        for handle in (other, reader):
            assert handle.query("query q() { match { $p: P } return { $p.a } }").rows() == [{"p.a": 1}]
        graph.apply_schema(NEW)
        for handle in (other, reader):
            assert list(handle.schema.nodes["P"].properties) == ["k", "b"]
            assert handle.query("query q() { match { $p: P } return { $p.b } }").rows() == [{"p.b": 1}]
            with pytest.raises(errors.TypeCheckError):
                handle.query("query q() { match { $p: P } return { $p.a } }")
        other.mutate('query q() { update P set { b: 2 } where k = "x" }')
        assert graph.snapshot().rows("P").to_pylist() == [{"id": "x", "k": "x", "b": 2}]


def test_a_mutation_compiled_before_a_change_is_recompiled_behind_it(graph: Graph) -> None:
    """`a` comes to mean something else, and the mutation still compiles."""

    def change() -> None:
        with og.open(graph.uri) as other:
            other.apply_schema('node P { k: String @key  old: I32? @rename_from("a") }')
            other.apply_schema("node P { k: String @key  old: I32?  a: F64? }")

    with failpoints.arm(failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE, failpoints.once(change)):
        graph.mutate('query q() { insert P { k: "x", a: 1 } }')
    assert graph.snapshot().rows("P").to_pylist() == [{"id": "x", "k": "x", "old": None, "a": 1.0}]


def test_a_mutation_of_a_handle_that_read_the_old_schema_follows_the_new_one(graph: Graph) -> None:
    """Each handle compiled for the old schema before; the same text now means something else, or nothing."""
    same = 'query q() { insert P { k: "same", a: 1 } }'
    with og.open(graph.uri) as first, og.open(graph.uri) as second, og.open(graph.uri) as third:
        for handle in (first, second, third):
            handle.mutate(same)
        graph.apply_schema('node P { k: String @key  old: I32? @rename_from("a") }')
        with pytest.raises(errors.TypeCheckError):
            first.mutate(same)
        second.mutate('query q() { insert P { k: "new", old: 2 } }')
        graph.apply_schema("node P { k: String @key  old: I32?  a: F64? }")
        third.mutate(same)
    assert sorted(graph.snapshot().rows("P").to_pylist(), key=lambda row: str(row["k"])) == [
        {"id": "new", "k": "new", "old": 2, "a": None},
        {"id": "same", "k": "same", "old": None, "a": 1.0},
    ]


def test_a_mutation_gives_up_when_the_schema_changes_under_every_attempt(graph: Graph) -> None:
    schema = MutationSchema(graph._opened)
    moved = SchemaMoved("another", schema.catalog)
    for _ in range(4):
        schema.follow(moved)
    with pytest.raises(errors.ReadSetChanged, match="schema"):
        schema.follow(moved)


def test_a_mutation_that_a_change_made_wrong_is_refused(graph: Graph) -> None:
    def change() -> None:
        with og.open(graph.uri) as other:
            other.apply_schema(NEW)

    with (
        failpoints.arm(failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE, failpoints.once(change)),
        pytest.raises(errors.TypeCheckError),
    ):
        graph.mutate('query q() { insert P { k: "x", a: 1 } }')
    assert graph.snapshot().rows("P").num_rows == 0


def test_a_write_block_begun_before_a_change_is_refused_after_it(graph: Graph) -> None:
    block = graph.write()
    tx = block.__enter__()
    tx.insert("P", k="x", a=1)
    graph.apply_schema("node P { k: String @key  a: I32?  c: I32? }")
    with pytest.raises(errors.ReadSetChanged):
        block.__exit__(None, None, None)
    assert graph.snapshot().rows("P").num_rows == 0


def test_a_load_prepared_before_a_change_is_read_again_by_the_new_schema(
    graph: Graph, tmp_path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text('{"type":"P","data":{"k":"x","a":1}}\n')
    wider = "node P { k: String @key  a: I64? }"

    def change() -> None:
        with og.open(graph.uri) as other:
            other.apply_schema(wider)

    with failpoints.arm(failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE, failpoints.once(change)):
        graph.load(tmp_path / "rows.jsonl", mode="append")
    assert graph.schema_source == wider
    assert graph.snapshot().rows("P").to_pylist() == [{"id": "x", "k": "x", "a": 1}]


def test_a_stream_that_began_before_a_change_ends_as_it_began(graph: Graph) -> None:
    graph.mutate('query q() { insert P { k: "x", a: 1 } insert P { k: "y", a: 2 } }')
    stream = graph.stream("query q() { match { $p: P } return { $p.a as a } order { a } }", batch_rows=1)
    first = stream.read_next_batch().to_pylist()
    graph.apply_schema(NEW)
    assert first + stream.read_all().to_pylist() == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("schema", ["node P { k: String @key  a: I64? }", "node Q { k: String @key }"])
def test_a_write_that_sees_a_new_schema_before_its_files_waits_and_starts_again(
    graph: Graph, schema: str, tmp_path: Path
) -> None:
    """A new schema is visible a little before its files are in place."""
    (tmp_path / "rows.jsonl").write_text('{"type":"P","data":{"k":"y","a":2}}\n')
    point = failpoints.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT
    outcomes: list[object] = []

    def attempt(act: Callable[[], object]) -> None:
        try:
            outcomes.append(act())
        except errors.OmnigraphError as error:
            outcomes.append(error)

    pause = failpoints.Pause()
    with og.open(graph.uri) as one, og.open(graph.uri) as other:
        writers = [
            Thread(target=attempt, args=[lambda: one.mutate('query q() { insert P { k: "x", a: 1 } }')]),
            Thread(target=attempt, args=[lambda: other.load(tmp_path / "rows.jsonl", mode="merge")]),
        ]
        with failpoints.arm(point, failpoints.once(pause)):
            applying = Thread(target=attempt, args=[lambda: graph.apply_schema(schema)])
            applying.start()
            pause.wait_until_reached()
            for writer in writers:
                writer.start()
            pause.resume()
            for thread in (applying, *writers):
                thread.join()
    assert len(outcomes) == 3
    assert list(graph.schema.nodes) == [schema.split()[1]]
    if "P" in graph.schema.nodes:
        assert not [found for found in outcomes if isinstance(found, Exception)]
        rows = sorted((row["k"], row["a"]) for row in graph.snapshot().rows("P").to_pylist())
        assert rows == [("x", 1), ("y", 2)]
    else:
        refused = [found for found in outcomes if isinstance(found, errors.OmnigraphError)]
        compiled = [found for found in refused if isinstance(found, errors.TypeCheckError)]
        assert (len(refused), len(compiled)) == (2, 1)
        (loaded,) = set(refused) - set(compiled)
        assert isinstance(loaded, errors.LoadRejected) or loaded.retryable


def test_a_write_beside_a_change_that_died_before_its_files_were_in_place(graph: Graph) -> None:
    """The new property is visible, and the schema files do not know it yet."""
    point = failpoints.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT
    failing = failpoints.arm(point, failpoints.error(point))
    with og.open(graph.uri) as other:
        with failing, pytest.raises(errors.RecoveryRequired):
            graph.apply_schema(NEW)
        other.mutate('query q() { insert P { k: "x", b: 1 } }')
        assert other.snapshot().rows("P").to_pylist() == [{"id": "x", "k": "x", "b": 1}]
    assert graph.schema_source == NEW
