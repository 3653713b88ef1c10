"""Indexes of forks stay useful, and one whose files are missing costs nothing but time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileSession
from lance.optimize import Compaction, CompactionOptions

from omnigraph.errors import StorageFailure
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.forks import Forks
from omnigraph.storage.index_files import find_misplaced_indexes
from omnigraph.storage.index_parts import BTREE, IVF_FLAT
from omnigraph.storage.indexes import IndexSpec, read_coverage, stage_indexes, text_index_spec
from omnigraph.storage.location import Location
from omnigraph.storage.search import find_text_index, find_vector_index, search_text, search_vectors
from omnigraph.storage.staging import Staged, commit_staged, stage_append, stage_delete
from omnigraph.storage.stores import open_store
from omnigraph.storage.tables import Table, Tables, checkout_newest, storage_options
from omnigraph.storage.upkeep import collect_versions, compact
from omnigraph.storage.upsert import stage_upsert

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("text", pa.string()),
        pa.field("place", pa.list_(pa.float32(), 2)),
    ]
)
SPECS = [
    IndexSpec("id", BTREE, "id_idx"),
    text_index_spec("text", "text_idx"),
    IndexSpec("place", IVF_FLAT, "place_idx", {"num_partitions": 1, "metric": "L2"}),
]


def docs(*ids: str, text: str = "walking") -> pa.Table:
    columns = {
        "id": list(ids),
        "text": [text] * len(ids),
        "place": [[1.0, float(at)] for at in range(len(ids))],
    }
    return pa.table(columns, schema=SCHEMA)


@dataclass(frozen=True)
class Place:
    forks: Forks
    main: Table


@pytest.fixture
def place(shared_root: Location) -> Place:
    tables = Tables()
    main = tables.create(shared_root / "docs", SCHEMA, primary_key="id", rows=docs("a", "b", "c", "d"))
    main = commit_staged(stage_indexes(main, SPECS))
    return Place(Forks(tables, open_store(shared_root)), main)


def remove_rows(table: Table, *ids: str) -> Table:
    return commit_staged(stage_delete(table, pa.array(ids)))


def compacted_by_lance(table: Table) -> Table:
    """As a compaction leaves a fork when its index files are not moved along."""
    native = checkout_newest(table.native)
    plan = Compaction.plan(native, CompactionOptions())
    Compaction.commit(native, [task.execute(native) for task in plan.tasks])
    return table.with_handle(checkout_newest(native))


def without_index_files(table: Table) -> Table:
    """The table, and all indexes in its own folder and in main's are gone."""
    for folder in {table.uri, table.location.uri}:
        session = LanceFileSession(folder, storage_options=storage_options(table.location))
        for path in session.list("_indices"):
            session.delete_file(path)
    return Tables().open(table.location, table.version, branch=table.branch)


def ids(table: Table, where: str | None = None) -> list[str]:
    return sorted(table.scan(["id"], where=where).column("id").to_pylist())


def is_index_used(table: Table, where: str = "id = 'b'") -> bool:
    return "ScalarIndexQuery" in table.native.scanner(filter=where).explain_plan(verbose=True)


# --- forks ---------------------------------------------------------------------------------------


def test_a_fork_that_was_compacted_can_be_read_and_written_and_uses_its_indexes(place: Place) -> None:
    fork = remove_rows(place.forks.create(place.main, "work"), "a")
    fork = compact(fork).table
    assert find_misplaced_indexes(fork) is None
    assert (ids(fork, "id = 'b'"), ids(fork, "id = 'a'")) == (["b"], [])
    assert is_index_used(fork)
    assert all(index.is_complete and index.segments == 1 for index in read_coverage(fork).values())
    fork = commit_staged(stage_upsert(fork, docs("b", "e", text="swimming")))
    assert ids(remove_rows(fork, "c")) == ["b", "d", "e"]
    assert ids(place.main) == ["a", "b", "c", "d"]


def test_a_fork_stays_whole_over_many_compactions_and_in_forks_of_its_own(place: Place) -> None:
    fork = place.forks.create(place.main, "work")
    for name in "abc":
        fork = commit_staged(stage_append(remove_rows(fork, name), docs(f"{name}2")))
        fork = compact(fork).table
        fork = compact(commit_staged(stage_indexes(fork, SPECS))).table if name == "b" else fork
        assert find_misplaced_indexes(fork) is None
    child = remove_rows(place.forks.create(fork, "child"), "d")
    assert find_misplaced_indexes(child) is None
    child = compact(child).table
    assert find_misplaced_indexes(child) is None
    assert ids(child, "id > ''") == ["a2", "b2", "c2"]
    assert is_index_used(child)
    assert ids(fork, "id = 'd'") == ["d"]


