from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset
from lance.commit import CommitConflictError

from omnigraph.errors import StorageFailure
from omnigraph.storage.cas import merge_rows
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.indexes import IndexSpec, read_coverage, stage_indexes
from omnigraph.storage.location import Location
from omnigraph.storage.staging import (
    Counts,
    Staged,
    commit_staged,
    new_uuid,
    read_transaction,
    read_transactions,
    stage_append,
    stage_config,
    stage_delete,
    stage_overwrite,
    stage_primary_key,
    stage_restore,
    stage_schema_metadata,
)
from omnigraph.storage.tables import Table, Tables
from omnigraph.storage.upkeep import compact
from omnigraph.storage.upsert import stage_upsert

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("age", pa.int64())])


def people(*ids: str, age: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "age": [age] * len(ids)}, schema=SCHEMA)


def content(table: Table) -> dict[str, int]:
    rows = table.scan(["id", "age"])
    assert len(set(rows["id"].to_pylist())) == rows.num_rows
    return dict(zip(rows["id"].to_pylist(), rows["age"].to_pylist(), strict=True))


@pytest.fixture
def at(tmp_path: Path) -> Location:
    return Location.parse(tmp_path / "people")


def create_table(at: Location, *batches: pa.Table, tables: Tables | None = None) -> Table:
    table = (tables or Tables()).create(at, SCHEMA, primary_key="id")
    for batch in batches:
        table = commit_staged(stage_append(table, batch))
    return table


class AtCommit:
    """An observer that runs something once, between the last look at a table and its commit."""

    def __init__(self) -> None:
        self.then: Callable[[], object] | None = None

    def __call__(self, op: str, uri: str, /) -> None:
        if op == "commit" and self.then is not None:
            act, self.then = self.then, None
            act()


def land(staged: Staged) -> LanceDataset:
    """Commit behind the back of `commit_staged`, as another process would."""
    return LanceDataset.commit(staged.table.native, staged.transaction, max_retries=0)


