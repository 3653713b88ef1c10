from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.errors import StorageFailure
from omnigraph.storage.delta import CREATED_AT, Delta
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.location import Location
from omnigraph.storage.staging import commit_staged, stage_append, stage_delete, stage_overwrite
from omnigraph.storage.tables import Table, Tables
from omnigraph.storage.upkeep import collect_versions, compact
from omnigraph.storage.upsert import stage_upsert

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("age", pa.int64())])


def people(*ids: str, age: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "age": [age] * len(ids)}, schema=SCHEMA)


def create_table(at: Location, *ids: str) -> Table:
    return commit_staged(stage_append(Tables().create(at, SCHEMA, primary_key="id"), people(*ids)))


def read_changed_ids(begin: Table, end: Table) -> tuple[set[str], set[str], set[str]]:
    delta = Delta(begin, end)
    found = (delta.inserted(), delta.updated(), delta.deleted(["id"]))
    inserted, updated, deleted = (set(rows.column("id").to_pylist()) for rows in found)
    assert at_once(delta) == (inserted, updated), "both ways to ask give the same rows"
    assert delta.deleted_row_ids(len(inserted)).equals(delta.deleted_row_ids().cast(pa.uint64()))
    return inserted, updated, deleted


def at_once(delta: Delta) -> tuple[set[str], set[str]]:
    rows = delta.written(["id"], 1000)
    assert rows is not None
    new = pc.greater(rows.column(CREATED_AT), delta.begin.version)
    inserted, updated = (rows.filter(which).column("id").to_pylist() for which in (new, pc.invert(new)))
    assert len(inserted) + len(updated) == rows.num_rows
    return set(inserted), set(updated)


def change_table(table: Table) -> Table:
    table = commit_staged(stage_upsert(table, people("ann", "new", age=5)))
    return commit_staged(stage_delete(table, pa.array(["bob"])))


def test_delta_tells_inserted_updated_and_deleted_rows(shared_root: Location) -> None:
    begin = create_table(shared_root / "people", "ann", "bob", "cid")
    end = change_table(begin)
    assert read_changed_ids(begin, end) == ({"new"}, {"ann"}, {"bob"})
    assert Delta(begin, end).updated().column("age").to_pylist() == [5]
    assert Delta(begin, end).deleted().to_pylist() == [{"id": "bob", "age": 0}]
    commit_staged(stage_upsert(end, people("ann", age=9)))
    assert Delta(begin, end).updated().column("age").to_pylist() == [5], "values are those of the end"


def test_more_rows_than_wanted_are_not_read_at_once(shared_root: Location) -> None:
    begin = create_table(shared_root / "people", "ann")
    end = commit_staged(stage_append(begin, people("bob", "cid")))
    found = Delta(begin, end).written(["id", "age"], 2)
    assert found is not None
    assert set(found.column("id").to_pylist()) == {"bob", "cid"}
    assert Delta(begin, end).written(["id", "age"], 1) is None


def test_delta_of_a_table_with_itself_is_empty(shared_root: Location) -> None:
    table = create_table(shared_root / "people", "ann")
    assert read_changed_ids(table, table) == (set(), set(), set())
    assert Delta(table, table).deleted().schema.names == ["id", "age"]


def test_delta_runs_across_compaction_and_from_the_fork_point(shared_root: Location) -> None:
    main = create_table(shared_root / "people", "ann", "bob", "cid")
    main.native.create_branch("work", (None, main.version))
    fork = change_table(Tables().tip(shared_root / "people", branch="work"))
    assert read_changed_ids(main, fork) == ({"new"}, {"ann"}, {"bob"})
    assert read_changed_ids(main, compact(fork).table) == ({"new"}, {"ann"}, {"bob"})


def test_delta_across_emptying_and_refilling_is_right(shared_root: Location) -> None:
    begin = create_table(shared_root / "people", "ann", "bob")
    emptied = commit_staged(stage_delete(begin, pa.array(["ann", "bob"])))
    assert emptied.fragment_count == 0
    end = commit_staged(stage_append(emptied, people("ann", "new")))
    assert read_changed_ids(begin, end) == ({"ann", "new"}, set(), {"ann", "bob"})
    replaced = commit_staged(stage_overwrite(end, people("zoe")))
    assert read_changed_ids(end, replaced) == ({"zoe"}, set(), {"ann", "new"})


def test_delta_from_a_collected_version_is_reported_as_missing(shared_root: Location) -> None:
    begin = create_table(shared_root / "people", "ann", "bob")
    end = change_table(begin)
    collect_versions(end, [1, 2, 3])
    with pytest.raises(StorageFailure) as caught:
        Delta(begin, end).deleted_row_ids()
    assert caught.value.kind in (TableFailureKind.NOT_FOUND, TableFailureKind.RECLAIMED)
