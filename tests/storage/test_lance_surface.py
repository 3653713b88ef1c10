"""What omnigraph leans on in Lance: one test per fact, to be run first when Lance is upgraded.

These tests use Lance itself. One that turns red says which part of omnigraph has to be thought through again.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import Index, LanceDataset, Transaction
from lance import LanceOperation as Op
from lance.commit import CommitConflictError
from lance.dataset import Session  # type: ignore[attr-defined]  # public in its documentation only
from lance.fragment import write_fragments
from lance.optimize import Compaction, CompactionOptions

from omnigraph.storage.version_files import data_file_name

KEY: dict[str, str | None] = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False, metadata=KEY), pa.field("n", pa.int64())])


def rows(*ids: str, n: int = 0) -> pa.Table:
    return pa.table({"id": list(ids), "n": [n] * len(ids)}, schema=SCHEMA)


def create_table(at: Path, *batches: pa.Table) -> LanceDataset:
    ds = lance.write_dataset(
        SCHEMA.empty_table(), str(at), enable_stable_row_ids=True, data_storage_version="2.2"
    )
    for batch in batches:
        ds = lance.write_dataset(batch, ds, mode="append")
    return lance.dataset(str(at))


def ids(ds: LanceDataset) -> list[str]:
    return sorted(ds.to_table(columns=["id"])["id"].to_pylist())


def swap(ds: LanceDataset, data: pa.Table, *, use_index: bool = False, retries: int = 0) -> Any:
    builder = ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    return builder.conflict_retries(retries).use_index(use_index).execute(data)


def upsert(ds: LanceDataset, *names: str, n: int = 1) -> Transaction:
    builder = ds.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    return builder.execute_uncommitted(rows(*names, n=n))[0]


def delete(ds: LanceDataset, *names: str) -> Transaction:
    keys = pa.table([pa.array(names)], schema=pa.schema([SCHEMA.field("id")]))
    return ds.merge_insert("id").when_matched_delete().execute_uncommitted(keys)[0]


def append(ds: LanceDataset, *names: str) -> Transaction:
    return write_fragments(rows(*names), ds, mode="append", return_transaction=True)


def overwrite(ds: LanceDataset, *names: str) -> Transaction:
    return write_fragments(rows(*names), ds, mode="overwrite", return_transaction=True)


def index(ds: LanceDataset, column: str = "id", kind: str = "BTREE", name: str = "by_id") -> Transaction:
    fragments = [fragment.fragment_id for fragment in ds.get_fragments()]
    built = ds.create_index_uncommitted(column, kind, name=name, fragment_ids=fragments)
    return Transaction(ds.version, Op.CreateIndex(new_indices=[built], removed_indices=[]))


def commit(ds: LanceDataset, transaction: Transaction) -> LanceDataset:
    return LanceDataset.commit(ds, transaction, max_retries=0)


# --- commits -------------------------------------------------------------------------------------


def test_commit_without_retries_still_slides_over_other_commits(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    first, second = append(ds, "b"), append(ds, "c")
    commit(ds, first)
    assert commit(ds, second).version == ds.version + 2, (
        "max_retries=0 used to mean 'rebase once'; if it is a strict check now, the fence in staging.py "
        "and the check of the landed version can be simplified"
    )


def test_staged_upsert_has_lost_the_filter_of_its_keys(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    first, second = upsert(ds, "new"), upsert(ds, "new")
    commit(ds, first)
    assert ids(commit(ds, second)) == ["a", "new", "new"], (
        "two staged inserts of one key used to land both; if they conflict now, publish could be staged too"
    )


def test_one_shot_merge_reports_contention_in_these_words(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    stale = copy.copy(ds)
    swap(ds, rows("new"))
    with pytest.raises(OSError, match="Too many concurrent writers") as caught:
        swap(stale, rows("new", n=2))
    assert type(caught.value) is OSError, "failures.py recognises contention by this text alone"


def test_one_shot_merge_moves_the_handle_it_ran_on(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    other = copy.copy(ds)
    swap(other, rows("b"))
    assert (ds.version, other.version) == (2, 3), "cas.py runs on a copy and reads the landed version from it"


def test_index_on_the_key_switches_the_conflict_check_off(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    ds.create_scalar_index("id", "BTREE")
    stale = copy.copy(ds)
    swap(ds, rows("new"), use_index=True)
    swap(stale, rows("new"), use_index=True)
    assert ids(stale) == ["a", "new", "new"], "if this is repaired, cas.py need not forbid the index any more"


def test_index_on_the_key_is_harmless_when_not_used(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    ds.create_scalar_index("id", "BTREE")
    stale = copy.copy(ds)
    swap(ds, rows("new"))
    with pytest.raises(OSError, match="Too many concurrent writers"):
        swap(stale, rows("new"))


def test_retries_inside_lance_overwrite_what_was_decided_on(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    stale = copy.copy(ds)
    swap(ds, rows("a", n=1))
    swap(stale, rows("a", n=2), retries=3)
    assert lance.dataset(ds.uri).to_table()["n"].to_pylist() == [2], (
        "cas.py must go on asking for zero retries"
    )


def test_two_new_rows_with_one_key_are_inserted_silently(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    swap(ds, rows("new", "new"))
    assert ids(ds) == ["a", "new", "new"], "our own check for duplicate keys could go"


def test_mark_and_properties_of_the_caller_are_stored(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    staged = append(ds, "b")
    ours = Transaction(
        staged.read_version, staged.operation, "7f3f0b9e-5d0a-4c0e-9b0e-1d2c3b4a5f60", {"who": "me"}
    )
    found = commit(ds, ours).read_transaction(3)
    assert found is not None
    assert (found.uuid, found.transaction_properties) == (ours.uuid, {"who": "me"}), (
        "proof of authorship is lost"
    )


def test_committing_a_transaction_twice_applies_it_twice(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    staged = append(ds, "b")
    commit(ds, staged)
    assert ids(commit(ds, staged)) == ["a", "b", "b"], "Lance may know marks now; see commit_staged"


def test_commit_leaves_the_handle_it_was_given(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    assert (commit(ds, append(ds, "b")).version, ds.version) == (3, 2), "a Table would move under its readers"


def test_overwrite_without_retries_is_a_strict_swap(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    staged = overwrite(ds, "z")
    commit(ds, Transaction(ds.version, Op.UpdateConfig(config_updates=Op.UpdateMap({"k": "v"}))))
    with pytest.raises(CommitConflictError, match="after 0 retries"):
        commit(ds, staged)


def test_a_fence_does_not_see_an_index_build(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    staged = upsert(ds, "a")
    commit(ds, index(ds))
    assert commit(ds, staged).version == ds.version + 2, (
        "the check of the landed version would be superfluous"
    )


def test_overlapping_changes_conflict_in_these_words(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a", "b"))
    first, second = upsert(ds, "a"), delete(ds, "b")
    commit(ds, first)
    with pytest.raises(CommitConflictError, match="Retryable commit conflict"):
        commit(ds, second)


def test_a_delete_of_nothing_makes_a_version(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    assert commit(ds, delete(ds, "missing")).version == ds.version + 1, (
        "an empty change may be dropped silently now"
    )


def test_an_overwrite_with_nothing_keeps_counting_row_ids(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a", "b"))
    emptied = commit(ds, overwrite(ds))
    refilled = lance.write_dataset(rows("a"), emptied, mode="append")
    assert emptied.has_stable_row_ids
    assert refilled.to_table(columns=["_rowid"])["_rowid"].to_pylist() == [2], "row ids would be used twice"


def test_an_overwrite_keeps_the_key_only_if_its_schema_says_so(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    bare = pa.schema([pa.field("id", pa.string(), nullable=False)])
    staged = write_fragments(bare.empty_table(), ds, mode="overwrite", return_transaction=True)
    assert commit(ds, staged).lance_schema.unenforced_primary_key() == [], (
        "stage_overwrite marks the key itself"
    )


def test_settings_conflict_on_one_key_only_and_schema_metadata_always(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))

    def setting(**changes: str | None) -> Transaction:
        return Transaction(ds.version, Op.UpdateConfig(config_updates=Op.UpdateMap(changes)))

    commit(ds, setting(k="1"))
    assert commit(ds, setting(other="2")).config() == {"k": "1", "other": "2"}
    with pytest.raises(CommitConflictError, match="Incompatible transaction"):
        commit(ds, setting(k="3"))
    tip = lance.dataset(ds.uri)
    stamp = Op.UpdateConfig(schema_metadata_updates=Op.UpdateMap({"stamp": "4"}))
    other = Op.UpdateConfig(schema_metadata_updates=Op.UpdateMap({"other": "4"}))
    commit(tip, Transaction(tip.version, stamp))
    with pytest.raises(CommitConflictError):
        commit(tip, Transaction(tip.version, other))


def test_the_key_cannot_be_changed_once_set(tmp_path: Path) -> None:
    plain = pa.schema([pa.field("id", pa.string(), nullable=False)])
    ds = lance.write_dataset(plain.empty_table(), str(tmp_path / "t"), enable_stable_row_ids=True)
    ds.update_field_metadata({"id": KEY})
    assert [field.name() for field in ds.lance_schema.unenforced_primary_key()] == ["id"]
    with pytest.raises(OSError, match="primary key"):
        ds.update_field_metadata({"id": KEY})


def test_a_create_that_lost_the_race_replaces_the_table_unless_it_may_not_retry(tmp_path: Path) -> None:
    def staged(name: str) -> Transaction:
        return write_fragments(rows(name), uri, mode="create", return_transaction=True)

    uri = str(tmp_path / "t")
    first, second, third = staged("first"), staged("second"), staged("third")
    LanceDataset.commit(uri, first, enable_stable_row_ids=True, max_retries=0)
    with pytest.raises(OSError, match=r"_versions/0.manifest was not found"):
        LanceDataset.commit(uri, second, enable_stable_row_ids=True, max_retries=0)
    assert ids(lance.dataset(uri)) == ["first"]
    assert ids(LanceDataset.commit(uri, third, enable_stable_row_ids=True)) == ["third"], (
        "with retries, which `write_dataset` always allows, the loser used to replace the winner's table"
    )


# --- restore -------------------------------------------------------------------------------------

STAGES: dict[str, Callable[[LanceDataset], Transaction]] = {
    "append": lambda ds: append(ds, "new"),
    "upsert": lambda ds: upsert(ds, "a", "new"),
    "delete": lambda ds: delete(ds, "a"),
    "overwrite": lambda ds: overwrite(ds, "new"),
    "index": index,
}


@pytest.mark.parametrize("kind", STAGES)
def test_restore_defeats_everything_staged_before_it(tmp_path: Path, kind: str) -> None:
    ds = create_table(tmp_path / "t", rows("a"), rows("b"))
    staged = STAGES[kind](ds)
    restored = commit(ds, Transaction(ds.version, Op.Restore(version=2)))
    with pytest.raises(CommitConflictError):
        commit(ds, staged)
    assert ids(restored) == ["a"], "a rollback would not stop a writer that wakes up later"


def test_restore_defeats_a_compaction_that_was_rewritten_before_it(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"), rows("b"))
    plan = Compaction.plan(ds, CompactionOptions())
    done = [task.execute(ds) for task in plan.tasks]
    restored = commit(ds, Transaction(ds.version, Op.Restore(version=2)))
    with pytest.raises(OSError, match="Incompatible transaction: This ReserveFragments transaction"):
        Compaction.commit(copy.copy(ds), done)
    tip = lance.dataset(ds.uri)
    assert (tip.version, ids(tip)) == (restored.version, ["a"]), (
        "upkeep that wakes up after a rollback would move the table, or bring back the rows that were undone"
    )


def test_restore_overrides_what_landed_before_it(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    restore = Transaction(ds.version, Op.Restore(version=2))
    commit(ds, append(ds, "b"))
    assert ids(commit(ds, restore)) == ["a"], "restore may conflict now: rollback would need to try again"


def test_settings_pass_a_restore(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    staged = Transaction(ds.version, Op.UpdateConfig(config_updates=Op.UpdateMap({"k": "v"})))
    commit(ds, Transaction(ds.version, Op.Restore(version=2)))
    assert commit(ds, staged).config() == {"k": "v"}, "the one change a restore does not stop"


# --- branches ------------------------------------------------------------------------------------


def test_a_branch_opens_by_its_folder_and_counts_on_from_its_source(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"), rows("b"))
    made = ds.create_branch("x/y", (None, 2))
    opened = lance.dataset(f"{ds.uri}/tree/x/y", version=2)
    assert (made.version, opened.latest_version, ids(opened)) == (2, 2, ["a"]), (
        "tables.py opens forks this way"
    )
    assert commit(opened, append(opened, "z")).version == 3
    assert ds.latest_version == 3


def test_a_branch_reference_is_one_small_file_of_this_form(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    ds.create_branch("x/Ü", (None, 2))
    (listed,) = ds.branches.list().values()
    stored = json.loads((tmp_path / "t/_refs/branches/x%2F%C3%9C.json").read_text())
    assert stored["identifier"] == {"version_mapping": [list(pair) for pair in listed["branch_identifier"]]}
    assert (stored["parentBranch"], stored["parentVersion"]) == (None, 2), "forks.py reads this file alone"


def test_a_branch_created_again_has_another_identifier(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    marks = []
    for _ in range(2):
        ds.create_branch("b", (None, 2))
        marks.append(ds.branches.list()["b"]["branch_identifier"])
        ds.branches.delete("b")
    assert marks[0] != marks[1], "handles of two incarnations could not be distinguished"


def test_a_session_does_not_mix_the_lives_of_a_branch(tmp_path: Path) -> None:
    ds, session = create_table(tmp_path / "t", rows("a")), Session()
    for name in ("old", "new"):
        ds.create_branch("b", (None, 2))
        fork = lance.dataset(f"{ds.uri}/tree/b", session=session)
        commit(fork, append(fork, name))
        assert ids(lance.dataset(f"{ds.uri}/tree/b", version=3, session=session)) == ["a", name]
        ds.branches.delete("b")


def test_names_one_below_the_other_live_side_by_side(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    for name in ("a", "a/b", "a/b/c"):
        ds.create_branch(name, (None, 2))
    ds.branches.delete("a/b")
    assert sorted(ds.branches.list()) == ["a", "a/b/c"]
    assert ids(lance.dataset(f"{ds.uri}/tree/a/b/c")) == ["a"], "deleting a branch took the one below with it"


def test_a_branch_with_children_cannot_be_deleted(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    ds.create_branch("b", (None, 2)).create_branch("c", ("b", 2))
    with pytest.raises(OSError, match="versions, can not delete"):
        ds.branches.delete("b")


def test_files_without_a_reference_block_the_name_and_deleting_says_not_found(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    ds.create_branch("b", (None, 2))
    (tmp_path / "t/_refs/branches/b.json").unlink()
    assert ds.branches.list() == {}
    with pytest.raises(
        OSError, match=r"Clone operation should not enter build_manifest|Dataset already exists"
    ):
        ds.create_branch("b", (None, 2))
    with pytest.raises(ValueError, match="Ref not found error"):
        ds.branches.delete("b")


def test_a_handle_of_an_earlier_life_commits_into_the_new_one(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    ds.create_branch("b", (None, 2))
    stale = lance.dataset(f"{ds.uri}/tree/b")
    stale = commit(stale, append(stale, "old"))
    staged = append(stale, "late")
    ds.branches.delete("b")
    ds.create_branch("b", (None, 2))
    commit(stale, staged)
    assert lance.dataset(f"{ds.uri}/tree/b").version == 4, (
        "Lance may notice a branch that was created again; then names could be reused without waiting"
    )


# --- reading, history and upkeep -----------------------------------------------------------------


def test_what_is_missing_or_there_already_is_reported_in_these_words(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    with pytest.raises(ValueError, match="was not found: Not found:"):
        lance.dataset(str(tmp_path / "none"))
    with pytest.raises(ValueError, match="was not found: Not found:"):
        lance.dataset(ds.uri, version=9)
    with pytest.raises(OSError, match="was not found: Not found:"):
        ds.checkout_version(9)
    with pytest.raises(OSError, match="was not found: Not found:"):
        ds.read_transaction(9)
    with pytest.raises(OSError, match="Dataset already exists"):
        lance.write_dataset(rows("a"), ds.uri, mode="create")


def test_versions_are_stored_under_these_names(tmp_path: Path) -> None:
    create_table(tmp_path / "t", rows("a"))
    names = {path.name for path in (tmp_path / "t/_versions").glob("*.manifest")}
    assert names == {f"{2**64 - 1 - version:020}.manifest" for version in (1, 2)}, "manifest_path is computed"


def read_hint(at: Path) -> int:
    return int(json.loads((at / "_versions/latest_version_hint.json").read_text())["version"])


MOVES: dict[str, Callable[[LanceDataset], object]] = {
    "commit": lambda ds: commit(ds, append(ds, "new")),
    "merge": lambda ds: swap(ds, rows("new")),
    "compaction": lambda ds: ds.optimize.compact_files(),
    "restore": lambda ds: commit(ds, Transaction(ds.version, Op.Restore(version=2))),
    "fork": lambda ds: ds.create_branch("b", (None, ds.version)),
}


@pytest.mark.parametrize("kind", MOVES)
def test_every_version_in_a_folder_is_noted_before_the_call_returns(tmp_path: Path, kind: str) -> None:
    ds = create_table(tmp_path / "t", rows("a"), rows("b"))
    MOVES[kind](ds)
    assert read_hint(tmp_path / "t") == lance.dataset(ds.uri).version, "version_files.py reads the note"
    if kind == "fork":
        assert read_hint(tmp_path / "t/tree/b") == ds.version


def test_a_commit_in_a_folder_goes_up_from_the_note_and_lists_nothing(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    (tmp_path / f"t/_versions/{2**64 - 1 - 9:020}.manifest").touch()
    assert ds.latest_version == 9, "this one lists; if it does not any more, tables.py need not spare it"
    assert commit(ds, append(ds, "b")).version == 3, "if commits list, they cost more with every version kept"


def test_a_note_that_lags_behind_collected_versions_lets_a_stale_commit_fill_the_gap(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    staged = append(ds, "stale")
    newest = commit(commit(ds, append(ds, "b")), append(ds, "c"))
    newest.cleanup_old_versions(versions=[3])
    (tmp_path / "t/_versions/latest_version_hint.json").write_text('{"version": 2}')
    assert commit(ds, staged).version == 3, (
        "Lance itself rests on the note being right once versions are collected, as version_files.py does"
    )


def test_a_strict_overwrite_takes_the_number_of_a_collected_version(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    staged = overwrite(ds, "stale")
    newest = commit(commit(ds, append(ds, "b")), append(ds, "c"))
    with pytest.raises(CommitConflictError):
        commit(ds, staged)
    newest.cleanup_old_versions(versions=[3])
    assert commit(ds, staged).version == 3 < lance.dataset(ds.uri).version, (
        "Lance may look above the next number now; then commit_staged need not list for an overwrite"
    )


def test_tables_of_old_releases_count_their_versions_up(tmp_path: Path) -> None:
    lance.write_dataset(rows("a"), str(tmp_path / "t"), enable_v2_manifest_paths=False)
    names = {path.name for path in (tmp_path / "t/_versions").glob("*.manifest")}
    assert names == {"1.manifest"}, "version_files.py looks for both names"


def test_rows_are_taken_by_row_id_in_order(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a", "b"), rows("c"))
    assert ds._take_rows([2, 9, 0], columns=["id"])["id"].to_pylist() == ["c", "a"], "Table.take relies on it"


def test_a_data_file_is_asked_for_its_name_without_defining_a_class(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    (file,) = ds.get_fragments()[0].data_files()
    assert data_file_name(file) == file.path, "Lance has another attribute for the name now"
    assert type(data_file_name(file)) is str
    assert type(file.path) is not str, "Lance returns plain texts now; then `data_file_name` can go"


def test_filtering_by_creation_equals_checking_out_across_compaction(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t")
    seen: dict[int, list[str]] = {}
    for number in range(12):
        swap(ds, rows(f"commit{number}"))
        seen[ds.version] = ids(ds)
        if number % 5 == 4:
            ds.optimize.compact_files()
    for version, expected in seen.items():
        found = ds.to_table(columns=["id"], filter=f"_row_created_at_version <= {version}")
        assert sorted(found["id"].to_pylist()) == expected, "time travel reads the newest manifest this way"


def test_a_failed_compaction_still_moves_the_table(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"), rows("b"))
    plan = Compaction.plan(ds, CompactionOptions())
    done = [task.execute(ds) for task in plan.tasks]
    assert ds.latest_version == ds.version
    commit(ds, upsert(ds, "a"))
    with pytest.raises(OSError, match=r"Retryable commit conflict|Incompatible transaction"):
        Compaction.commit(copy.copy(ds), done)
    assert ds.latest_version == ds.version + 2, "upkeep must not publish a version that is not there"


def test_some_transactions_can_only_be_printed(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"), rows("b"))
    ds.create_scalar_index("id", "BTREE")
    ds.optimize.compact_files()
    built = ds.read_transaction(ds.version - 1)
    assert built is not None
    assert type(built.operation) is Op.BaseOperation
    with pytest.raises(TypeError, match=r"RewrittenIndex.__init__"):
        ds.read_transaction(ds.version)


def test_cleanup_keeps_only_versions_that_branches_stand_on(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"), rows("b"), rows("c"))
    ds.create_branch("b", (None, 3))
    ds.optimize.compact_files()
    ds.cleanup_old_versions(versions=[1, 2, 3, 4])
    assert [ref["version"] for ref in ds.version_refs() if ref["version"] < 5] == [3], (
        "versions only our manifest pins must be kept from cleanup by us; those under a fork Lance keeps"
    )
    assert ids(lance.dataset(f"{ds.uri}/tree/b")) == ["a", "b"]


def fork_with_index(at: Path, kind: str = "BTREE") -> LanceDataset:
    ds = create_table(at, rows("a", "b", "c", "d"))
    transaction = index(ds, kind=kind)
    if kind == "INVERTED":
        assert isinstance(transaction.operation, Op.CreateIndex)
        transaction.operation.new_indices = [
            ds.merge_existing_index_segments(transaction.operation.new_indices)
        ]
    ds = commit(ds, transaction)
    ds.create_branch("b", (None, ds.version))
    fork = lance.dataset(f"{ds.uri}/tree/b")
    return commit(fork, delete(fork, "a"))


def only_segment(ds: LanceDataset) -> Any:
    ((found,),) = (found.segments for found in ds.describe_indices())
    return found


def test_compacting_a_fork_leaves_its_b_trees_where_they_are_not_looked_for(tmp_path: Path) -> None:
    fork = fork_with_index(tmp_path / "t")
    before = only_segment(fork)
    fork.optimize.compact_files()
    after = only_segment(fork)
    assert (before.base_id, after.base_id) == (0, 0)
    assert fork.base_paths()[0].path == str(tmp_path / "t")
    assert [path.name for path in (tmp_path / "t/tree/b/_indices").iterdir()] == [after.uuid]
    assert after.uuid != before.uuid
    with pytest.raises(ValueError, match=r"Not found: \S+/t/_indices/"):
        fork.to_table(filter="id = 'b'")
    with pytest.raises(OSError, match=r"Not found: \S+/t/_indices/"):
        upsert(fork, "b")
    without = fork.merge_insert("id").when_matched_update_all().use_index(False)
    assert without.execute_uncommitted(rows("b"))[1]["num_updated_rows"] == 1, (
        "when this turns red because Lance looks in the right place, `find_astray` after a compaction can go"
    )


def test_compacting_a_fork_leaves_text_indexes_in_place(tmp_path: Path) -> None:
    fork = fork_with_index(tmp_path / "t", "INVERTED")
    before = only_segment(fork)
    fork.optimize.compact_files()
    assert only_segment(fork).uuid == before.uuid
    assert fork.to_table(full_text_query="b").num_rows == 1


def test_the_place_of_an_index_can_be_corrected(tmp_path: Path) -> None:
    fork = fork_with_index(tmp_path / "t")
    fork.optimize.compact_files()
    (stored,), segment = fork.describe_indices(), only_segment(fork)
    facts = {
        "uuid": segment.uuid,
        "name": stored.name,
        "fields": stored.fields,
        "dataset_version": segment.dataset_version_at_last_update,
        "fragment_ids": segment.fragment_ids,
        "index_version": segment.index_version,
    }
    here = Index(**facts, index_details=(stored.type_url, b""))
    repair = Op.CreateIndex(new_indices=[here], removed_indices=[Index(**facts, base_id=segment.base_id)])
    repaired = commit(fork, Transaction(fork.version, repair))
    assert only_segment(repaired).base_id is None
    assert "ScalarIndexQuery" in repaired.scanner(filter="id = 'b'").explain_plan(verbose=True)
    assert repaired.count_rows(filter="id = 'b'") == 1
    assert repaired.count_rows(filter="id = 'a'") == 0


def test_deleting_unverified_files_breaks_a_staged_change(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a"))
    kept, lost = append(ds, "kept1", "kept2"), append(ds, "lost1", "lost2")
    ds.cleanup_old_versions(versions=[1])
    assert ids(commit(ds, kept)) == ["a", "kept1", "kept2"]
    ds.cleanup_old_versions(versions=[1], delete_unverified=True)
    with pytest.raises(pa.ArrowInvalid, match="Not found:"):
        commit(ds, lost).to_table()


def test_one_commit_carries_indexes_of_several_kinds(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("some words"))
    text = ds.create_index_uncommitted("id", "INVERTED", name="by_text", fragment_ids=[0])
    text = ds.merge_existing_index_segments([text])
    number = ds.create_index_uncommitted("n", "BTREE", name="by_n", fragment_ids=[0])
    done = commit(ds, Transaction(ds.version, Op.CreateIndex(new_indices=[text, number], removed_indices=[])))
    assert {found.name for found in done.describe_indices()} == {"by_text", "by_n"}
    assert done.to_table(full_text_query="words").num_rows == 1


def test_a_text_index_that_was_not_merged_commits_and_then_fails(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("some words"))
    done = commit(ds, index(ds, "id", "INVERTED", "by_text"))
    with pytest.raises(ValueError, match=r"tokens.lance"):
        done.to_table(full_text_query="words")


def test_compaction_keeps_blobs_apart_from_null_and_empty(tmp_path: Path) -> None:
    payloads = [b"bytes", b"", None, b"x" * 200_000]
    schema = pa.schema([pa.field("id", pa.string(), nullable=False, metadata=KEY), lance.blob_field("body")])
    uri = str(tmp_path / "t")
    for number, payload in enumerate(payloads):
        table = pa.table([pa.array([str(number)]), lance.blob_array([payload])], schema=schema)
        mode = "append" if number else "create"
        lance.write_dataset(table, uri, mode=mode, enable_stable_row_ids=True, data_storage_version="2.2")
    ds = lance.dataset(uri)
    ds.optimize.compact_files()
    assert len(ds.get_fragments()) == 1
    found = ds.scanner(columns=["body"], blob_handling="all_binary").to_table()
    assert found["body"].to_pylist() == payloads, "compaction of tables with blobs must be switched off"


def test_a_one_row_write_costs_this_many_files(tmp_path: Path) -> None:
    ds = create_table(tmp_path / "t", rows("a", "a2"), rows("b", "b2"))

    def files() -> set[Path]:
        return {path for path in (tmp_path / "t").rglob("*") if path.is_file()}

    def new_files(act: Callable[[], object]) -> dict[str, int]:
        before = files()
        act()
        kinds = [path.relative_to(tmp_path / "t").parts[0] for path in files() - before]
        return {kind: kinds.count(kind) for kind in sorted(kinds)}

    insert = new_files(lambda: commit(ds, append(ds, "c")))
    assert insert == {"_transactions": 1, "_versions": 1, "data": 1}
    tip = lance.dataset(ds.uri)
    replace = new_files(lambda: commit(tip, upsert(tip, "a")))
    assert replace == {"_deletions": 1, "_transactions": 1, "_versions": 1, "data": 1}
    tip = lance.dataset(ds.uri)
    publish = new_files(lambda: swap(tip, rows("b", "d")))
    assert publish == {"_deletions": 1, "_transactions": 1, "_versions": 1, "data": 1}
