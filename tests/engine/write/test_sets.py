"""Rules about whole changes: of loads, and of what mutations leave behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.engine.constraints.change_rules import LoadCheckResult, check_load, check_mutation
from omnigraph.engine.constraints.duplicates import Mode
from omnigraph.engine.constraints.faults import build_rejection, to_violations
from omnigraph.engine.constraints.stored_rows import StoredTables
from omnigraph.engine.constraints.table_change import TableChange
from omnigraph.engine.rows.ids import generate_ids
from omnigraph.engine.write.pending_rows import build_edges, build_nodes
from omnigraph.errors import ConstraintViolation, KeyConflict, LoadRejected
from omnigraph.lang.source import shorten
from omnigraph.storage.location import Location
from omnigraph.storage.tables import Tables
from tests.engine.write.support import (
    SCHEMA,
    InMemory,
    edge,
    fixture_lines,
    lines,
    load_rows,
    node,
)

STORED = InMemory.of(fixture_lines() + lines(node("Log", msg="old", id="l1")))
Problems = list[tuple[int | None, str]]


def load(
    mode: str, *records: object, stored: InMemory = STORED, schema: str = SCHEMA, skip_bad: bool = False
) -> tuple[LoadCheckResult, Problems]:
    """What the checks of a load say, with lines."""
    rows = load_rows(lines(*records), schema, size=64)
    found = check_load(rows, Mode(mode), stored.targets, stored, skip_bad=skip_bad)
    origins = {key: part.origins for key, part in rows.items()}
    violations = tuple(to_violations(found.faults, origins))
    return found, [(wrong.line, wrong.reason) for wrong in violations]


def ids(found: LoadCheckResult, key: str) -> list[str]:
    return found.changes[key].ids.to_pylist()  # type: ignore[no-any-return]


KIM = node("Person", handle="kim")


@pytest.mark.parametrize(
    ("mode", "records", "expected"),
    [
        ("append", [KIM, edge("mentors", "kim", "ada")], []),
        ("append", [edge("mentors", "kim", "ada"), KIM], []),
        (
            "append",
            [KIM, node("Person", handle="ada"), edge("Mentors", "ada", "bo", id="m1")],
            [(2, "node type 'Person' already has id 'ada'"), (3, "edge type 'Mentors' already has id 'm1'")],
        ),
        ("append", [node("Log", id="l1", msg="x")], [(1, "node type 'Log' already has id 'l1'")]),
        (
            "append",
            [edge("MemberOf", "bo", "core", id="n1"), edge("MemberOf", "bo", "infra", id="n1")],
            [(2, "edge type 'MemberOf' already has id 'n1'")],
        ),
        (
            "overwrite",
            [node("Log", id="l1", msg="x"), node("Log", id="l1", msg="y")],
            [(2, "node type 'Log' already has id 'l1'")],
        ),
        *(
            (
                mode,
                [KIM, node("Person", handle="lu"), KIM, KIM],
                [
                    (3, "@unique violation on Person.handle: value 'kim' held by 'kim' and 'kim'"),
                    (4, "@unique violation on Person.handle: value 'kim' held by 'kim' and 'kim'"),
                ],
            )
            for mode in ("append", "merge", "overwrite")
        ),
        (
            "merge",
            [node("Person", handle="eve", email="a@x"), node("Person", handle="zed", email="a@x")],
            [
                (1, "@unique violation on Person.email: value 'a@x' held by 'ada' and 'eve'"),
                (2, "@unique violation on Person.email: value 'a@x' held by 'ada' and 'zed'"),
            ],
        ),
        ("merge", [node("Person", handle="ada"), node("Person", handle="eve", email="a@x")], []),
        ("merge", [node("Person", handle="ada", email="a@x")], []),
        (
            "append",
            [node("Person", handle="eve", email="e"), node("Person", handle="zed", email="e")],
            [(2, "@unique violation on Person.email: value 'e' held by 'eve' and 'zed'")],
        ),
        (
            "append",
            [edge("Mentors", "missing", "ada"), edge("Mentors", "ada", "none"), edge("Mentors", "x", "y")],
            [
                (1, "src 'missing' not found in Person"),
                (2, "dst 'none' not found in Person"),
                (3, "src 'x' not found in Person"),
                (3, "dst 'y' not found in Person"),
            ],
        ),
        (
            "overwrite",
            [node("Person", handle="ada"), node("Person", handle="bo"), node("Person", handle="dee")],
            [(None, f"{end} 'cy' not found in Person") for end in ("src", "dst", "dst")],
        ),
        ("overwrite", [node("Log", msg="new")], []),
        (
            "append",
            [edge("MemberOf", "bo", "infra"), edge("MemberOf", "ada", "core")],
            [(2, "@card violation on edge MemberOf: source 'ada' has 3 edges (max 2)")],
        ),
        ("merge", [edge("MemberOf", "ada", "core", id="b2")], []),
        (
            "merge",
            [edge("MemberOf", "ada", "core", id="b3")],
            [(1, "@card violation on edge MemberOf: source 'ada' has 3 edges (max 2)")],
        ),
        ("overwrite", [edge("MemberOf", "ada", "core"), edge("MemberOf", "ada", "infra")], []),
    ],
)
def test_a_load_tells_every_breach_of_its_first_bad_stage(
    mode: str, records: list[dict[str, Any]], expected: Problems
) -> None:
    found, violations = load(mode, *records)
    assert sorted(violations, key=str) == sorted(expected, key=str)
    assert [line for line, _ in violations] == [line for line, _ in expected]
    assert (found.changes == {}) is bool(expected)


def test_the_last_row_with_an_explicit_id_wins_a_merge_and_the_others_take_no_part() -> None:
    found, problems = load(
        "merge",
        edge("memberof", "bo", "nowhere", id="n1"),
        edge("memberof", "bo", "core", id="n1"),
        edge("memberof", "bo", "infra", id="n1"),
    )
    assert problems == []
    rows = found.changes["edge:MemberOf"].rows
    assert rows.select(["id", "src", "dst"]).to_pylist() == [{"id": "n1", "src": "bo", "dst": "infra"}]


def test_a_stage_with_breaches_hides_the_later_ones() -> None:
    bad_end, bad_email = edge("Mentors", "x", "ada"), node("Person", handle="eve", email="a@x")
    assert [line for line, _ in load("append", bad_end, bad_email)[1]] == [2]
    assert [line for line, _ in load("append", bad_end, bad_email, KIM, KIM)[1]] == [4]
    assert [line for line, _ in load("append", bad_end, edge("MemberOf", "ada", "core"))[1]] == [1]


def test_overwrite_replaces_the_types_of_the_file_and_no_others() -> None:
    found, _ = load("overwrite", node("Log", id="l2", msg="new"))
    (change,) = found.changes.values()
    assert (change.target.key, change.replaces, change.deleted.to_pylist()) == ("node:Log", True, ["l1"])


def test_a_rejected_load_is_an_error_with_places() -> None:
    rows = load_rows(lines(KIM, edge("Mentors", "x", "y")))
    checked = check_load(rows, Mode.APPEND, STORED.targets, STORED)
    origins = {key: part.origins for key, part in rows.items()}
    error = build_rejection(checked.faults, origins, 1)
    assert isinstance(error, LoadRejected)
    assert (str(error), error.total) == ("in.ndjson:2: src 'x' not found in Person", 2)
    entity = rows["edge:Mentors"].rows.column("id")[0].as_py()
    assert error.to_json()["data"]["violations"] == [
        {
            "file": "in.ndjson",
            "line": 2,
            "entity": f"edge:Mentors '{entity}'",
            "reason": "src 'x' not found in Person",
        }
    ]


def test_long_values_are_cut_in_messages_and_whole_in_the_entity() -> None:
    long = "é" * 61
    rows = load_rows(lines(edge("Mentors", long, "ada", id=long)))
    checked = check_load(rows, Mode.APPEND, STORED.targets, STORED)
    (violation,) = to_violations(checked.faults, {key: part.origins for key, part in rows.items()})
    assert violation.reason == f"src '{'é' * 60}…' not found in Person"
    assert violation.entity == f"edge:Mentors '{long}'"
    assert shorten(long) == f"{'é' * 60}…"


def test_a_stored_id_in_an_append_is_a_conflict() -> None:
    rows = load_rows(lines(KIM, node("Person", handle="bo"), node("Person", handle="ada")))
    checked = check_load(rows, Mode.APPEND, STORED.targets, STORED)
    error = build_rejection(checked.faults, {key: part.origins for key, part in rows.items()}, 10)
    assert isinstance(error, KeyConflict)
    assert (error.entity_kind, error.type_name, error.entity_id) == ("node", "Person", "bo")
    assert error.data()["total"] == 2


TASKS = """
node A { k: String @key  n: I32?  x: F64?  @unique(n, x) }
edge E: A -> A @card(1..2) { tag: String?  @unique(src, dst) }
edge F: A -> A
"""
A_AND_EDGES = InMemory.of(
    lines(
        *(node("A", k=name, n=at, x=0.5) for at, name in enumerate("abcd")),
        edge("E", "a", "b", id="e1"),
        edge("E", "b", "c", id="e2"),
        edge("E", "b", "d", id="e3"),
        edge("F", "a", "a", id="f1"),
    ),
    TASKS,
)


def test_tuples_are_reported_with_their_columns_sorted_and_nulls_are_exempt() -> None:
    _, problems = load(
        "append",
        node("A", k="n1", n=0, x=0.5),
        node("A", k="n2", n=7, x=0.0),
        node("A", k="n3", n=7, x=-0.0),
        node("A", k="n4", n=7),
        node("A", k="n5", n=7),
        edge("E", "a", "b"),
        stored=A_AND_EDGES,
        schema=TASKS,
    )
    assert problems[:2] == [
        (1, "@unique violation on A.(n, x): value '(0, 0.5)' held by 'a' and 'n1'"),
        (3, "@unique violation on A.(n, x): value '(7, 0)' held by 'n2' and 'n3'"),
    ]
    assert [(line, reason[:60]) for line, reason in problems[2:]] == [
        (6, "@unique violation on E.(dst, src): value '(b, a)' held by 'e")
    ]


@pytest.mark.parametrize(
    ("mode", "records", "expected"),
    [
        (
            "overwrite",
            [edge("E", "a", "d")],
            [(None, "@card violation on edge E: source 'b' has 0 edges (min 1)")],
        ),
        (
            "merge",
            [edge("E", "b", "a", id="e1")],
            [
                (1, "@card violation on edge E: source 'b' has 3 edges (max 2)"),
                (None, "@card violation on edge E: source 'a' has 0 edges (min 1)"),
            ],
        ),
        ("merge", [edge("E", "c", "a", id="e2")], []),
        ("append", [node("A", k="w")], []),
        (
            "append",
            [edge("E", "b", x, id=x) for x in "ab"],
            [
                (1, "@card violation on edge E: source 'b' has 4 edges (max 2)"),
                (2, "@card violation on edge E: source 'b' has 4 edges (max 2)"),
            ],
        ),
        (
            "append",
            [edge("E", "a", x) for x in "acd"],
            [
                (2, "@card violation on edge E: source 'a' has 4 edges (max 2)"),
                (3, "@card violation on edge E: source 'a' has 4 edges (max 2)"),
            ],
        ),
    ],
)
def test_cardinality_counts_gained_moved_and_lost_edges(
    mode: str, records: list[Any], expected: Problems
) -> None:
    assert load(mode, *records, stored=A_AND_EDGES, schema=TASKS)[1] == expected


def test_skipping_bad_rows_keeps_the_first_and_what_does_not_depend_on_the_others() -> None:
    found, problems = load(
        "append",
        KIM,
        KIM,
        node("Person", handle="ada"),
        node("Person", handle="eve", email="e"),
        node("Person", handle="zed", email="e"),
        node("Person", handle="max", email="a@x"),
        edge("Mentors", "kim", "zed", id="gone"),
        edge("Mentors", "kim", "eve", id="kept"),
        edge("MemberOf", "bo", "infra", id="second"),
        edge("MemberOf", "bo", "infra", id="third"),
        skip_bad=True,
    )
    assert problems == []
    assert ids(found, "node:Person") == ["kim", "eve"]
    assert ids(found, "edge:Mentors") == ["kept"]
    assert ids(found, "edge:MemberOf") == ["second"]
    assert sorted(row for faults in found.dropped for row in faults.rows.tolist()) == [0, 1, 1, 2, 4, 5]


def test_leaving_out_a_row_brings_back_what_it_would_have_released() -> None:
    """`ada` keeps `a@x` because her own new row is bad, so `eve` cannot have it."""
    found, problems = load(
        "merge",
        node("Person", handle="bo", email="b"),
        node("Person", handle="ada", email="b"),
        node("Person", handle="eve", email="a@x"),
        skip_bad=True,
    )
    assert (problems, ids(found, "node:Person")) == ([], ["bo"])


@pytest.mark.parametrize(
    ("mode", "records"),
    [("overwrite", [edge("E", "a", "d")]), ("overwrite", [node("A", k="a")])],
)
def test_what_leaving_out_rows_cannot_fix_fails_all_the_same(mode: str, records: list[Any]) -> None:
    found, problems = load(mode, *records, stored=A_AND_EDGES, schema=TASKS, skip_bad=True)
    assert problems
    assert found.changes == {}


# --- mutations -----------------------------------------------------------------------------------


def changes(
    nodes: Mapping[str, Iterable[Mapping[str, Any]]] | None = None,
    edges: Mapping[str, Iterable[tuple[str, str]]] | None = None,
    deleted: Mapping[str, list[str]] | None = None,
    stored: InMemory = STORED,
) -> dict[str, TableChange]:
    found: dict[str, TableChange] = {}
    for name, values in (nodes or {}).items():
        target, rows = stored.targets[f"node:{name}"], list(values)
        found[target.key] = TableChange(target, build_nodes(target, rows, generate_ids(len(rows), 1)))
    for name, ends in (edges or {}).items():
        target, pairs = stored.targets[f"edge:{name}"], list(ends)
        sources, targets = [a for a, _ in pairs], [b for _, b in pairs]
        new = pa.array([f"new{at}" for at in range(len(pairs))])
        found[target.key] = TableChange(target, build_edges(target, sources, targets, [{}] * len(pairs), new))
    for key, gone in (deleted or {}).items():
        target = stored.targets[key]
        found[key] = TableChange(target, target.schema.empty_table(), pa.chunked_array([gone], pa.string()))
    return found


@pytest.mark.parametrize(
    ("change", "constraint", "message"),
    [
        (
            changes({"Person": [{"handle": "eve", "age": 200}]}),
            "range",
            "@range violation on Person.age: value 200 > max 150",
        ),
        (
            changes({"Person": [{"handle": "Eve"}]}),
            "check",
            "@check violation on Person.handle: value 'Eve' does not match pattern '^[a-z]+$'",
        ),
        (
            changes({"Person": [{"handle": "eve", "role": "boss"}]}),
            "enum",
            "invalid enum value 'boss' for Person.role (expected: dev, lead, ops)",
        ),
        (
            changes({"Person": [{"handle": "eve", "email": "a@x"}]}),
            "unique",
            "@unique violation on Person.email: value 'a@x' held by 'ada' and 'eve'",
        ),
        (
            changes({"Person": [{"handle": x, "email": "same"} for x in ("ada", "dee")]}),
            "unique",
            "@unique violation on Person.email: value 'same' held by 'ada' and 'dee'",
        ),
        (changes(edges={"Mentors": [("ada", "missing")]}), "endpoint", "dst 'missing' not found in Person"),
        (
            changes(edges={"MemberOf": [("ada", "core")]}),
            "cardinality",
            "@card violation on edge MemberOf: source 'ada' has 3 edges (max 2)",
        ),
        (changes(deleted={"node:Person": ["ada"]}), "endpoint", "dst 'ada' not found in Person"),
        (
            changes(deleted={"node:A": ["b"], "edge:E": ["e1", "e2", "e3"]}, stored=A_AND_EDGES),
            "cardinality",
            "@card violation on edge E: source 'a' has 0 edges (min 1)",
        ),
        (
            changes(deleted={"edge:E": ["e1"]}, stored=A_AND_EDGES),
            "cardinality",
            "@card violation on edge E: source 'a' has 0 edges (min 1)",
        ),
    ],
)
def test_a_mutation_fails_with_its_first_breach(
    change: dict[str, TableChange], constraint: str, message: str
) -> None:
    stored = A_AND_EDGES if any(key.endswith((":A", ":E")) for key in change) else STORED
    with pytest.raises(ConstraintViolation) as caught:
        check_mutation(change, stored.targets, stored)
    found = caught.value
    if constraint == "endpoint" and "ada" in message:
        assert found.message in (message, "src 'ada' not found in Person")
    else:
        assert found.message == message
    assert found.constraint == constraint


@pytest.mark.parametrize(
    ("change", "stored"),
    [
        (changes({"Person": [{"handle": "ada", "email": "n"}, {"handle": "eve", "email": "a@x"}]}), STORED),
        (changes({"Person": [{"handle": "zed"}]}, {"Mentors": [("zed", "ada")]}), STORED),
        (changes(deleted={"node:Person": ["dee"], "edge:Mentors": ["m6"]}), STORED),
        (
            changes(deleted={"node:A": ["a"], "edge:E": ["e1"], "edge:F": ["f1"]}, stored=A_AND_EDGES),
            A_AND_EDGES,
        ),
        (changes({"A": [{"k": "w"}]}, stored=A_AND_EDGES), A_AND_EDGES),
    ],
)
def test_a_mutation_that_leaves_everything_in_order_passes(
    change: dict[str, TableChange], stored: InMemory
) -> None:
    check_mutation(change, stored.targets, stored)


def test_a_new_edge_to_a_node_that_goes_has_no_end() -> None:
    change = {
        **changes(edges={"Mentors": [("ada", "dee"), ("ada", "bo")]}),
        **changes(deleted={"node:Person": ["dee"]}),
    }
    with pytest.raises(ConstraintViolation, match="dst 'dee' not found in Person") as caught:
        check_mutation(change, STORED.targets, STORED)
    assert caught.value.entity_id == "new0"


# --- the stored rows of a graph ------------------------------------------------------------------


@pytest.mark.parametrize("per_scan", [8192, 1])
def test_tables_answer_as_rows_in_memory_do(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, per_scan: int
) -> None:
    monkeypatch.setattr("omnigraph.engine.constraints.stored_rows.KEYS_PER_SCAN", per_scan)
    schema = "node P { k: DateTime @key  d: Date?  f: F64?  @unique(d, f) } edge E: P -> P @card(0..1)"
    memory = InMemory.of(
        lines(
            *(node("P", k=at, d=at % 2, f=[0.0, -0.0, 1.5][at % 3]) for at in range(4)),
            edge("E", "0", "1", id="e'1"),
            edge("E", "0", "2", id="e2"),
            edge("E", "1", "2", id="e3"),
        ),
        schema,
    )
    tables = Tables()
    opened = {
        key: tables.create(
            Location.parse(tmp_path / key.replace(":", "-")), rows.schema, primary_key="id", rows=rows
        )
        for key, rows in memory.tables.items()
    }
    stored = StoredTables(opened.__getitem__, memory.targets)
    assert sorted(stored.ids("node:P").to_pylist()) == ["0", "1", "2", "3"]
    assert stored.existing("node:P", pa.array(["1", "3", "9"])).to_pylist() == ["1", "3"]
    assert stored.existing("node:P", pa.array([], pa.string())).to_pylist() == []
    some = pa.array(["e'1", "e3", "x"])
    assert stored.edges("edge:E", some).equals(memory.edges("edge:E", some))
    nodes = pa.array(["2", "5"])
    assert stored.edges_at("edge:E", "dst", nodes).equals(memory.edges_at("edge:E", "dst", nodes))
    for sources in (None, pa.array(["0", "3"])):
        found, wanted = (it.edge_counts("edge:E", sources).sort_by("src") for it in (stored, memory))
        assert found.equals(wanted)
    asked = pa.table({"f": pa.array([-0.0, 9.0])})
    assert {"0", "1", "3"} <= set(stored.holders("node:P", ["f"], asked).column("id").to_pylist())
    _, problems = load("append", node("P", k=9, d=0, f=-0.0), stored=stored, schema=schema)  # type: ignore[arg-type]
    assert problems == [(1, "@unique violation on P.(d, f): value '(0, 0)' held by '0' and '9'")]
