from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.errors import StorageFailure
from omnigraph.storage.cas import merge_rows
from omnigraph.storage.indexes import IndexSpec, stage_indexes
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from omnigraph.storage.staging import commit_staged
from omnigraph.storage.tables import Table, Tables
from omnigraph.storage.upkeep import compact
from tests.python_process import PIPE, Python

SCHEMA = pa.schema([pa.field("object_id", pa.string()), pa.field("value", pa.int64())])


def entries(**values: int) -> pa.Table:
    return pa.table({"object_id": list(values), "value": list(values.values())}, schema=SCHEMA)


def content(table: Table) -> dict[str, int]:
    rows = table.scan()
    assert len(set(rows["object_id"].to_pylist())) == rows.num_rows
    return dict(zip(rows["object_id"].to_pylist(), rows["value"].to_pylist(), strict=True))


def created(at: Location, **values: int) -> Table:
    return Tables().create(at, SCHEMA, primary_key="object_id", rows=entries(**values))


def test_swap_inserts_and_replaces_in_one_version(shared_root: Location) -> None:
    table = created(shared_root / "m", head=1)
    done = merge_rows(table, entries(head=2, commit=1), "object_id")
    assert (done.inserted, done.updated, done.table.version) == (1, 1, 2)
    assert content(done.table) == content(Tables().tip(shared_root / "m")) == {"head": 2, "commit": 1}
    assert (table.version, content(table)) == (1, {"head": 1}), "the table decided from stays as it was"


@pytest.mark.parametrize("rival", [{"head": 5}, {"new": 5}, {"other": 5, "new": 1}])
def test_swap_fails_whole_when_one_of_its_rows_was_written_since(
    shared_root: Location, rival: dict[str, int]
) -> None:
    table = created(shared_root / "m", head=1)
    merge_rows(table, entries(**rival), "object_id")
    with pytest.raises(StorageFailure) as caught:
        merge_rows(table, entries(head=2, new=2, third=2), "object_id")
    assert caught.value.kind == Trouble.CONTENTION
    assert content(Tables().tip(shared_root / "m")) == {"head": 1} | rival


def test_swap_after_a_compaction_of_a_replaced_row_fails(tmp_path: Path) -> None:
    table = created(Location.parse(tmp_path / "m"), head=1)
    table = merge_rows(table, entries(a=1), "object_id").table
    compact(table)
    with pytest.raises(StorageFailure) as caught:
        merge_rows(table, entries(head=2, b=1), "object_id")
    assert caught.value.kind == Trouble.CONTENTION


def test_an_index_on_the_key_does_not_weaken_the_swap(shared_root: Location) -> None:
    table = created(shared_root / "m", head=1)
    table = commit_staged(stage_indexes(table, [IndexSpec("object_id", "BTREE", "by_id")]))
    merge_rows(table, entries(new=1), "object_id")
    with pytest.raises(StorageFailure) as caught:
        merge_rows(table, entries(new=2), "object_id")
    assert caught.value.kind == Trouble.CONTENTION


def test_swap_on_a_fork_leaves_main(shared_root: Location) -> None:
    main = created(shared_root / "m", head=1)
    main.native.create_branch("work", (None, 1))
    fork = Tables().tip(shared_root / "m", branch="work")
    done = merge_rows(fork, entries(head=2), "object_id")
    assert (done.table.branch, done.table.version) == ("work", 2)
    assert content(Tables().tip(shared_root / "m", branch="work")) == {"head": 2}
    assert main.latest() is main


def test_swap_refuses_rows_it_could_not_protect(tmp_path: Path) -> None:
    table = created(Location.parse(tmp_path / "m"), head=1)
    twice = pa.concat_tables([entries(a=1), entries(a=2)])
    with pytest.raises(StorageFailure) as caught:
        merge_rows(table, twice, "object_id")
    assert caught.value.kind == Trouble.DUPLICATE_KEYS
    with pytest.raises(StorageFailure) as caught:
        merge_rows(table, entries(a=1), "value")
    assert caught.value.kind == Trouble.INVALID


def swapped(table: Table, rows: pa.Table) -> bool:
    try:
        merge_rows(table, rows, "object_id")
    except StorageFailure as error:
        if error.kind != Trouble.CONTENTION:
            raise
        return False
    return True


def test_a_contended_counter_comes_out_exact(shared_root: Location) -> None:
    at = shared_root / "m"
    created(at, head=0)
    start = threading.Barrier(3)

    def count_up(writer: int) -> None:
        tables = Tables()
        start.wait()
        for step in range(3):
            done = False
            while not done:
                table = tables.tip(at)
                head = content(table)["head"]
                done = swapped(table, entries(**{"head": head + 1, f"w{writer}s{step}": 1}))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(count_up, range(3)))
    found = content(Tables().tip(at))
    assert found["head"] == 9
    assert len(found) == 10


_WRITER = """
import sys
import pyarrow as pa
from omnigraph.errors import StorageFailure
from omnigraph.storage.cas import merge_rows
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.location import Location
from omnigraph.storage.tables import Tables

at, name = Location(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
step = 0
while step < 3:
    table = Tables().tip(at)
    found = dict(zip(*table.scan().to_pydict().values()))
    rows = {"object_id": ["head", f"{name}{step}"], "value": [found["head"] + 1, found["head"]]}
    try:
        merge_rows(table, pa.table(rows), "object_id")
    except StorageFailure as error:
        if error.kind != Trouble.CONTENTION:
            raise
    else:
        step += 1
"""


def test_processes_that_swap_at_once_lose_nothing_and_double_nothing(shared_root: Location) -> None:
    at = shared_root / "m"
    created(at, head=0)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(Python("-c", _WRITER, at.uri, name, stdin=PIPE, stdout=PIPE))
            for name in "xyz"
        ]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    found = content(Tables().tip(at))
    assert found.pop("head") == len(found) == 9
    assert sorted(found.values()) == list(range(9)), "every swap was decided on another state"


def test_a_swap_is_one_announced_call(tmp_path: Path) -> None:
    recorder = Recorder()
    table = Tables(recorder).create(Location.parse(tmp_path / "m"), SCHEMA, primary_key="object_id")
    recorder.clear()
    merge_rows(table, entries(head=1), "object_id")
    assert recorder.counts() == {"merge_rows": 1}
