"""Rows that replace others in two versions leave the table as one version would have, row ids and all."""

from __future__ import annotations

import json
from bisect import bisect_left
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lance.fragment import RowDatasetVersionMeta

from omnigraph.errors import StorageFailure
from omnigraph.storage import upsert as upserting
from omnigraph.storage.blobs import blob_field, to_writable
from omnigraph.storage.delta import CREATED_AT, UPDATED_AT, Delta
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.forks import Forks
from omnigraph.storage.indexes import IndexSpec, read_coverage, stage_indexes
from omnigraph.storage.location import Location
from omnigraph.storage.staging import Counts, Staged, commit_staged, stage_append, stage_delete
from omnigraph.storage.stores import open_store
from omnigraph.storage.tables import Table, Tables
from omnigraph.storage.upkeep import compact
from omnigraph.storage.upsert import encode_row_versions, stage_upsert

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("age", pa.int64())])
CHANGES = [["p8", "new", "p250", "p120"], ["p9", "p8", "p7"], ["new"], ["p1"], ["x", "y"]]


@pytest.fixture(autouse=True)
def _every_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upserting, "_LARGE", 1)


def people(ids: range | list[str], age: int) -> pa.Table:
    names = [one if isinstance(one, str) else f"p{one}" for one in ids]
    return pa.table({"id": names, "age": [age] * len(names)}, schema=SCHEMA)


def create_table(at: Location) -> Table:
    """Three fragments with an index on ids, of which the first has lost a row."""
    table = Tables().create(at, SCHEMA, primary_key="id")
    for start in (0, 100, 200):
        table = commit_staged(stage_append(table, people(range(start, start + 100), 0)))
    table = commit_staged(stage_indexes(table, [IndexSpec("id", "BTREE", "id_idx")]))
    return commit_staged(stage_delete(table, pa.array(["p7"])))


def commit_both(staged: Staged) -> Table:
    table = commit_staged(staged)
    return table if staged.second_phase is None else commit_staged(staged.second_phase(table))


def content(table: Table) -> list[dict[str, object]]:
    rows = table.scan(["id", "age", "_rowid", CREATED_AT, UPDATED_AT]).sort_by("id")
    found: list[dict[str, object]] = rows.to_pylist()
    return found


def change_table(table: Table, number: int, *, allow_two_versions: bool) -> Table:
    staged = stage_upsert(table, people(CHANGES[number], number + 1), allow_two_versions=allow_two_versions)
    known = {row["id"] for row in content(table)}
    wanted = set(CHANGES[number])
    assert staged.counts == Counts(len(wanted - known), len(wanted & known), 0)
    assert (staged.second_phase is not None) == (allow_two_versions and not known.isdisjoint(wanted))
    return commit_both(staged)


class Course:
    """A table that goes through all changes, in one way or the other."""

    def __init__(self, root: Location, *, allow_two_versions: bool, forked: bool) -> None:
        self.begin = self.end = create_table(root / "people")
        if forked:
            self.begin = self.end = Forks(Tables(), open_store(root)).create(self.begin, "work")
        self.versions = [self.begin.version]
        for number in range(len(CHANGES)):
            self.end = change_table(self.end, number, allow_two_versions=allow_two_versions)
            self.versions.append(self.end.version)

    @property
    def steps(self) -> list[int]:
        return [after - before for before, after in pairwise(self.versions)]

    def rows(self) -> list[dict[str, object]]:
        """By id, with the number of the change that made a row and of the one that wrote it last."""
        found = content(self.end)
        assert content(compact(self.end).table) == found
        return [
            {**row, **{name: self._change(row[name]) for name in (CREATED_AT, UPDATED_AT)}} for row in found
        ]

    def _change(self, version: object) -> int:
        assert isinstance(version, int)
        return bisect_left(self.versions, version)

    def delta(self) -> list[list[str]]:
        delta = Delta(self.begin, self.end)
        assert delta.deleted_row_ids().to_pylist() == []
        return [sorted(part["id"].to_pylist()) for part in (delta.inserted(), delta.updated())]


@pytest.mark.parametrize("forked", [False, True], ids=["main", "branch"])
def test_both_ways_lead_to_the_same_rows(tmp_path: Path, forked: bool) -> None:
    one, two = (
        Course(
            Location.parse(tmp_path / str(allow_two_versions)),
            allow_two_versions=allow_two_versions,
            forked=forked,
        )
        for allow_two_versions in (False, True)
    )
    assert (one.steps, two.steps) == ([1, 1, 1, 1, 1], [2, 2, 2, 2, 1])
    covered = [read_coverage(course.end)["id_idx"].covered for course in (one, two)]
    assert covered == [frozenset({0, 1, 2})] * 2
    assert one.delta() == two.delta() == [["new", "p7", "x", "y"], ["p1", "p120", "p250", "p8", "p9"]]
    rows = two.rows()
    # Rows that are added have other numbers: those that rows which replace others had at first are lost.
    assert [{**row, "_rowid": None} for row in one.rows()] == [{**row, "_rowid": None} for row in rows]
    assert len({row["_rowid"] for row in rows}) == len(rows)
    numbers = {row["id"]: row["_rowid"] for row in rows}
    assert {row["id"]: row["_rowid"] for row in content(two.begin)}.items() <= numbers.items()