CHANGES: dict[str, tuple[Callable[[Table], Staged], dict[str, int], Counts]] = {
    "append": (
        lambda t: stage_append(t, people("new", age=5)),
        {"ann": 1, "bob": 1, "new": 5},
        Counts(1, 0, 0),
    ),
    "upsert": (
        lambda t: stage_upsert(t, people("bob", "new", age=5)),
        {"ann": 1, "bob": 5, "new": 5},
        Counts(1, 1, 0),
    ),
    "insert": (
        lambda t: stage_upsert(t, people("new", age=5)),
        {"ann": 1, "bob": 1, "new": 5},
        Counts(1, 0, 0),
    ),
    "delete": (lambda t: stage_delete(t, pa.array(["bob", "missing", "bob"])), {"ann": 1}, Counts(0, 0, 1)),
    "delete all": (lambda t: stage_delete(t, pa.array(["ann", "bob"])), {}, Counts(0, 0, 2)),
    "delete none": (lambda t: stage_delete(t, pa.array(["missing"])), {"ann": 1, "bob": 1}, Counts(0, 0, 0)),
    "overwrite": (lambda t: stage_overwrite(t, people("zoe", age=7)), {"zoe": 7}, Counts(1, 0, 2)),
    "empty": (lambda t: stage_overwrite(t, people()), {}, Counts(0, 0, 2)),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_staged_change_is_invisible_and_lands_as_the_next_version(shared_root: Location, kind: str) -> None:
    stage, expected, counts = CHANGES[kind]
    table = create_table(shared_root / "people", people("ann", age=1), people("bob", age=1))
    staged = stage(table)
    assert staged.counts == counts
    assert table.latest_version() == table.version
    landed = commit_staged(staged)
    assert landed.version == table.version + 1
    assert content(landed) == content(Tables().tip(shared_root / "people")) == expected
    assert content(table) == {"ann": 1, "bob": 1}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_staged_change_lands_on_a_fork_and_leaves_main(at: Location, kind: str) -> None:
    stage, expected, counts = CHANGES[kind]
    main = create_table(at, people("ann", age=1), people("bob", age=1))
    main.native.create_branch("work/a", (None, main.version))
    staged = stage(Tables().tip(at, branch="work/a"))
    assert staged.counts == counts
    landed = commit_staged(staged)
    assert (landed.branch, landed.version) == ("work/a", main.version + 1)
    assert content(Tables().tip(at, branch="work/a")) == expected
    assert main.latest() is main


@pytest.mark.parametrize("rows", [("ann", "bob"), ()], ids=["with rows", "empty table"])
def test_no_two_changes_staged_on_one_version_both_land(tmp_path: Path, rows: tuple[str, ...]) -> None:
    for number, (first, second) in enumerate(itertools.product(CHANGES, repeat=2)):
        observer = AtCommit()
        tables = Tables(observer)
        table = create_table(
            Location.parse(tmp_path / str(number)), *(people(name, age=1) for name in rows), tables=tables
        )
        winner, loser = CHANGES[first][0](table), CHANGES[second][0](table)
        observer.then = lambda winner=winner: land(winner)
        with pytest.raises(StorageFailure) as caught:
            commit_staged(loser)
        assert caught.value.kind == TableFailureKind.CONFLICT, f"{second} landed on top of {first}"
        assert read_transaction(table, table.version + 1).uuid == winner.uuid
        assert table.latest_version() == table.version + 1


def test_a_change_is_refused_when_the_table_has_moved_on(shared_root: Location) -> None:
    table = create_table(shared_root / "people", people("ann"))
    staged = stage_append(table, people("bob"))
    commit_staged(stage_append(table, people("cid")))
    with pytest.raises(StorageFailure) as caught:
        commit_staged(staged)
    assert caught.value.kind == TableFailureKind.MOVED
    assert "version 2 and the newest version is 3" in caught.value.message
    assert set(content(Tables().tip(shared_root / "people"))) == {"ann", "cid"}


def test_a_change_that_slid_over_an_index_build_is_reported_as_displaced(at: Location) -> None:
    observer = AtCommit()
    table = create_table(at, people("ann"), tables=Tables(observer))
    index = stage_indexes(table, [IndexSpec("id", "BTREE", "id_idx")])
    staged = stage_append(table, people("bob"))
    observer.then = lambda: land(index)
    with pytest.raises(StorageFailure) as caught:
        commit_staged(staged)
    assert caught.value.kind == TableFailureKind.DISPLACED
    assert "became version 4" in caught.value.message


def test_a_commit_whose_answer_was_lost_is_recognised_as_ours(shared_root: Location) -> None:
    observer = AtCommit()
    table = create_table(shared_root / "people", people("ann"), tables=Tables(observer))
    staged = stage_append(table, people("bob")).with_properties({"omnigraph.operation": "op1"})
    observer.then = lambda: land(staged)
    landed = commit_staged(staged)
    assert landed.version == table.version + 1
    assert content(landed) == {"ann": 0, "bob": 0}
    assert table.latest_version() == landed.version


def test_committing_one_change_twice_applies_it_once(shared_root: Location) -> None:
    table = create_table(shared_root / "people", people("ann"))
    staged = stage_append(table, people("bob"))
    first = commit_staged(staged)
    commit_staged(stage_append(first, people("cid")))
    assert commit_staged(staged) == first
    assert content(Tables().tip(shared_root / "people")) == {"ann": 0, "bob": 0, "cid": 0}


class Unreachable:
    """An observer that lets a store fail from the commit on, for some kinds of calls."""

    def __init__(self, *ops: str) -> None:
        self.ops = ops
        self.armed = False
        self.then: Callable[[], object] = int

    def __call__(self, op: str, uri: str, /) -> None:
        if op == "commit":
            self.armed = True
            self.then()
        if self.armed and op in self.ops:
            raise StorageFailure("the store does not answer", kind=TableFailureKind.TRANSIENT, uri=uri)


def test_a_commit_without_an_answer_is_undecided(at: Location) -> None:
    table = create_table(at, people("ann"))
    for ops in (("commit",), ("commit", "probe")):
        tip = Tables(Unreachable(*ops)).tip(at)
        with pytest.raises(StorageFailure) as caught:
            commit_staged(stage_append(tip, people("bob")))
        assert caught.value.kind == TableFailureKind.UNDECIDED
        assert "the store does not answer" in caught.value.message
    assert table.latest_version() == table.version


@pytest.mark.parametrize("silent", ["probe", "read_transaction"])
def test_a_conflict_is_not_believed_while_authorship_is_unknown(at: Location, silent: str) -> None:
    create_table(at, people("ann"))
    observer = Unreachable(silent)
    staged = stage_append(Tables(observer).tip(at), people("bob"))
    observer.then = lambda: land(staged)
    with pytest.raises(StorageFailure) as caught:
        commit_staged(staged)
    assert caught.value.kind == TableFailureKind.UNDECIDED, (
        "it landed, so calling it a conflict would be a lie"
    )
    observer.armed, observer.ops = False, ()
    assert content(commit_staged(staged)) == {"ann": 0, "bob": 0}


def test_an_error_before_the_commit_leaves_the_table_where_it_was(at: Location) -> None:
    observer = AtCommit()
    table = create_table(at, people("ann"), tables=Tables(observer))
    staged = stage_append(table, people("bob"))

    def stop() -> None:
        raise KeyboardInterrupt

    observer.then = stop
    with pytest.raises(KeyboardInterrupt):
        commit_staged(staged)
    assert table.latest_version() == table.version
    assert content(commit_staged(staged)) == {"ann": 0, "bob": 0}


def test_a_version_tells_who_made_it(shared_root: Location) -> None:
    table = create_table(shared_root / "people", people("ann"))
    staged = stage_upsert(table, people("ann", age=2)).with_properties({"omnigraph.operation": "op1"})
    landed = commit_staged(staged.with_properties({"more": "x"}))
    found = read_transaction(landed, landed.version)
    assert found.uuid == staged.uuid
    assert found.operation == "Update"
    assert found.read_version == table.version
    assert found.properties == {"omnigraph.operation": "op1", "more": "x"}
    with pytest.raises(StorageFailure) as caught:
        read_transaction(landed, landed.version + 1)
    assert caught.value.kind == TableFailureKind.NOT_FOUND


def test_maintenance_is_distinguished_from_changes_of_rows(at: Location) -> None:
    table = create_table(at, people("ann"), people("bob"))
    indexed = commit_staged(stage_indexes(table, [IndexSpec("id", "BTREE", "id_idx")]))
    compacted = compact(indexed).table
    settled = commit_staged(stage_config(compacted, {"a": "1"}))
    transactions = read_transactions(settled, table.version - 1, settled.version)
    assert [found.operation for found in transactions] == [
        "Update",
        "CreateIndex",
        "ReserveFragments",
        "Rewrite",
        "UpdateConfig",
    ]
    assert [found.is_maintenance for found in transactions] == [False, True, True, True, True]


def test_restore_brings_back_a_version_and_defeats_what_was_staged_before(shared_root: Location) -> None:
    old = create_table(shared_root / "people", people("ann"))
    new = commit_staged(stage_append(old, people("bob")))
    waiting = [stage(new) for stage, _, _ in CHANGES.values()]
    mark = {"omnigraph.operation": "op1", "omnigraph.restored": str(old.version)}
    restored = commit_staged(stage_restore(new, old.version).with_properties(mark))
    assert restored.version == new.version + 1
    assert content(restored) == {"ann": 0}
    transaction = read_transaction(restored, restored.version)
    assert (transaction.operation, transaction.restored, transaction.properties) == (
        "Restore",
        old.version,
        mark,
    )
    for staged in waiting:
        with pytest.raises(CommitConflictError):
            land(staged)
    assert restored.latest() is restored


def test_restore_lands_above_a_writer_that_woke_up(at: Location) -> None:
    old = create_table(at, people("ann"))
    new = commit_staged(stage_append(old, people("bob")))
    restore = stage_restore(new, old.version)
    commit_staged(stage_append(new, people("late")))
    restored = commit_staged(restore)
    assert restored.version == new.version + 2
    assert content(restored) == {"ann": 0}
    assert commit_staged(restore) == restored, "a repeated restore is recognised, not repeated"


def test_upsert_keeps_row_ids_and_overwrite_never_reuses_them(at: Location) -> None:
    table = create_table(at, people("ann", "bob"))
    updated = commit_staged(stage_upsert(table, people("bob", age=1)))
    found = updated.scan(["id"], row_ids=True).to_pylist()
    assert {row["id"]: row["_rowid"] for row in found} == {"ann": 0, "bob": 1}
    emptied = commit_staged(stage_overwrite(updated, people()))
    refilled = commit_staged(stage_append(emptied, people("ann")))
    assert refilled.scan(["_rowid"]).column("_rowid").to_pylist() > [1]
    assert refilled.has_stable_row_ids


def test_overwrite_changes_columns_and_keeps_key_and_settings(at: Location) -> None:
    table = commit_staged(stage_config(create_table(at, people("ann")), {"kept": "yes"}))
    columns = pa.schema([pa.field("id", pa.string()), pa.field("name", pa.string())], metadata={"stamp": "2"})
    landed = commit_staged(stage_overwrite(table, pa.table({"id": ["x"], "name": ["X"]}, schema=columns)))
    assert landed.schema.names == ["id", "name"]
    assert landed.primary_key == ("id",)
    assert not landed.schema.field("id").nullable
    assert landed.schema.metadata == {b"stamp": b"2"}
    assert landed.config == {"kept": "yes"}
    assert landed.native.data_storage_version == "2.2"
    reader = pa.table({"id": ["y"], "name": ["Y"]}, schema=columns).to_reader()
    streamed = commit_staged(stage_overwrite(landed, reader))
    assert (streamed.scan().to_pydict(), streamed.primary_key) == ({"id": ["y"], "name": ["Y"]}, ("id",))


def test_first_write_to_an_empty_table_keeps_its_description(at: Location) -> None:
    table = Tables().create(at, SCHEMA.with_metadata({"stamp": "4"}), primary_key="id")
    table = commit_staged(stage_config(table, {"kept": "yes"}))
    filled = commit_staged(stage_upsert(table, people("ann")))
    assert (filled.schema, filled.config, filled.primary_key) == (table.schema, {"kept": "yes"}, ("id",))
    assert filled.scan(["_row_created_at_version"]).to_pydict() == {
        "_row_created_at_version": [filled.version]
    }


def test_settings_and_schema_metadata_are_set_and_removed(at: Location) -> None:
    table = create_table(at, people("ann"))
    table = commit_staged(stage_config(table, {"a": "1", "b": "2"}))
    table = commit_staged(stage_config(table, {"a": None}))
    table = commit_staged(stage_schema_metadata(table, {"stamp": "4"}))
    assert table.config == {"b": "2"}
    assert table.schema.metadata == {b"stamp": b"4"}
    assert content(table) == {"ann": 0}


def test_a_table_without_a_key_gets_one_that_swaps_can_rely_on(at: Location) -> None:
    plain = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("age", pa.int64())])
    lance.write_dataset(plain.empty_table(), at.uri, enable_stable_row_ids=True)
    table = Tables().tip(at)
    with pytest.raises(StorageFailure) as caught:
        merge_rows(table, people("ann"), "id")
    assert caught.value.kind == TableFailureKind.INVALID
    keyed = commit_staged(stage_primary_key(table, "id"))
    assert keyed.primary_key == Tables().tip(at).primary_key == ("id",)
    merge_rows(keyed, people("ann"), "id")
    with pytest.raises(StorageFailure) as caught:
        merge_rows(keyed, people("ann"), "id")
    assert caught.value.kind == TableFailureKind.CONTENTION
    with pytest.raises(StorageFailure) as caught:
        stage_primary_key(keyed, "age")
    assert caught.value.kind == TableFailureKind.INVALID


