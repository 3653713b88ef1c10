from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph.errors import StorageFailure
from omnigraph.storage.cas import merge_rows
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.fragments import list_fragments
from omnigraph.storage.indexes import (
    IndexExtension,
    IndexSpec,
    read_coverage,
    stage_extensions,
    stage_indexes,
    text_index_spec,
)
from omnigraph.storage.location import Location
from omnigraph.storage.staging import commit_staged, stage_append, stage_delete
from omnigraph.storage.tables import Table, Tables
from omnigraph.storage.upkeep import (
    collect_versions,
    commit_compaction,
    compact,
    plan_compaction,
    rewrite_fragments,
    stage_barrier,
)
from omnigraph.storage.upsert import stage_upsert

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("text", pa.string())])
SEEN = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def docs(*ids: str, text: str = "some text") -> pa.Table:
    return pa.table({"id": list(ids), "text": [text] * len(ids)}, schema=SCHEMA)


def create_filled(at: Location, fragments: int = 5) -> Table:
    table = Tables().create(at, SCHEMA, primary_key="id")
    for number in range(fragments):
        table = commit_staged(stage_append(table, docs(f"d{number}")))
    return table


def test_compaction_keeps_rows_their_ids_and_their_versions(shared_root: Location) -> None:
    table = commit_staged(stage_upsert(create_filled(shared_root / "docs"), docs("d1", text="new")))
    before = table.scan(SEEN).sort_by("id")
    done = compact(table)
    assert (done.table.fragment_count, done.fragments_added) == (1, 1)
    assert done.table.version == table.version + 2
    assert done.table.scan(SEEN).sort_by("id") == before
    assert table.scan(SEEN).sort_by("id") == before
    assert compact(done.table).table is done.table, "nothing to do moves nothing"


def test_planning_and_rewriting_move_nothing(shared_root: Location) -> None:
    table = create_filled(shared_root / "docs")
    rewritten = rewrite_fragments(plan_compaction(table))
    assert table.latest_version() == table.version
    assert commit_compaction(rewritten).table.latest_version() == table.version + 2


def test_only_the_fragments_that_are_named_are_put_together(shared_root: Location) -> None:
    table = create_filled(shared_root / "docs")
    chosen = [one.id for one in list_fragments(table)[1:4]]
    plan = plan_compaction(table, only=chosen)
    assert plan.fragments == set(chosen)
    done = commit_compaction(rewrite_fragments(plan)).table
    assert sorted(one.rows for one in list_fragments(done)) == [1, 1, 3]
    assert plan_compaction(table, only=chosen[:1]).is_empty
    assert plan_compaction(table, only=[]).is_empty


def test_fragments_tell_their_rows_and_bytes(shared_root: Location) -> None:
    table = create_filled(shared_root / "docs", fragments=2)
    table = commit_staged(stage_append(table, docs("x", "y", "z")))
    table = commit_staged(stage_delete(table, pa.array(["y"])))
    assert [one.rows for one in list_fragments(table)] == [1, 1, 2]
    assert all(one.bytes > 0 for one in list_fragments(table))


def test_a_compaction_that_lost_the_race_moves_the_table_but_no_row(shared_root: Location) -> None:
    table = create_filled(shared_root / "docs")
    rewritten = rewrite_fragments(plan_compaction(table))
    winner = commit_staged(stage_upsert(table, docs("d1", text="new")))
    with pytest.raises(StorageFailure) as caught:
        commit_compaction(rewritten)
    assert caught.value.kind == TableFailureKind.CONFLICT
    head = table.latest()
    assert head.version == winner.version + 1
    assert head.scan(SEEN) == winner.scan(SEEN)


def test_compacting_a_fork_leaves_main(shared_root: Location) -> None:
    main = create_filled(shared_root / "docs")
    main.native.create_branch("work", (None, main.version))
    fork = compact(Tables().tip(shared_root / "docs", branch="work")).table
    assert (fork.branch, fork.fragment_count, fork.count()) == ("work", 1, 5)
    assert main.latest() is main


def test_collecting_removes_exactly_the_versions_named(shared_root: Location) -> None:
    table = compact(create_filled(shared_root / "docs")).table
    done = collect_versions(table, [1, 2, 4])
    assert (done.versions, table.versions()) == (3, (3, 5, 6, 7, 8))
    assert done.bytes > 0
    assert Tables().open(shared_root / "docs", 3).count() == 2
    assert collect_versions(table, []).versions == 0


