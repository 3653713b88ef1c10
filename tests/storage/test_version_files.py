from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph.errors import StorageFailure
from omnigraph.storage.failures import TableFailureKind
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from omnigraph.storage.session import Access
from omnigraph.storage.staging import Staged, commit_staged, stage_append, stage_config, stage_overwrite
from omnigraph.storage.tables import Table, Tables, storage_options
from omnigraph.storage.upkeep import collect_versions
from omnigraph.storage.version_files import (
    NewestVersion,
    check_newest,
    hint_file,
    is_version_stored,
    version_file,
)
from tests.storage.conftest import ask_s3

SCHEMA = pa.schema([pa.field("id", pa.string())])


def people(*ids: str) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=SCHEMA)


def create_table(at: Location, *ids: str) -> Table:
    table = Tables().create(at, SCHEMA, primary_key="id")
    for one in ids:
        table = commit_staged(stage_append(table, people(one)))
    return table


def counting_up(at: Location) -> Table:
    """A table whose versions have the names that old releases of Lance gave."""
    native = lance.write_dataset(
        people("ann"), at.uri, enable_v2_manifest_paths=False, storage_options=storage_options(at)
    )
    return Table(at, None, native.version, Access(Recorder()), native)


def is_last(table: Table) -> bool:
    return check_newest(table.uri, table.version)[0]


@pytest.fixture
def at(tmp_path: Path) -> Location:
    return Location.parse(tmp_path / "people")


# --- in a folder ---------------------------------------------------------------------------------


@pytest.mark.parametrize("branch", [None, "work/a"])
def test_the_newest_version_in_a_folder_is_known_without_a_listing(at: Location, branch: str | None) -> None:
    table = create_table(at, "ann", "bob")
    table.native.create_branch("work/a", (None, table.version))
    table = Tables().tip(at, branch=branch)
    folder = Path(table.uri)
    (folder / version_file(table.version + 5)).touch()  # all that lists the folder takes it for the newest
    assert table.native.latest_version == table.version + 5
    assert table.latest_version() == table.version
    assert table.latest() is table
    assert table.is_newest()


def test_a_version_with_a_successor_is_not_the_newest(at: Location) -> None:
    table = create_table(at, "ann")
    after = commit_staged(stage_append(table, people("bob")))
    assert [is_last(one) for one in (table, after)] == [False, True]
    assert not table.is_newest()
    assert table.latest() == after


def test_a_version_whose_successor_was_collected_is_not_the_newest(at: Location) -> None:
    table = create_table(at, "ann")
    after = commit_staged(stage_append(commit_staged(stage_append(table, people("bob"))), people("cid")))
    collect_versions(after, [table.version + 1])
    assert not is_version_stored(at.uri, table.version + 1)
    assert not table.is_newest()
    assert table.latest_version() == after.version
    assert table.latest() == after


def test_a_version_that_is_gone_is_not_the_newest(at: Location) -> None:
    table = create_table(at, "ann", "bob")
    (at.path / version_file(table.version)).unlink()
    (at.path / hint_file()).write_text(f'{{"version": {table.version - 1}}}')
    assert not is_last(table)


def test_a_writer_that_died_before_it_noted_its_version_hides_nothing(at: Location) -> None:
    before = create_table(at, "ann")
    after = commit_staged(stage_append(before, people("bob")))
    (at.path / hint_file()).write_text(f'{{"version": {before.version}}}')
    assert [is_last(one) for one in (before, after)] == [False, True]
    assert before.latest() == after
    assert commit_staged(stage_append(after, people("cid"))).version == after.version + 1


@pytest.mark.parametrize("note", [None, "", "{}", "[]", '{"version": null}', '{"version": "x"}'])
def test_without_a_note_the_folder_is_listed(at: Location, note: str | None) -> None:
    table = create_table(at, "ann")
    after = commit_staged(stage_append(table, people("bob")))
    hint = at.path / hint_file()
    hint.unlink() if note is None else hint.write_text(note)
    assert not is_last(after)
    assert table.latest_version() == after.version == after.latest_version()
    assert after.is_newest()