def test_keys_and_row_ids_are_found_in_what_took_over(tmp_path: Path) -> None:
    table = create_table(Location.parse(tmp_path) / "people")
    ids = {str(row["id"]): row["_rowid"] for row in content(table)}
    replaced = pa.array([ids["p250"], None, ids["p1"]], pa.uint64())
    staged = stage_upsert(table, people(["p250", "new", "p1"], 5), replaced=replaced, allow_two_versions=True)
    between = commit_staged(staged)
    # Whatever is remembered of the version between must not be taken for the last one.
    assert between.scan(["id", "_rowid"], where="age = 5").num_rows == 3
    assert between.take([ids["p250"]], ["age"]).to_pylist() == [{"age": 0}]
    assert staged.second_phase is not None
    after = commit_staged(staged.second_phase(between))
    assert after.take([ids["p250"], ids["p1"]], ["id", "age"]).to_pylist() == [
        {"id": "p250", "age": 5},
        {"id": "p1", "age": 5},
    ]
    assert after.scan(["age"], where="id in ('p1', 'new', 'p2')").to_pylist() == [
        {"age": 0},
        {"age": 5},
        {"age": 5},
    ]
    assert after.count() == table.count() + 1


def test_a_rival_between_the_two_versions_stops_the_second(tmp_path: Path) -> None:
    table = create_table(Location.parse(tmp_path) / "people")
    staged = stage_upsert(table, people(["p1"], 5), allow_two_versions=True)
    between = commit_staged(staged)
    assert staged.second_phase is not None
    second = staged.second_phase(between)
    commit_staged(stage_append(between, people(["rival"], 1)))
    with pytest.raises(StorageFailure) as caught:
        commit_staged(second)
    assert caught.value.kind == TableFailureKind.MOVED


def test_blobs_of_replaced_rows_come_along(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), blob_field("photo", nullable=True)])

    def photos(**given: bytes) -> pa.Table:
        plain = pa.table({"id": list(given), "photo": pa.array(list(given.values()), pa.large_binary())})
        return to_writable(plain, schema)

    table = Tables().create(Location.parse(tmp_path) / "people", schema, primary_key="id")
    table = commit_staged(stage_append(table, photos(ann=b"a", bob=b"b")))
    after = commit_both(stage_upsert(table, photos(new=b"n", bob=b"B" * 100_000), allow_two_versions=True))
    rows = after.native.scanner(blob_handling="all_binary").to_table()
    found = dict(zip(rows["id"].to_pylist(), rows["photo"].to_pylist(), strict=True))
    assert found == {"ann": b"a", "bob": b"B" * 100_000, "new": b"n"}


@pytest.mark.parametrize("reason", ["small", "many", "not allowed"])
def test_one_version_is_enough_where_a_second_would_not_pay(
    tmp_path: Path, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create_table(Location.parse(tmp_path) / "people")
    if reason == "small":
        monkeypatch.setattr(upserting, "_LARGE", 300)
    ids = range(150) if reason == "many" else ["p1"]
    assert (
        stage_upsert(table, people(ids, 5), allow_two_versions=reason != "not allowed").second_phase is None
    )


@pytest.mark.s3
def test_in_a_bucket_one_version_is_enough(s3_root: Location) -> None:
    table = create_table(s3_root / "people")
    assert stage_upsert(table, people(["p1"], 5), allow_two_versions=True).second_phase is None


@settings(max_examples=50)
@given(st.lists(st.integers(1, 2**64 - 1), min_size=1, max_size=40))
@example([1] * 200 + [2])
@example([127, 128, 16_383, 16_384, 2**64 - 1])
def test_versions_of_rows_are_written_in_runs_that_lance_reads(versions: list[int]) -> None:
    meta = encode_row_versions(np.array(versions, np.uint64))
    assert isinstance(meta, RowDatasetVersionMeta)
    assert _read(bytes(json.loads(meta.json())["inline"])) == versions


def _read(body: bytes) -> list[int]:
    """The versions in a sequence of runs, read with nothing of what wrote them."""
    found: list[int] = []
    for run in _fields(body)[1]:
        fields = _fields(run)
        rows = _fields(_fields(fields[1][0])[1][0])
        start, end = rows.get(1, [0])[0], rows[2][0]
        assert start == len(found)
        found += [fields[2][0]] * (end - start)
    return found


def _fields(body: bytes) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = body[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(body):
        key = number()
        value: Any = number()
        if key & 7 == 2:
            value, at = body[at : at + value], at + value
        found.setdefault(key >> 3, []).append(value)
    return found
