"""Loads that change only the properties they give, against a model that knows nothing but dictionaries."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph
from omnigraph import failpoints
from omnigraph.engine.load import loader, stored_remainder
from omnigraph.errors import BadRequest, LoadRejected, NotFound, TableVersionConflict
from omnigraph.graph import Graph
from tests.examples import EXAMPLES

SCHEMA = """
node Person {
  slug: String @key
  email: String? @unique
  age: I32?
  role: String
  spot: Vector(2)?
  tags: [String]?
  photo: Blob?
}
node Note { text: String? }
edge Knows: Person -> Person { since: I32?  how: String? }
"""
PEOPLE = {
    f"p{at}": {
        "email": f"{at}@x",
        "age": at,
        "role": "dev",
        "spot": [at, 1.0],
        "tags": ["a"],
        "photo": "base64:AAEC",
    }
    for at in range(4)
}
STORED: list[dict[str, Any]] = [
    *({"type": "Person", "data": {"slug": slug, **data}} for slug, data in PEOPLE.items()),
    {"edge": "Knows", "from": "p0", "to": "p1", "data": {"id": "k0", "since": 1, "how": "x"}},
    {"edge": "Knows", "from": "p1", "to": "p2", "data": {"id": "k1"}},
    {"type": "Note", "data": {"id": "n0", "text": "t"}},
]


def _write(at: Path, records: list[dict[str, Any]]) -> Path:
    at.write_text("".join(json.dumps(record) + "\n" for record in records))
    return at


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """A graph with some rows; tests write to branches of it."""
    folder = tmp_path_factory.mktemp("patches")
    with omnigraph.init(folder / "graph", schema=SCHEMA) as made:
        made.load(_write(folder / "stored.jsonl", STORED), mode="append")
        yield made


@pytest.fixture(params=["memory", "pieces"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """A load in memory, and one whose rows wait in pieces."""
    with patch.object(loader, "PATCH_IN_MEMORY", 8 << 20 if request.param == "memory" else -1):
        yield request.param


@pytest.fixture
def branch(graph: Graph) -> str:
    """A branch of its own for each test."""
    name = f"b{len(graph.branches)}"
    graph.branches.create(name)
    return name


def _rows(graph: Graph, branch: str, name: str) -> dict[str, dict[str, Any]]:
    found = graph.snapshot(branch).rows(name).to_pylist()
    return {row.pop("id"): row for row in found}


def test_only_given_properties_change(graph: Graph, branch: str, tmp_path: Path, way: str) -> None:
    records = [
        {"type": "Person", "data": {"slug": "p0", "age": 50}},
        {"type": "Person", "data": {"slug": "p1", "tags": None, "spot": [7, 8]}},
        {"type": "Person", "data": {"slug": "p2"}},
        {"edge": "Knows", "data": {"id": "k0", "since": None}},
        {"edge": "Knows", "from": "p3", "to": "p1", "data": {"id": "k1", "how": "y"}},
        {"type": "Note", "data": {"id": "n0", "text": "u"}},
    ]
    done = graph.load(_write(tmp_path / "p.jsonl", records), mode="patch", branch=branch)
    assert (dict(done.nodes), dict(done.edges)) == ({"Note": 1, "Person": 3}, {"Knows": 2})
    people = _rows(graph, branch, "Person")
    assert people["p0"] == {
        "slug": "p0",
        "email": "0@x",
        "age": 50,
        "role": "dev",
        "spot": [0, 1],
        "tags": ["a"],
    }
    assert people["p1"] == {
        "slug": "p1",
        "email": "1@x",
        "age": 1,
        "role": "dev",
        "spot": [7, 8],
        "tags": None,
    }
    assert people["p2"] == _rows(graph, "main", "Person")["p2"]
    assert _rows(graph, branch, "Knows") == {
        "k0": {"src": "p0", "dst": "p1", "since": None, "how": "x"},
        "k1": {"src": "p3", "dst": "p1", "since": None, "how": "y"},
    }
    assert _rows(graph, branch, "Note") == {"n0": {"text": "u"}}


def test_blobs_that_are_not_given_stay(graph: Graph, branch: str, tmp_path: Path, way: str) -> None:
    records = [
        {"type": "Person", "data": {"slug": "p0", "age": 50}},
        {"type": "Person", "data": {"slug": "p1", "photo": "base64:/w=="}},
        {"type": "Person", "data": {"slug": "p2", "photo": None}},
    ]
    graph.load(_write(tmp_path / "p.jsonl", records), mode="patch", branch=branch)
    now = graph.snapshot(branch)
    found = {slug: now.blob("Person", slug, "photo").read() for slug in ("p0", "p1", "p3")}
    assert found == {"p0": b"\0\1\2", "p1": b"\xff", "p3": b"\0\1\2"}
    with pytest.raises(NotFound):
        now.blob("Person", "p2", "photo")


def test_columns_of_files_and_frames_say_what_changes(
    graph: Graph, branch: str, tmp_path: Path, way: str
) -> None:
    (tmp_path / "Person.csv").write_text("slug,age\np0,9\np1,\n")
    graph.load(tmp_path / "Person.csv", mode="patch", branch=branch)
    pq.write_table(pa.table({"slug": ["p2"], "role": ["ops"]}), tmp_path / "Person.parquet")
    graph.load(tmp_path / "Person.parquet", mode="patch", branch=branch)
    graph.load(
        pa.table({"login": ["p3"]}),
        type="Person",
        mode="patch",
        branch=branch,
        mapping={"key": "login", "constants": {"age": 77}},
    )
    found = {slug: (row["age"], row["role"]) for slug, row in _rows(graph, branch, "Person").items()}
    assert found == {"p0": (9, "dev"), "p1": (None, "dev"), "p2": (2, "ops"), "p3": (77, "dev")}


def test_each_dictionary_says_what_it_changes(graph: Graph, branch: str, way: str) -> None:
    rows = [{"slug": "p0", "age": 7}, {"slug": "p1", "role": "ops"}, {"slug": "p2", "age": None}]
    graph.load(rows, type="Person", mode="patch", branch=branch)
    graph.load({"Person": iter([{"slug": "p3", "age": 8}])}, mode="patch", branch=branch)
    found = {slug: (row["age"], row["role"]) for slug, row in _rows(graph, branch, "Person").items()}
    assert found == {"p0": (7, "dev"), "p1": (1, "ops"), "p2": (None, "dev"), "p3": (8, "dev")}


def test_rows_are_counted_as_they_were_passed(graph: Graph, branch: str, way: str) -> None:
    rows = [{"slug": "p0", "age": 7}, {"slug": "p1", "role": "ops"}, {"slug": "new", "age": 1}]
    with pytest.raises(LoadRejected) as refused:
        graph.load(rows, type="Person", mode="patch", branch=branch)
    assert [str(one) for one in refused.value.violations] == [
        "<rows of Person>: row 3: Person 'new' does not exist, and a patch adds no rows"
    ]


def test_what_is_not_stored_is_rejected_or_skipped(
    graph: Graph, branch: str, tmp_path: Path, way: str
) -> None:
    records = [
        {"type": "Person", "data": {"slug": "zoe", "age": 1}},
        {"type": "Person", "data": {"slug": "p0", "age": 1}},
        {"edge": "Knows", "data": {"id": "k9"}},
        {"type": "Person", "data": {"slug": "p0", "age": 2}},
        {"edge": "Knows", "data": {"id": "k0", "since": 3}},
        {"edge": "Knows", "data": {"id": "k0"}},
    ]
    file = _write(tmp_path / "p.jsonl", records)
    expected = [
        "1: Person 'zoe' does not exist, and a patch adds no rows",
        "3: Knows 'k9' does not exist, and a patch adds no rows",
        "4: @unique violation on Person.slug: value 'p0' held by 'p0' and 'p0'",
        "6: @unique violation on Knows.id: value 'k0' is in several records",
    ]
    with pytest.raises(LoadRejected) as refused:
        graph.load(file, mode="patch", branch=branch)
    assert [str(one).removeprefix(f"{file}:") for one in refused.value.violations] == expected
    assert refused.value.summary().startswith("4 violations: 2 missing, 2 unique")
    done = graph.load(file, mode="patch", branch=branch, skip_bad=True)
    assert [str(one).removeprefix(f"{file}:") for one in done.skipped] == expected
    assert dict(done.skipped_counts) == {"missing": 2, "unique": 2}
    assert (dict(done.nodes), dict(done.edges)) == ({"Person": 1}, {"Knows": 1})
    assert _rows(graph, branch, "Person")["p0"]["age"] == 1
    assert _rows(graph, branch, "Knows")["k0"]["since"] == 3


def test_rules_are_about_the_rows_that_come_out(graph: Graph, branch: str, tmp_path: Path, way: str) -> None:
    wrong = {
        "null in a required property": (
            {"type": "Person", "data": {"slug": "p0", "role": None}},
            "non-nullable",
        ),
        "the value of another row": ({"type": "Person", "data": {"slug": "p0", "email": "1@x"}}, "@unique"),
        "an end that is not there": (
            {"edge": "Knows", "to": "zoe", "data": {"id": "k0"}},
            "dst 'zoe' not found",
        ),
        "no key": ({"type": "Person", "data": {"age": 1}}, "non-nullable property 'slug'"),
        "no id": ({"edge": "Knows", "data": {"since": 1}}, "a patch of 'Knows' requires field 'id'"),
        "an unknown property": (
            {"type": "Person", "data": {"slug": "p0", "x": 1}},
            "unknown input field 'x'",
        ),
    }
    for why, (record, reason) in wrong.items():
        with pytest.raises(LoadRejected, match=reason):
            graph.load(_write(tmp_path / f"{why}.jsonl", [record]), mode="patch", branch=branch)
    swapped = [
        {"type": "Person", "data": {"slug": "p0", "email": "1@x"}},
        {"type": "Person", "data": {"slug": "p1", "email": "0@x"}},
    ]
    graph.load(_write(tmp_path / "p.jsonl", swapped), mode="patch", branch=branch)
    assert _rows(graph, branch, "Person")["p0"]["email"] == "1@x"


def test_a_file_needs_what_identifies_its_rows(graph: Graph) -> None:
    with pytest.raises(LoadRejected, match="a patch of 'Person' requires a column 'slug'"):
        graph.load(pa.table({"age": [1]}), type="Person", mode="patch")
    with pytest.raises(LoadRejected, match="a patch of 'Knows' requires a column 'id'"):
        graph.load(pa.table({"from": ["p0"], "to": ["p1"]}), type="Knows", mode="patch")


def test_a_patch_fails_when_a_rival_changed_its_table(graph: Graph, branch: str, way: str) -> None:
    def patch_row(age: int, **options: Any) -> None:
        graph.load([{"slug": "p0", "age": age}], type="Person", mode="patch", branch=branch, **options)

    def be_faster() -> None:
        rival.mutate('query q() { update Person set { role: "boss" } where slug = "p0" }', branch=branch)

    gate = failpoints.MUTATION_POST_STAGE_PRE_EFFECT_GATE
    with omnigraph.open(graph.uri) as rival:
        with failpoints.arm(gate, failpoints.once(be_faster)), pytest.raises(TableVersionConflict):
            patch_row(60)
        with failpoints.arm(gate, failpoints.once(be_faster)):
            patch_row(61, retry=1)
    found = _rows(graph, branch, "Person")["p0"]
    assert (found["age"], found["role"]) == (61, "boss")


def test_retries_are_for_patches(graph: Graph) -> None:
    with pytest.raises(BadRequest, match="mode 'patch'"):
        graph.load([{"slug": "p0"}], type="Person", mode="merge", retry=1)


# --- any patch ------------------------------------------------------------------------------------

_SLUGS = st.sampled_from(["p0", "p1", "p2", "p3", "zoe"])
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "email": st.none() | st.sampled_from(["0@x", "1@x", "n@x"]),
    "age": st.none() | st.integers(0, 5),
    "role": st.sampled_from(["dev", "ops"]),
    "spot": st.none() | st.just([5.0, 6.0]),
    "tags": st.none() | st.lists(st.sampled_from("ab"), max_size=2),
}
_PATCHES = st.lists(st.tuples(_SLUGS, st.fixed_dictionaries({}, optional=_VALUES)), min_size=1, max_size=6)


def _model(
    before: dict[str, dict[str, Any]], rows: list[tuple[str, dict[str, Any]]]
) -> dict[str, Any] | None:
    """What comes out; None when the patch cannot be."""
    slugs = [slug for slug, _ in rows]
    if len(set(slugs)) < len(slugs) or not set(slugs) <= before.keys():
        return None
    after = {slug: {**row, **dict(rows).get(slug, {})} for slug, row in before.items()}
    emails = Counter(row["email"] for row in after.values() if row["email"] is not None)
    return None if any(times > 1 for times in emails.values()) else after


@settings(
    max_examples=max(40, EXAMPLES // 5),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rows=_PATCHES, form=st.sampled_from(["lines", "dictionaries"]), in_pieces=st.booleans())
def test_any_patch_does_what_assigning_members_does(
    graph: Graph, tmp_path: Path, rows: list[tuple[str, dict[str, Any]]], form: str, in_pieces: bool
) -> None:
    name = f"model-{len(graph.branches)}"
    graph.branches.create(name)
    before = _rows(graph, name, "Person")
    expected = _model(before, rows)
    flat = [{"slug": slug, **values} for slug, values in rows]
    data: Any = (
        flat
        if form == "dictionaries"
        else _write(tmp_path / "p.jsonl", [{"type": "Person", "data": one} for one in flat])
    )
    how: dict[str, Any] = {"type": "Person"} if form == "dictionaries" else {}
    with (
        patch.object(loader, "PATCH_IN_MEMORY", -1 if in_pieces else 1 << 20),
        patch.object(stored_remainder, "_BLOBS_AT_ONCE", 2),
    ):
        try:
            graph.load(data, mode="patch", branch=name, **how)
        except LoadRejected:
            assert expected is None
            expected = before
    assert _rows(graph, name, "Person") == expected
    graph.branches.delete(name)
