from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.errors import StorageFailure
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from omnigraph.storage.staging import commit_staged, stage_append, stage_config, stage_delete
from omnigraph.storage.tables import Table, Tables, with_primary_key
from omnigraph.storage.upkeep import collect_versions
from omnigraph.storage.upsert import stage_upsert

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("age", pa.int64())])


def people(*ids: str, age: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "age": [age] * len(ids)}, schema=SCHEMA)


def ids(table: Table, where: str | None = None) -> list[str]:
    found: list[str] = table.scan(["id"], where=where).column("id").to_pylist()
    return found


@pytest.fixture
def at(tmp_path: Path) -> Location:
    return Location.parse(tmp_path / "people")


@pytest.fixture
def tables() -> Tables:
    return Tables()


def create_table(tables: Tables, at: Location, *batches: pa.Table) -> Table:
    table = tables.create(at, SCHEMA, primary_key="id")
    for batch in batches:
        table = commit_staged(stage_append(table, batch))
    return table


def test_new_table_is_empty_with_stable_row_ids_and_a_key(tables: Tables, shared_root: Location) -> None:
    table = tables.create(shared_root / "nodes/people", SCHEMA, primary_key="id")
    assert (table.version, table.count(), table.branch) == (1, 0, None)
    assert table.has_stable_row_ids
    assert table.native.data_storage_version == "2.2"
    assert table.primary_key == ("id",)
    assert not table.schema.field("id").nullable
    assert table.config == {}, "no automatic cleanup may be set: it would remove versions a graph pins"
    again = tables.tip(shared_root / "nodes/people")
    assert (again.schema, again.primary_key) == (table.schema, ("id",))


def test_creating_over_a_table_fails_and_leaves_it(tables: Tables, shared_root: Location) -> None:
    at = shared_root / "people"
    create_table(tables, at, people("ann"))
    with pytest.raises(StorageFailure) as caught:
        tables.create(at, SCHEMA, primary_key="id")
    assert caught.value.kind == TableFailureKind.EXISTS
    assert ids(tables.tip(at)) == ["ann"]


def test_table_is_created_with_rows_and_schema_metadata_in_one_version(tables: Tables, at: Location) -> None:
    schema = SCHEMA.with_metadata({"stamp": "4"})
    table = tables.create(at, schema, primary_key="id", rows=people("ann", "bob"))
    assert table.version == 1
    assert ids(tables.open(at, 1)) == ["ann", "bob"]
    assert tables.tip(at).schema.metadata == {b"stamp": b"4"}


def test_of_rivals_creating_one_table_exactly_one_wins(shared_root: Location) -> None:
    start = threading.Barrier(4)

    def create(name: str) -> str:
        start.wait()
        try:
            Tables().create(shared_root / "people", SCHEMA, primary_key="id", rows=people(name))
        except StorageFailure as error:
            return str(error.kind)
        return name

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(create, ["r0", "r1", "r2", "r3"]))
    winners = [name for name in outcomes if name.startswith("r")]
    assert len(winners) == 1
    assert set(outcomes) - set(winners) == {TableFailureKind.EXISTS}
    assert ids(Tables().tip(shared_root / "people")) == winners


def test_what_is_not_there_is_reported_as_not_found(tables: Tables, shared_root: Location) -> None:
    create_table(tables, shared_root / "people")
    calls: list[Callable[[], Table]] = [
        lambda: tables.tip(shared_root / "missing"),
        lambda: tables.open(shared_root / "people", 9),
        lambda: tables.open(shared_root / "people", 1, branch="none"),
    ]
    for missing in calls:
        with pytest.raises(StorageFailure) as caught:
            missing()
        assert caught.value.kind == TableFailureKind.NOT_FOUND
    assert not tables.exists(shared_root / "missing")
    assert tables.exists(shared_root / "people")


def test_a_damaged_table_is_not_taken_for_a_missing_one(tables: Tables, at: Location) -> None:
    create_table(tables, at)
    (manifest,) = (at.path / "_versions").glob("*.manifest")
    manifest.write_bytes(manifest.read_bytes()[:20])
    with pytest.raises(StorageFailure) as caught:
        tables.exists(at)
    assert caught.value.kind == TableFailureKind.UNKNOWN
    assert at.uri in caught.value.message


