from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.errors import StorageFailure
from omnigraph.storage.cas import SwapResult, find_row, merge_rows, replace_row
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.indexes import IndexSpec, stage_indexes
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from omnigraph.storage.staging import commit_staged
from omnigraph.storage.tables import Table, Tables
from omnigraph.storage.upkeep import compact, stage_barrier
from tests.python_process import PIPE, Python

SCHEMA = pa.schema([pa.field("object_id", pa.string()), pa.field("value", pa.int64())])


def entries(**values: int) -> pa.Table:
    return pa.table({"object_id": list(values), "value": list(values.values())}, schema=SCHEMA)


def content(table: Table) -> dict[str, int]:
    rows = table.scan()
    assert len(set(rows["object_id"].to_pylist())) == rows.num_rows
    return dict(zip(rows["object_id"].to_pylist(), rows["value"].to_pylist(), strict=True))


def create_table(at: Location, **values: int) -> Table:
    return Tables().create(at, SCHEMA, primary_key="object_id", rows=entries(**values))


def test_swap_inserts_and_replaces_in_one_version(shared_root: Location) -> None:
    table = create_table(shared_root / "m", head=1)
    done = merge_rows(table, entries(head=2, commit=1), "object_id")
    assert done.table.version == 2
    assert content(done.table) == content(Tables().tip(shared_root / "m")) == {"head": 2, "commit": 1}
    assert (table.version, content(table)) == (1, {"head": 1}), "the table decided from stays as it was"


@pytest.mark.parametrize("rival", [{"head": 5}, {"new": 5}, {"other": 5, "new": 1}])
def test_swap_fails_whole_when_one_of_its_rows_was_written_since(
    shared_root: Location, rival: dict[str, int]
) -> None:
    table = create_table(shared_root / "m", head=1)
    merge_rows(table, entries(**rival), "object_id")
    with pytest.raises(StorageFailure) as caught:
        merge_rows(table, entries(head=2, new=2, third=2), "object_id")
    assert caught.value.kind == TableFailureKind.CONTENTION
    assert content(Tables().tip(shared_root / "m")) == {"head": 1} | rival


def test_swap_after_a_compaction_of_a_replaced_row_fails(tmp_path: Path) -> None:
    table = create_table(Location.parse(tmp_path / "m"), head=1)
    table = merge_rows(table, entries(a=1), "object_id").table
    compact(table)
    with pytest.raises(StorageFailure) as caught:
        merge_rows(table, entries(head=2, b=1), "object_id")
    assert caught.value.kind == TableFailureKind.CONTENTION


def test_an_index_on_the_key_does_not_weaken_the_swap(shared_root: Location) -> None:
    table = create_table(shared_root / "m", head=1)
    table = commit_staged(stage_indexes(table, [IndexSpec("object_id", "BTREE", "by_id")]))
    merge_rows(table, entries(new=1), "object_id")
    with pytest.raises(StorageFailure) as caught:
        merge_rows(table, entries(new=2), "object_id")
    assert caught.value.kind == TableFailureKind.CONTENTION


def test_swap_on_a_fork_leaves_main(shared_root: Location) -> None:
    main = create_table(shared_root / "m", head=1)
    main.native.create_branch("work", (None, 1))
    fork = Tables().tip(shared_root / "m", branch="work")
    done = merge_rows(fork, entries(head=2), "object_id")
    assert (done.table.branch, done.table.version) == ("work", 2)
    assert content(Tables().tip(shared_root / "m", branch="work")) == {"head": 2}
    assert main.latest() is main


# --- a row whose address is known ------------------------------------------------------------------


def replaced_head(table: Table, **values: int) -> SwapResult:
    address = find_row(table, "object_id", "head")
    assert address is not None
    return replace_row(table, entries(**values), "object_id", address)


def test_the_replaced_row_goes_and_the_address_of_its_successor_is_known(shared_root: Location) -> None:
    recorder = Recorder()
    Tables().create(shared_root / "m", SCHEMA, primary_key="object_id", rows=entries(other=0, head=1))
    table = Tables(recorder).tip(shared_root / "m")
    done = replaced_head(table, a=1, head=2)
    for step in range(3, 6):
        assert done.last_address == find_row(done.table, "object_id", "head")
        assert done.last_address is not None
        recorder.clear()
        done = replace_row(
            done.table, entries(**{f"b{step}": 1, "head": step}), "object_id", done.last_address
        )
        assert recorder.counts() == {"merge_rows": 1}
    assert done.table.version == 5
    stored = Tables().tip(shared_root / "m")
    assert (
        content(done.table) == content(stored) == {"other": 0, "a": 1, "b3": 1, "b4": 1, "b5": 1, "head": 5}
    )
    assert content(table) == {"other": 0, "head": 1}, "the table decided from stays as it was"


def test_a_row_that_is_alone_in_its_fragment_takes_the_fragment_with_it(shared_root: Location) -> None:
    done = replaced_head(create_table(shared_root / "m", head=1), head=2)
    assert (content(done.table), done.table.fragment_count) == ({"head": 2}, 1)
    assert done.last_address == find_row(done.table, "object_id", "head")