def test_indexes_that_only_lie_in_another_folder_are_found_there_again(place: Place) -> None:
    fork = compacted_by_lance(remove_rows(place.forks.create(place.main, "work"), "a"))
    astray = find_misplaced_indexes(fork)
    assert astray is not None
    assert not astray.missing
    repaired = commit_staged(astray.stage_repair())
    assert repaired.version == fork.version + 1
    assert find_misplaced_indexes(repaired) is None
    assert read_coverage(repaired) == read_coverage(fork), "nothing was rebuilt"
    assert is_index_used(repaired)
    assert ids(repaired, "id = 'b'") == ["b"]


def test_indexes_that_are_nowhere_are_dropped(place: Place) -> None:
    fork = compacted_by_lance(remove_rows(place.forks.create(place.main, "work"), "a"))
    for table in (without_index_files(fork), without_index_files(place.main)):
        astray = find_misplaced_indexes(table)
        assert astray is not None
        assert astray.missing == {"id_idx", "text_idx", "place_idx"}
        repaired = commit_staged(astray.stage_repair())
        assert read_coverage(repaired) == {}
        again = commit_staged(stage_indexes(repaired, SPECS))
        assert find_misplaced_indexes(again) is None
        assert is_index_used(again)


def test_cleaning_up_main_leaves_the_indexes_that_a_fork_inherits(place: Place) -> None:
    fork = place.forks.create(place.main, "work")
    main = remove_rows(place.main, "d")
    for _ in range(2):
        main = compact(commit_staged(stage_indexes(main, SPECS))).table
    collect_versions(main, [one for one in main.versions() if one != main.version])
    fork = Tables().open(fork.location, fork.version, branch="work")
    assert find_misplaced_indexes(fork) is None
    assert ids(fork, "id = 'd'") == ["d"]
    fork = compact(remove_rows(fork, "a")).table
    collect_versions(fork, [one for one in fork.versions() if one != fork.version])
    fork = Tables().open(fork.location, fork.version, branch="work")
    assert find_misplaced_indexes(fork) is None
    assert ids(fork, "id = 'd'") == ["d"]
    assert search_text(fork, "text", "walk") is not None


# --- without the files of an index ---------------------------------------------------------------


@pytest.fixture
def bare(place: Place) -> Table:
    """A fork whose indexes have no files any more."""
    return without_index_files(remove_rows(place.forks.create(place.main, "work"), "a"))


def test_rows_are_read_without_an_index_that_lost_its_files(bare: Table) -> None:
    with pytest.raises(ValueError, match="_indices"):
        bare.native.to_table(filter="id = 'b'")
    assert ids(bare, "id = 'b'") == ["b"]
    assert bare.count("id >= 'b'") == 3
    fresh = Tables().open(bare.location, bare.version, branch=bare.branch)
    assert fresh.count("id = 'c'") == 1
    fresh = Tables().open(bare.location, bare.version, branch=bare.branch)
    assert [batch.num_rows for batch in fresh.batches(["id"], where="id = 'b'")] == [1]
    assert [batch.num_rows for batch in fresh.batches(["id"], where="id = 'z'")] == []


@pytest.mark.parametrize(
    ("stage", "after"),
    [
        (lambda table: stage_upsert(table, docs("b", "e")), ["b", "c", "d", "e"]),
        (lambda table: stage_delete(table, pa.array(["b", "z"])), ["c", "d"]),
    ],
    ids=["rows", "delete"],
)
def test_rows_are_written_without_an_index_that_lost_its_files(
    bare: Table, stage: Callable[[Table], Staged], after: list[str]
) -> None:
    assert ids(commit_staged(stage(bare))) == after


def test_searches_see_that_there_is_no_index(bare: Table) -> None:
    assert find_text_index(bare, "text") is not None
    assert search_text(bare, "text", "walking") is None
    fresh = Tables().open(bare.location, bare.version, branch=bare.branch)
    index = find_vector_index(fresh, "place")
    assert index is not None
    assert search_vectors(fresh, index, "place", np.array([1, 0], np.float32), 2) is None


def test_a_lost_index_has_a_kind_of_its_own_and_lost_rows_have_another(bare: Table) -> None:
    with pytest.raises(StorageFailure) as caught, bare.access.call("scan", bare.uri):
        bare.native.to_table(filter="id = 'b'")
    assert caught.value.kind == TableFailureKind.INDEX_LOST
    data = LanceFileSession(bare.location.uri, storage_options=storage_options(bare.location))
    for path in data.list("data"):
        data.delete_file(path)
    fresh = Tables().open(bare.location, bare.version, branch=bare.branch)
    with pytest.raises(StorageFailure) as caught:
        fresh.scan(where="id = 'b'")
    assert caught.value.kind == TableFailureKind.RECLAIMED