def test_a_file_in_the_place_of_a_table_is_not_absence(tables: Tables, at: Location) -> None:
    at.path.write_text("not a table")
    with pytest.raises(StorageFailure) as caught:
        tables.exists(at)
    assert caught.value.kind != TableFailureKind.NOT_FOUND


def test_a_table_keeps_showing_its_version(tables: Tables, shared_root: Location) -> None:
    first = create_table(tables, shared_root / "people", people("ann"))
    second = commit_staged(stage_append(first, people("bob")))
    assert (ids(first), ids(second)) == (["ann"], ["ann", "bob"])
    assert first.latest_version() == second.version == first.version + 1
    assert first.latest() == second
    assert first.version == second.version - 1, "asking for the newest must not move the table at hand"
    assert second.latest() is second


def test_scan_reads_only_what_is_asked_for(tables: Tables, shared_root: Location) -> None:
    table = create_table(tables, shared_root / "people", people("ann", "bob", age=30), people("cid", age=40))
    assert table.scan(["age"], where="id >= 'bob'").to_pydict() == {"age": [30, 40]}
    assert ids(table, "age = 40 AND id <> 'x'") == ["cid"]
    assert table.scan(limit=2).num_rows == 2
    assert table.count() == 3
    assert table.count("age = 30") == 2


def test_scan_tells_row_ids_and_the_versions_that_wrote_a_row(tables: Tables, at: Location) -> None:
    table = create_table(tables, at, people("ann", "bob"))
    changed = commit_staged(stage_upsert(table, people("ann", "cid", age=9)))
    columns = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    found = {row.pop("id"): tuple(row.values()) for row in changed.scan(columns).to_pylist()}
    assert found == {"ann": (0, 2, 3), "bob": (1, 2, 2), "cid": (2, 3, 3)}
    assert changed.scan(["id"], row_ids=True).column_names == ["id", "_rowid"]
    assert ids(changed, "_row_created_at_version <= 2") == ["bob", "ann"]


def test_batches_stream_the_rows_a_scan_returns(tables: Tables, at: Location) -> None:
    table = create_table(tables, at, people(*(f"p{n:04}" for n in range(500))))
    batches = list(table.batches(["id"], where="id < 'p0300'", batch_size=64))
    assert len(batches) > 1
    assert pa.Table.from_batches(batches) == table.scan(["id"], where="id < 'p0300'")


@pytest.mark.parametrize(
    "where", ["nothing = 1", "age = 'x'", "age ===", "id = 'Not found: x' AND nothing = 1"]
)
def test_a_predicate_that_does_not_fit_is_reported_as_invalid(
    tables: Tables, at: Location, where: str
) -> None:
    table = create_table(tables, at, people("ann"))
    for read in (table.scan, table.count, lambda where: list(table.batches(where=where))):
        with pytest.raises(StorageFailure) as caught:
            read(where=where)
        assert caught.value.kind == TableFailureKind.INVALID
        assert ".rs:" not in caught.value.message


def test_take_answers_in_order_and_leaves_out_what_is_gone(tables: Tables, shared_root: Location) -> None:
    table = create_table(tables, shared_root / "people", people("ann", "bob"), people("cid"))
    table = commit_staged(stage_delete(table, pa.array(["bob"])))
    taken = table.take(pa.array([2, 1, 0, 77], pa.uint64()), ["id", "_rowid"])
    assert taken.to_pydict() == {"id": ["cid", "ann"], "_rowid": [2, 0]}


def test_reading_a_version_collected_under_us_is_recognised(tables: Tables, shared_root: Location) -> None:
    at = shared_root / "people"
    create_table(tables, at, people("ann", "bob"))
    old = tables.open(at, 2)
    commit_staged(stage_delete(old, pa.array(["ann", "bob"])))
    tip = commit_staged(stage_append(tables.tip(at), people("cid")))
    collect_versions(tip, [1, 2, 3])
    for read in (old.scan, lambda: list(old.batches()), lambda: old.take([0])):
        with pytest.raises(StorageFailure) as caught:
            read()
        assert caught.value.kind == TableFailureKind.RECLAIMED
    with pytest.raises(StorageFailure) as caught:
        Tables().open(at, 2)
    assert caught.value.kind == TableFailureKind.NOT_FOUND