def test_two_migrations_that_mark_the_key_do_not_both_land(at: Location) -> None:
    plain = pa.schema([pa.field("id", pa.string(), nullable=False)])
    lance.write_dataset(plain.empty_table(), at.uri, enable_stable_row_ids=True)
    observer = AtCommit()
    table = Tables(observer).tip(at)
    first, second = stage_primary_key(table, "id"), stage_primary_key(table, "id")
    observer.then = lambda: land(first)
    with pytest.raises(StorageFailure) as caught:
        commit_staged(second)
    assert caught.value.kind == TableFailureKind.CONFLICT


def test_a_write_leaves_untouched_rows_in_their_indexes(at: Location) -> None:
    table = create_table(at, people(*(f"p{n}" for n in range(50))), people("q"))
    table = commit_staged(stage_indexes(table, [IndexSpec("id", "BTREE", "id_idx")]))
    table = commit_staged(stage_append(table, people("new")))
    found = read_coverage(table)["id_idx"]
    assert (found.covered_fragments, found.total_fragments) == (2, 3)
    assert table.count("id = 'p7'") == table.count("id = 'new'") == 1


def test_two_rows_with_one_key_are_refused(at: Location) -> None:
    table = create_table(at, people("ann"))
    with pytest.raises(StorageFailure) as caught:
        stage_upsert(table, people("new", "new"))
    assert caught.value.kind == TableFailureKind.DUPLICATE_KEYS


