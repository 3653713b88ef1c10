from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph.errors import StorageFailure
from omnigraph.storage.cas import merge_rows
from omnigraph.storage.indexes import IndexSpec, coverage, stage_indexes
from omnigraph.storage.lance_errors import Trouble
from omnigraph.storage.location import Location
from omnigraph.storage.staging import commit_staged, stage_append, stage_delete, stage_upsert
from omnigraph.storage.tables import Table, Tables
from omnigraph.storage.upkeep import collect_versions, commit_compaction, compact, plan_compaction, rewrite

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("text", pa.string())])
SEEN = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def docs(*ids: str, text: str = "some text") -> pa.Table:
    return pa.table({"id": list(ids), "text": [text] * len(ids)}, schema=SCHEMA)


def filled(at: Location, fragments: int = 5) -> Table:
    table = Tables().create(at, SCHEMA, primary_key="id")
    for number in range(fragments):
        table = commit_staged(stage_append(table, docs(f"d{number}")))
    return table


def test_compaction_keeps_rows_their_ids_and_their_versions(shared_root: Location) -> None:
    table = commit_staged(stage_upsert(filled(shared_root / "docs"), docs("d1", text="new")))
    before = table.scan(SEEN).sort_by("id")
    done = compact(table)
    assert (done.table.fragment_count, done.fragments_added) == (1, 1)
    assert done.table.version == table.version + 2
    assert done.table.scan(SEEN).sort_by("id") == before
    assert table.scan(SEEN).sort_by("id") == before
    assert compact(done.table).table is done.table, "nothing to do moves nothing"


def test_planning_and_rewriting_move_nothing(shared_root: Location) -> None:
    table = filled(shared_root / "docs")
    rewritten = rewrite(plan_compaction(table))
    assert table.latest_version() == table.version
    assert commit_compaction(rewritten).table.latest_version() == table.version + 2


def test_a_compaction_that_lost_the_race_moves_the_table_but_no_row(shared_root: Location) -> None:
    table = filled(shared_root / "docs")
    rewritten = rewrite(plan_compaction(table))
    winner = commit_staged(stage_upsert(table, docs("d1", text="new")))
    with pytest.raises(StorageFailure) as caught:
        commit_compaction(rewritten)
    assert caught.value.kind == Trouble.CONFLICT
    head = table.latest()
    assert head.version == winner.version + 1
    assert head.scan(SEEN) == winner.scan(SEEN)


def test_compacting_a_fork_leaves_main(shared_root: Location) -> None:
    main = filled(shared_root / "docs")
    main.native.create_branch("work", (None, main.version))
    fork = compact(Tables().tip(shared_root / "docs", branch="work")).table
    assert (fork.branch, fork.fragment_count, fork.count()) == ("work", 1, 5)
    assert main.latest() is main


def test_collecting_removes_exactly_the_versions_named(shared_root: Location) -> None:
    table = compact(filled(shared_root / "docs")).table
    done = collect_versions(table, [1, 2, 4])
    assert (done.versions, table.versions()) == (3, (3, 5, 6, 7, 8))
    assert done.bytes > 0
    assert Tables().open(shared_root / "docs", 3).count() == 2
    assert collect_versions(table, []).versions == 0


def test_collecting_keeps_the_newest_version_and_what_a_fork_stands_on(shared_root: Location) -> None:
    table = filled(shared_root / "docs")
    Tables().open(shared_root / "docs", 3).native.create_branch("work", (None, 3))
    table = compact(table).table
    collect_versions(table, table.versions())
    assert table.versions() == (3, table.version)
    assert Tables().tip(shared_root / "docs").count() == 5
    assert Tables().tip(shared_root / "docs", branch="work").count() == 2


def test_collecting_leaves_staged_files_alone(shared_root: Location) -> None:
    table = filled(shared_root / "docs")
    staged = stage_append(table, docs("later"))
    collect_versions(table, [1, 2, 3])
    assert commit_staged(staged).count() == 6


def test_several_kinds_of_index_land_in_one_version_and_answer(shared_root: Location) -> None:
    table = filled(shared_root / "docs")
    specs = [IndexSpec("id", "BTREE", "by_id"), IndexSpec("text", "INVERTED", "by_text")]
    indexed = commit_staged(stage_indexes(table, specs))
    assert indexed.version == table.version + 1
    assert {name: found.is_complete for name, found in coverage(indexed).items()} == {
        "by_id": True,
        "by_text": True,
    }
    assert indexed.count("id = 'd3'") == 1
    assert indexed.native.to_table(full_text_query="text").num_rows == 5
    grown = commit_staged(stage_append(indexed, docs("d9")))
    assert not coverage(grown)["by_id"].is_complete
    rebuilt = commit_staged(stage_indexes(grown, specs))
    assert all(found.is_complete and found.segments == 1 for found in coverage(rebuilt).values())
    assert rebuilt.native.to_table(full_text_query="text").num_rows == 6


def test_rows_under_an_index_are_found_after_update_and_delete(shared_root: Location) -> None:
    table = filled(shared_root / "docs")
    table = commit_staged(stage_indexes(table, [IndexSpec("id", "BTREE", "by_id")]))
    table = commit_staged(stage_upsert(table, docs("d1", text="new")))
    table = commit_staged(stage_delete(table, pa.array(["d2"])))
    assert table.scan(["text"], where="id = 'd1'").to_pydict() == {"text": ["new"]}
    assert table.count("id = 'd2'") == 0


def test_swaps_stay_cheap_when_the_table_is_compacted(shared_root: Location) -> None:
    table = filled(shared_root / "docs", fragments=1)
    for number in range(6):
        table = merge_rows(table, docs("head", f"c{number}"), "id").table
    assert table.fragment_count > 6
    assert compact(table).table.fragment_count == 1