def test_a_pinned_version_is_opened_once_and_a_tip_each_time(at: Location) -> None:
    recorder = Recorder()
    tables = Tables(recorder)
    create_table(tables, at, people("ann"))
    recorder.clear()
    assert tables.open(at, 2) is tables.open(at, 2)
    assert recorder.counts()["open"] == 1
    assert tables.tip(at) is not tables.tip(at)
    assert recorder.counts()["open"] == 3
    tables.forget()
    tables.open(at, 2)
    assert recorder.counts()["open"] == 4


def test_no_fork_is_cached_when_its_reference_cannot_be_read(tables: Tables, at: Location) -> None:
    create_table(tables, at, people("ann")).native.create_branch("work", (None, 2))
    assert tables.open(at, 2, branch="work") is not tables.open(at, 2, branch="work")


def test_kept_handles_are_bounded_and_the_oldest_goes(at: Location) -> None:
    tables = Tables(cached_handles=2)
    table = create_table(tables, at, people("ann"), people("bob"))
    kept = [tables.open(at, version) for version in (1, 2)]
    assert tables.open(at, 1) is kept[0]
    tables.open(at, table.version)
    assert tables.open(at, 1) is kept[0]
    assert tables.open(at, 2) is not kept[1]


def test_every_call_is_announced_and_a_refusal_prevents_it(at: Location) -> None:
    class Stop(Exception):
        pass

    calls: list[str] = []
    refused: set[str] = set()

    def observe(op: str, uri: str, /) -> None:
        assert uri.startswith(at.uri)
        calls.append(op)
        if op in refused:
            raise Stop

    tables = Tables(observe)
    table = create_table(tables, at, people("ann"))
    doings: dict[str, Callable[[], object]] = {
        "open": lambda: tables.tip(at),
        "scan": table.scan,
        "take": lambda: table.take([0]),
        "count": table.count,
        "probe": table.latest_version,
        "stage_append": lambda: stage_append(table, people("bob")),
        "commit": lambda: commit_staged(stage_config(table, {"a": "b"})),
    }
    for op, call in doings.items():
        refused.add(op)
        with pytest.raises(Stop):
            call()
        refused.clear()
    assert table.latest_version() == table.version
    assert calls[:4] == ["create", "stage_append", "probe", "commit"]


def test_a_fork_made_from_a_relative_root_survives_another_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: Tables
) -> None:
    monkeypatch.chdir(tmp_path)
    table = create_table(tables, Location.parse("graph/people"), people("ann"))
    table.native.create_branch("work", (None, 2))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    fork = Tables().tip(Location.parse(tmp_path / "graph/people"), branch="work")
    assert ids(fork) == ["ann"]


def test_a_folder_may_have_any_name(tables: Tables, tmp_path: Path) -> None:
    at = Location.parse(tmp_path / "my graph #1 %20 ü~x") / "people"
    table = create_table(tables, at, people("ann"))
    table.native.create_branch("work", (None, table.version))
    assert ids(Tables().tip(at)) == ids(Tables().tip(at, branch="work")) == ["ann"]
    assert at.path.is_dir()


def test_one_table_serves_many_threads(tables: Tables, at: Location) -> None:
    table = create_table(tables, at, people(*(f"p{n}" for n in range(100)), age=1))
    with ThreadPoolExecutor(8) as pool:
        counts = list(pool.map(lambda n: table.count(f"id = 'p{n}'"), range(100)))
    assert counts == [1] * 100


def test_key_columns_are_required_and_the_only_ones_marked() -> None:
    old = with_primary_key(SCHEMA, "age")
    schema = with_primary_key(old, "id")
    assert not schema.field("id").nullable
    assert schema.field("age").metadata is None
    both = with_primary_key(SCHEMA, "age", "id")
    assert both.field("id").metadata[b"lance-schema:unenforced-primary-key:position"] == b"2"