@pytest.mark.parametrize("first", [merge_rows, replaced_head])
@pytest.mark.parametrize("second", [merge_rows, replaced_head])
def test_two_swaps_of_one_row_collide_whichever_way_they_are_made(
    shared_root: Location, first: object, second: object
) -> None:
    table = create_table(shared_root / "m", other=0, head=1)

    def swap(way: object, **values: int) -> SwapResult:
        if way is replaced_head:
            return replaced_head(table, **values)
        return merge_rows(table, entries(**values), "object_id")

    swap(first, a=1, head=2)
    with pytest.raises(StorageFailure) as caught:
        swap(second, b=1, head=3)
    assert caught.value.kind == TableFailureKind.CONTENTION
    assert content(Tables().tip(shared_root / "m")) == {"other": 0, "a": 1, "head": 2}


def test_a_compaction_of_the_replaced_row_is_contention_and_of_others_is_not(tmp_path: Path) -> None:
    table = create_table(Location.parse(tmp_path / "m"), a=0)
    for name in ("b", "c"):
        table = merge_rows(table, entries(**{name: 0}), "object_id").table
    table = merge_rows(table, entries(head=1), "object_id").table
    compact(table, only=frozenset({0, 1, 2}))
    done = replaced_head(table, d=0, head=2)
    assert done.last_address is None, "it landed above the compaction, whose fragments it does not know"
    assert content(done.table) == {"a": 0, "b": 0, "c": 0, "d": 0, "head": 2}
    compact(done.table)
    with pytest.raises(StorageFailure) as caught:
        replaced_head(done.table, head=3)
    assert caught.value.kind == TableFailureKind.CONTENTION


def test_a_barrier_stops_a_swap_that_was_decided_before_it(tmp_path: Path) -> None:
    table = create_table(Location.parse(tmp_path / "m"), head=1)
    commit_staged(stage_barrier(table))
    with pytest.raises(StorageFailure) as caught:
        replaced_head(table, head=2)
    assert caught.value.kind == TableFailureKind.CONTENTION


def test_a_row_that_a_fork_shares_with_main_is_replaced_on_the_fork_alone(shared_root: Location) -> None:
    main = create_table(shared_root / "m", other=0, head=1)
    main.native.create_branch("work", (None, 1))
    fork = Tables().tip(shared_root / "m", branch="work")
    replaced_head(replaced_head(fork, head=2).table, a=1, head=3)
    assert content(Tables().tip(shared_root / "m", branch="work")) == {"other": 0, "a": 1, "head": 3}
    assert content(Tables().tip(shared_root / "m")) == {"other": 0, "head": 1}
    assert main.latest() is main


def test_a_key_that_is_not_stored_has_no_address(tmp_path: Path) -> None:
    table = create_table(Location.parse(tmp_path / "m"), head=1)
    assert find_row(table, "object_id", "it's not there") is None


# --- both ------------------------------------------------------------------------------------------


def test_swap_refuses_rows_it_could_not_protect(tmp_path: Path) -> None:
    table = create_table(Location.parse(tmp_path / "m"), head=1)
    twice = pa.concat_tables([entries(a=1), entries(a=2)])
    with pytest.raises(StorageFailure) as caught:
        merge_rows(table, twice, "object_id")
    assert caught.value.kind == TableFailureKind.DUPLICATE_KEYS
    with pytest.raises(StorageFailure) as caught:
        merge_rows(table, entries(a=1), "value")
    assert caught.value.kind == TableFailureKind.INVALID


def try_swap(table: Table, rows: pa.Table) -> bool:
    try:
        merge_rows(table, rows, "object_id")
    except StorageFailure as error:
        if error.kind != TableFailureKind.CONTENTION:
            raise
        return False
    return True


def test_a_contended_counter_comes_out_exact(shared_root: Location) -> None:
    at = shared_root / "m"
    create_table(at, head=0)
    start = threading.Barrier(3)

    def count_up(writer: int) -> None:
        tables = Tables()
        start.wait()
        for step in range(3):
            done = False
            while not done:
                table = tables.tip(at)
                head = content(table)["head"]
                done = try_swap(table, entries(**{"head": head + 1, f"w{writer}s{step}": 1}))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(count_up, range(3)))
    found = content(Tables().tip(at))
    assert found["head"] == 9
    assert len(found) == 10


_WRITER = """
import sys
import pyarrow as pa
from omnigraph.errors import StorageFailure
from omnigraph.storage.cas import find_row, merge_rows, replace_row
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.location import Location
from omnigraph.storage.tables import Tables

at, name, way, steps = Location(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
print("ready", flush=True)
sys.stdin.readline()
step = 0
while step < steps:
    table = Tables().tip(at)
    found = dict(zip(*table.scan().to_pydict().values()))
    rows = pa.table({"object_id": [f"{name}{step}", "head"], "value": [found["head"], found["head"] + 1]})
    try:
        if way == "merge":
            merge_rows(table, rows, "object_id")
        else:
            replace_row(table, rows, "object_id", find_row(table, "object_id", "head"))
    except StorageFailure as error:
        if error.kind != TableFailureKind.CONTENTION:
            raise
    else:
        step += 1
"""


def test_processes_that_swap_at_once_lose_nothing_and_double_nothing(shared_root: Location) -> None:
    at = shared_root / "m"
    create_table(at, head=0)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(Python("-c", _WRITER, at.uri, name, way, "3", stdin=PIPE, stdout=PIPE))
            for name, way in {"x": "replace", "y": "replace", "z": "merge"}.items()
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