def test_collecting_keeps_the_newest_version_and_what_a_fork_stands_on(shared_root: Location) -> None:
    table = create_filled(shared_root / "docs")
    Tables().open(shared_root / "docs", 3).native.create_branch("work", (None, 3))
    table = compact(table).table
    collect_versions(table, table.versions())
    assert table.versions() == (3, table.version)
    assert Tables().tip(shared_root / "docs").count() == 5
    assert Tables().tip(shared_root / "docs", branch="work").count() == 2


def test_collecting_leaves_staged_files_alone(shared_root: Location) -> None:
    table = create_filled(shared_root / "docs")
    staged = stage_append(table, docs("later"))
    collect_versions(table, [1, 2, 3])
    assert commit_staged(staged).count() == 6


def test_a_barrier_changes_nothing_but_the_version(shared_root: Location) -> None:
    table = commit_staged(stage_upsert(create_filled(shared_root / "docs"), docs("d1", text="new")))
    after = commit_staged(stage_barrier(table))
    assert after.version == table.version + 1
    assert after.scan([*SEEN, "text"]) == table.scan([*SEEN, "text"])
    assert (after.schema, after.primary_key) == (table.schema, table.primary_key)
    assert after.schema.equals(table.schema, check_metadata=True)
    assert merge_rows(after, docs("d1", "d9"), "id").table.count() == table.count() + 1


def test_a_barrier_is_refused_where_the_table_moved(shared_root: Location) -> None:
    table = create_filled(shared_root / "docs")
    barrier = stage_barrier(table)
    swapped = merge_rows(table, docs("d1", text="new"), "id").table
    with pytest.raises(StorageFailure) as caught:
        commit_staged(barrier)
    assert caught.value.kind == TableFailureKind.MOVED
    assert table.latest_version() == swapped.version


@pytest.mark.parametrize("guarded", [False, True])
def test_a_late_swap_meets_the_barrier_where_the_versions_since_its_base_are_gone(
    shared_root: Location, guarded: bool
) -> None:
    """Without one it lands, and the row is there twice; if Lance ever refuses that, no barrier is needed."""
    late = table = create_filled(shared_root / "docs")
    for number in range(3):
        table = merge_rows(table, docs("d1", text=f"v{number}"), "id").table
    if guarded:
        table = commit_staged(stage_barrier(table))
    collect_versions(table, table.versions())
    if guarded:
        with pytest.raises(StorageFailure) as caught:
            merge_rows(late, docs("d1", text="late"), "id")
        assert caught.value.kind == TableFailureKind.CONTENTION
    else:
        merge_rows(late, docs("d1", text="late"), "id")
    assert table.latest().count("id = 'd1'") == (1 if guarded else 2)


@pytest.mark.parametrize("guarded", [False, True])
def test_a_late_compaction_is_refused_where_another_took_its_fragments(
    shared_root: Location, guarded: bool
) -> None:
    """A barrier does not stop it: only after a compaction of everything may versions be collected."""
    table = commit_staged(stage_append(create_filled(shared_root / "docs"), docs("e1", "e2")))
    late = rewrite_fragments(plan_compaction(table))
    table = merge_rows(table, docs("e1", text="new"), "id").table
    table = compact(table).table if guarded else table
    table = commit_staged(stage_barrier(table))
    collect_versions(table, table.versions())
    if guarded:
        with pytest.raises(StorageFailure) as caught:
            commit_compaction(late)
        assert caught.value.kind == TableFailureKind.CONFLICT
    else:
        commit_compaction(late)
    assert table.latest().count("id = 'e1'") == (1 if guarded else 2)


def test_collecting_keeps_what_a_fork_of_a_fork_stands_on(shared_root: Location) -> None:
    main = create_filled(shared_root / "docs")
    main.native.create_branch("work", (None, 3))
    work = commit_staged(stage_append(Tables().tip(shared_root / "docs", branch="work"), docs("w1")))
    work.native.create_branch("inner", ("work", work.version))
    stood_on = work.version
    for number in range(3):
        work = commit_staged(stage_append(work, docs(f"x{number}")))
    for table in (compact(work).table, compact(main).table):
        collect_versions(table, table.versions())
    assert main.latest().versions() == (3, main.latest().version)
    assert work.latest().versions() == (stood_on, work.latest().version)
    assert Tables().tip(shared_root / "docs", branch="inner").scan(["id"])["id"].to_pylist() == [
        "d0",
        "d1",
        "w1",
    ]
    assert work.latest().count() == 6