def test_rows_that_do_not_fit_the_table_are_reported_as_invalid(at: Location) -> None:
    table = create_table(at, people("ann"))
    strange = pa.table({"id": ["x"], "height": [1.5]})
    for stage in (stage_append, stage_upsert):
        with pytest.raises(StorageFailure) as caught:
            stage(table, strange)
        assert caught.value.kind == TableFailureKind.INVALID


def test_a_version_is_recognised_by_the_mark_and_the_properties_its_change_was_given(at: Location) -> None:
    staged = stage_append(create_table(at, people("ann")), people("bob"))
    mark = new_uuid()
    landed = commit_staged(staged.with_properties({"omnigraph.operation": "op1"}).with_uuid(mark))
    made = read_transaction(landed, 3)
    assert mark != staged.uuid
    assert (made.uuid, made.properties["omnigraph.operation"]) == (mark, "op1")


def try_commit(change: Staged) -> bool:
    try:
        commit_staged(change)
    except StorageFailure as error:
        if error.kind not in (TableFailureKind.CONFLICT, TableFailureKind.MOVED):
            raise
        return False
    return True


def test_writers_that_race_lose_nothing_and_double_nothing(shared_root: Location) -> None:
    at = shared_root / "people"
    create_table(at)
    keys = [f"k{n}" for n in range(8)]
    start = threading.Barrier(3)

    def insert_all(writer: int) -> int:
        tables, wins = Tables(), 0
        start.wait()
        for key in keys[writer:] + keys[:writer]:
            while not (table := tables.tip(at)).count(f"id = '{key}'"):
                wins += try_commit(stage_upsert(table, people(key)))
        return wins

    with ThreadPoolExecutor(3) as pool:
        wins = sum(pool.map(insert_all, range(3)))
    table = Tables().tip(at)
    assert content(table) == dict.fromkeys(keys, 0)
    assert wins == len(keys)
    assert table.version == 1 + wins