def test_only_a_proven_not_found_means_that_a_version_is_not_stored(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not is_version_stored(f"{tmp_path}/nowhere", 1)
    assert not is_version_stored(f"{tmp_path}/file", 1)
    looped = tmp_path / "loop"
    looped.symlink_to(looped)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        is_version_stored(str(looped), 1)


def test_a_look_that_fails_is_reported_and_typed(at: Location, tmp_path: Path) -> None:
    table = create_table(at, "ann")
    at.path.rename(tmp_path / "moved")
    at.path.symlink_to(at.path)
    with pytest.raises(StorageFailure) as caught:
        table.is_newest()
    assert at.uri in caught.value.message


# --- what was looked at before ---------------------------------------------------------------------


def age_note(at: Location) -> None:
    """Make the note look as if it was written long ago."""
    os.utime(at.path / hint_file(), (1_000_000_000, 1_000_000_000))


def watch_tip(at: Location) -> tuple[Table, NewestVersion]:
    """The newest version of a table, and what tells that it still is."""
    table = create_table(at, "ann")
    age_note(at)
    last, found = check_newest(at.uri, table.version)
    assert last
    assert found is not None
    assert found.holds()
    return table, found


def test_a_version_stays_the_newest_until_another_one_is_made(at: Location) -> None:
    table, found = watch_tip(at)
    assert found.holds()
    after = commit_staged(stage_append(table, people("bob")))
    assert not found.holds()
    age_note(at)
    assert not found.holds()
    assert check_newest(at.uri, table.version) == (False, None)
    assert check_newest(at.uri, after.version)[0]


def test_a_version_whose_successor_came_and_went_is_not_taken_for_the_newest(at: Location) -> None:
    table, found = watch_tip(at)
    after = commit_staged(stage_append(commit_staged(stage_append(table, people("bob"))), people("cid")))
    collect_versions(after, [table.version + 1])
    assert not is_version_stored(at.uri, table.version + 1)
    assert not found.holds()


def test_a_table_that_was_recreated_is_looked_at_again(at: Location) -> None:
    _, found = watch_tip(at)
    shutil.rmtree(at.path)
    assert not found.holds()
    create_table(at, "ann")
    assert not found.holds()


def test_a_note_of_this_very_moment_tells_nothing_later(at: Location) -> None:
    table = create_table(at, "ann")
    assert check_newest(at.uri, table.version) == (True, None)
    age_note(at)
    assert check_newest(at.uri, table.version)[1] is not None


def test_a_look_that_fails_does_not_tell_that_nothing_changed(at: Location, tmp_path: Path) -> None:
    table, found = watch_tip(at)
    assert table.latest() is table
    at.path.rename(tmp_path / "moved")
    at.path.symlink_to(at.path)
    assert not found.holds()
    with pytest.raises(StorageFailure):
        table.latest()


def test_versions_that_count_up_are_watched_by_their_names(at: Location) -> None:
    table = counting_up(at)
    age_note(at)
    found = check_newest(at.uri, table.version)[1]
    assert found is not None
    assert found.holds()
    commit_staged(stage_config(table, {"a": "1"}))
    assert not found.holds()


def test_a_table_that_was_found_to_be_the_newest_is_asked_by_two_names(
    at: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = watch_tip(at)
    assert table.latest() is table

    def refused(*_: object) -> None:
        raise AssertionError("the note was read")

    with monkeypatch.context() as patch:
        patch.setattr("omnigraph.storage.version_files._read_hint", refused)
        assert table.latest() is table
    after = commit_staged(stage_append(table, people("bob")))
    assert table.latest() == after


# --- in a folder and in a bucket -----------------------------------------------------------------


def test_tables_whose_versions_count_up_are_understood(shared_root: Location) -> None:
    table = counting_up(shared_root / "people")
    assert table.is_newest()
    after = commit_staged(stage_config(table, {"a": "1"}))
    assert after.version == table.version + 1
    assert not table.is_newest()
    assert after.is_newest()
    assert table.latest_version() == after.version


def test_a_fork_recreated_is_not_the_one_that_was(shared_root: Location) -> None:
    main = create_table(shared_root / "people", "ann")
    main.native.create_branch("work", (None, main.version))
    old = commit_staged(stage_append(Tables().tip(main.location, branch="work"), people("bob")))
    staged = stage_append(old, people("cid"))
    main.native.branches.delete("work")
    main.native.create_branch("work", (None, main.version))
    assert not old.is_newest(), "its version is above those of the new fork"
    with pytest.raises(StorageFailure) as caught:
        commit_staged(staged)
    assert caught.value.kind == TableFailureKind.MOVED
    assert Tables().tip(main.location, branch="work").scan()["id"].to_pylist() == ["ann"]


# --- in a bucket ---------------------------------------------------------------------------------


@pytest.mark.s3
def test_whether_a_table_in_a_bucket_moved_is_asked_by_name(s3_root: Location) -> None:
    table = create_table(s3_root / "people", "ann")
    ask_s3("record")
    assert table.is_newest()
    asked = [(method, path) for method, path, _ in ask_s3("requests") if s3_root.bucket in path]
    assert {method for method, _ in asked} == {"HEAD"}
    assert asked[0][1].endswith(f"people/{version_file(table.version + 1)}")


def test_an_overwrite_does_not_take_the_number_of_a_collected_version(shared_root: Location) -> None:
    table = create_table(shared_root / "people", "ann")
    staged = stage_overwrite(table, people("late"))
    after = commit_staged(stage_append(commit_staged(stage_append(table, people("bob"))), people("cid")))
    collect_versions(after, [table.version + 1])
    with pytest.raises(StorageFailure):
        commit_staged(staged)
    assert after.is_newest()
    assert Tables().tip(table.location).versions() == (1, table.version, after.version)


@pytest.mark.s3
@pytest.mark.parametrize("last", ["rows", "settings"])
def test_a_commit_over_a_collected_successor_is_never_a_silent_success(s3_root: Location, last: str) -> None:
    """The one state in which asking by name is not enough; under the branch's lock it cannot occur."""
    table = create_table(s3_root / "people", "ann")
    staged = stage_append(table, people("late"))
    after = commit_staged(stage_append(table, people("bob")))
    after = commit_staged(_change(after, last))
    collect_versions(after, [table.version + 1])
    assert table.is_newest()
    with pytest.raises(StorageFailure) as caught:
        commit_staged(staged)
    assert (
        caught.value.kind
        == {"rows": TableFailureKind.UNDECIDED, "settings": TableFailureKind.DISPLACED}[last]
    )


def _change(table: Table, what: str) -> Staged:
    return stage_append(table, people("cid")) if what == "rows" else stage_config(table, {"a": "1"})