def test_several_kinds_of_index_land_in_one_version_and_answer(shared_root: Location) -> None:
    table = create_filled(shared_root / "docs")
    specs = [IndexSpec("id", "BTREE", "by_id"), IndexSpec("text", "INVERTED", "by_text")]
    indexed = commit_staged(stage_indexes(table, specs))
    assert indexed.version == table.version + 1
    assert {name: found.is_complete for name, found in read_coverage(indexed).items()} == {
        "by_id": True,
        "by_text": True,
    }
    assert indexed.count("id = 'd3'") == 1
    assert indexed.native.to_table(full_text_query="text").num_rows == 5
    grown = commit_staged(stage_append(indexed, docs("d9")))
    assert not read_coverage(grown)["by_id"].is_complete
    rebuilt = commit_staged(stage_indexes(grown, specs))
    assert all(found.is_complete and found.segments == 1 for found in read_coverage(rebuilt).values())
    assert rebuilt.native.to_table(full_text_query="text").num_rows == 6


def test_rows_under_an_index_are_found_after_update_and_delete(shared_root: Location) -> None:
    table = create_filled(shared_root / "docs")
    table = commit_staged(stage_indexes(table, [IndexSpec("id", "BTREE", "by_id")]))
    table = commit_staged(stage_upsert(table, docs("d1", text="new")))
    table = commit_staged(stage_delete(table, pa.array(["d2"])))
    assert table.scan(["text"], where="id = 'd1'").to_pydict() == {"text": ["new"]}
    assert table.count("id = 'd2'") == 0


def test_an_index_is_extended_by_a_segment_and_segments_can_be_joined(shared_root: Location) -> None:
    spec = IndexSpec("id", "BTREE", "by_id")
    table = commit_staged(stage_indexes(create_filled(shared_root / "docs"), [spec]))
    table = commit_staged(stage_append(table, docs("e1")))
    table = commit_staged(stage_extensions(table, [IndexExtension(spec, _outside(table, "by_id"))]))
    index = read_coverage(table)["by_id"]
    assert (index.segments, index.is_complete) == (2, True)
    table = commit_staged(stage_append(table, docs("e2")))
    small = min(index.parts, key=lambda part: len(part.fragments))
    joined = IndexExtension(spec, _outside(table, "by_id") | small.fragments, frozenset({small.uuid}))
    table = commit_staged(stage_extensions(table, [joined]))
    index = read_coverage(table)["by_id"]
    assert (index.segments, index.is_complete) == (2, True)
    assert [table.count(f"id = '{name}'") for name in ("d1", "e1", "e2", "e3")] == [1, 1, 1, 0]


def test_an_older_segment_does_not_find_what_a_row_said_before(shared_root: Location) -> None:
    """Of scalars; were it otherwise, such an index could only be rebuilt as a whole."""
    spec = IndexSpec("text", "BTREE", "by_text")
    table = commit_staged(stage_indexes(create_filled(shared_root / "docs"), [spec]))
    table = commit_staged(stage_upsert(table, docs("d1", text="new")))
    table = commit_staged(stage_extensions(table, [IndexExtension(spec, _outside(table, "by_text"))]))
    assert read_coverage(table)["by_text"].segments == 2
    assert (table.count("text = 'new'"), table.count("text = 'some text'")) == (1, 4)


def test_a_text_index_is_whole_and_right_after_updates_and_compactions(shared_root: Location) -> None:
    spec = text_index_spec("text", "by_text")
    table = commit_staged(stage_indexes(create_filled(shared_root / "docs"), [spec]))
    for round_ in range(3):
        table = commit_staged(stage_upsert(table, docs(f"d{round_}", text="swimming")))
        table = compact(table).table
        table = commit_staged(stage_indexes(table, [spec]))
        index = read_coverage(table)["by_text"]
        assert (index.kind, index.segments, index.is_complete) == ("INVERTED", 1, True)
        assert table.native.to_table(full_text_query="swim").num_rows == round_ + 1
        assert table.native.to_table(full_text_query="text").num_rows == 4 - round_


def _outside(table: Table, name: str) -> frozenset[int]:
    return frozenset(one.id for one in list_fragments(table)) - read_coverage(table)[name].covered


def test_swaps_stay_cheap_when_the_table_is_compacted(shared_root: Location) -> None:
    table = create_filled(shared_root / "docs", fragments=1)
    for number in range(6):
        table = merge_rows(table, docs("head", f"c{number}"), "id").table
    assert table.fragment_count > 6
    assert compact(table).table.fragment_count == 1
