"""The contract of control objects, the same in a folder, in memory and in a bucket."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from omnigraph import errors
from omnigraph.storage.failures import FailureKind
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Call, ObjectStore, Recorder
from omnigraph.storage.stores import open_store
from tests.storage.conftest import Place


def _names(store: ObjectStore, at: Location) -> list[str]:
    return sorted(found.name for found in store.list_dir(at))


def test_text_written_is_text_read(place: Place) -> None:
    at = place.root / "a" / "b.json"
    place.store.write_text(at, "Grüße\r\n\0 ✓")
    assert place.store.read_text(at) == "Grüße\r\n\0 ✓"
    place.store.write_text(at, "")
    assert place.store.read_text(at) == ""


def test_a_missing_object_is_a_typed_not_found(place: Place) -> None:
    at = place.root / "absent.json"
    with pytest.raises(errors.StorageFailure, match="does not exist") as failure:
        place.store.read_text(at)
    assert failure.value.kind == FailureKind.NOT_FOUND
    assert failure.value.uri == at.uri
    assert place.store.read_text_if_exists(at) is None
    assert place.store.read_text_versioned(at) is None


def test_a_prefix_is_not_an_object(place: Place) -> None:
    place.store.write_text(place.root / "sub" / "x.json", "x")
    assert place.store.read_text_if_exists(place.root / "sub") is None
    place.store.delete(place.root / "sub")
    assert place.store.read_text(place.root / "sub" / "x.json") == "x"


def test_below_an_object_there_is_nothing(place: Place) -> None:
    place.store.write_text(place.root / "x.json", "x")
    below = place.root / "x.json" / "y"
    assert place.store.read_text_if_exists(below) is None
    assert not place.store.exists(below)
    assert place.store.list_dir(place.root / "x.json") == []
    place.store.delete(below)
    place.store.delete_prefix(place.root / "x.json")
    assert place.store.read_text(place.root / "x.json") == "x"


def test_text_that_is_not_utf8_is_a_typed_failure(place: Place) -> None:
    at = place.root / "x.json"
    place.store._put_object(at, b"ok \xff")
    with pytest.raises(errors.StorageFailure, match=r"not UTF-8 text: .* at byte 3") as failure:
        place.store.read_text(at)
    assert failure.value.kind == FailureKind.PERMANENT
    with pytest.raises(errors.InvalidValue, match="not valid Unicode"):
        place.store.write_text(at, "\ud800")


def test_only_the_first_create_succeeds(place: Place) -> None:
    at = place.root / "claim.json"
    assert place.store.write_text_if_absent(at, "first") is True
    assert place.store.write_text_if_absent(at, "second") is False
    assert place.store.read_text(at) == "first"
    place.store.delete(at)
    assert place.store.write_text_if_absent(at, "third") is True


def test_exactly_one_thread_creates_an_object_and_losers_read_it_whole(place: Place) -> None:
    at = place.root / "claim.json"
    start = threading.Barrier(8)

    def race(n: int) -> tuple[bool, str]:
        start.wait()
        won = place.store.write_text_if_absent(at, str(n) * 5000)
        return won, place.store.read_text(at)

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(race, range(8)))
    winners = [n for n, (won, _) in enumerate(outcomes) if won]
    assert len(winners) == 1
    assert {text for _, text in outcomes} == {str(winners[0]) * 5000}


def test_a_replacement_needs_the_current_token(place: Place) -> None:
    at = place.root / "lease.json"
    first = place.store.create_text(at, "one")
    assert first is not None
    second = place.store.write_text_if_match(at, "two", first)
    assert second is not None
    assert place.store.write_text_if_match(at, "late", first) is None
    found = place.store.read_text_versioned(at)
    assert found is not None
    assert (found.text, found.token) == ("two", second)
    place.store.delete(at)
    assert place.store.write_text_if_match(at, "revived", second) is None
    assert not place.store.exists(at)


def test_times_of_one_store_do_not_run_backwards(place: Place) -> None:
    place.store.write_text(place.root / "a", "1")
    place.store.write_text(place.root / "b", "2")
    earlier = place.store.read_text_versioned(place.root / "a")
    later = place.store.read_text_versioned(place.root / "b")
    assert earlier is not None
    assert later is not None
    assert 1.5e9 < earlier.modified <= later.modified


def test_exists_means_an_object_or_something_below(place: Place) -> None:
    assert not place.store.exists(place.root)
    place.store.write_text(place.root / "deep" / "er" / "x.json", "x")
    assert place.store.exists(place.root)
    assert place.store.exists(place.root / "deep")
    assert place.store.exists(place.root / "deep" / "er" / "x.json")
    assert not place.store.exists(place.root / "dee")
    place.store.delete(place.root / "deep" / "er" / "x.json")
    assert not place.store.exists(place.root / "deep")


def test_listing_is_direct_files_of_exactly_this_folder(place: Place) -> None:
    for name in ("a.json", "b c.json", "größe.json", "100%25.json", "+.json", "x#y", "#1x"):
        place.store.write_text(place.root / "__recovery" / name, name)
    place.store.write_text(place.root / "__recovery" / "below" / "no.json", "no")
    place.store.write_text(place.root / "__recovery_log" / "no.json", "no")
    place.store.write_text(place.root / "__recovery.json", "no")
    found = place.store.list_dir(place.root / "__recovery")
    assert sorted(at.name for at in found) == sorted(
        ["a.json", "b c.json", "größe.json", "100%25.json", "+.json", "x#y", "#1x"]
    )
    for at in found:
        assert at.uri == f"{place.root.uri}/__recovery/{at.name}"
        assert place.store.read_text(at) == at.name


def test_listing_where_nothing_is_gives_an_empty_list(place: Place) -> None:
    assert place.store.list_dir(place.root / "nothing") == []
    assert place.store.list_sizes(place.root / "nothing") == {}
    assert place.store.list_folders(place.root / "nothing") == []


def test_sizes_are_those_of_direct_files_and_folders_those_that_hold_something(place: Place) -> None:
    place.store.write_text(place.root / "top" / "a.json", "12345")
    place.store.write_text(place.root / "top" / "empty.json", "")
    place.store.write_text(place.root / "top" / "below" / "deep" / "b.json", "123")
    place.store.write_text(place.root / "top.json", "no")
    assert place.store.list_sizes(place.root / "top") == {
        place.root / "top" / "a.json": 5,
        place.root / "top" / "empty.json": 0,
    }
    assert place.store.list_folders(place.root / "top") == ["below"]
    place.store.delete_prefix(place.root / "top" / "below")
    assert place.store.list_folders(place.root / "top") == []


def test_the_last_change_is_that_of_the_newest_object_however_deep(place: Place) -> None:
    assert place.store.last_change(place.root / "top") is None
    place.store.write_text(place.root / "top" / "a.json", "1")
    first = place.store.last_change(place.root / "top")
    assert first is not None
    assert abs(first - time.time()) < 3600, "in seconds since 1970"
    place.store.write_text(place.root / "top" / "below" / "b.json", "2")
    place.store.write_text(place.root / "top.json", "3")
    below = place.store.last_change(place.root / "top" / "below")
    assert below is not None
    assert place.store.last_change(place.root / "top") == max(first, below)


def test_rename_replaces_the_target(place: Place) -> None:
    place.store.write_text(place.root / "x.staging", "new")
    place.store.write_text(place.root / "x", "old")
    place.store.rename_text(place.root / "x.staging", place.root / "x")
    assert place.store.read_text(place.root / "x") == "new"
    assert _names(place.store, place.root) == ["x"]
    place.store.rename_text(place.root / "x", place.root / "elsewhere" / "y")
    assert place.store.read_text(place.root / "elsewhere" / "y") == "new"
    with pytest.raises(errors.StorageFailure) as failure:
        place.store.rename_text(place.root / "x", place.root / "z")
    assert failure.value.kind == FailureKind.NOT_FOUND


def test_a_shared_object_has_two_names_and_outlives_either(place: Place) -> None:
    one, other = place.root / "a" / "one.bin", place.root / "b" / "c" / "other.bin"
    place.store.write_text(one, "x")
    place.store.share(one, other)
    place.store.share(one, other)
    assert place.store.read_text(one) == place.store.read_text(other) == "x"
    place.store.delete(one)
    assert place.store.read_text(other) == "x"
    with pytest.raises(errors.StorageFailure, match="does not exist") as failure:
        place.store.share(one, place.root / "third.bin")
    assert failure.value.kind == FailureKind.NOT_FOUND
    assert not place.store.exists(place.root / "third.bin")


def test_delete_twice_is_fine(place: Place) -> None:
    place.store.write_text(place.root / "x", "x")
    place.store.delete(place.root / "x")
    place.store.delete(place.root / "x")
    assert not place.store.exists(place.root / "x")


def test_delete_prefix_takes_all_below_and_no_sibling(place: Place) -> None:
    for name in ("tree/a", "tree/b/c", "tree/b/d/e"):
        place.store.write_text(place.root / name, name)
    place.store.write_text(place.root / "tree-2" / "a", "stays")
    place.store.write_text(place.root / "tree.json", "stays")
    place.store.delete_prefix(place.root / "tree")
    place.store.delete_prefix(place.root / "tree")
    assert not place.store.exists(place.root / "tree")
    assert place.store.exists(place.root / "tree-2" / "a")
    assert place.store.exists(place.root / "tree.json")


@pytest.mark.parametrize("name", ["x#1", "x.json#0042"])
def test_temporary_names_cannot_be_addressed(place: Place, name: str) -> None:
    at = place.root / name
    calls: list[Callable[[], object]] = [
        lambda: place.store.read_text(at),
        lambda: place.store.write_text(at, ""),
        lambda: place.store.write_text_if_absent(at, ""),
        lambda: place.store.delete(at),
        lambda: place.store.rename_text(place.root / "x", at),
        lambda: place.store.exists(at),
    ]
    for call in calls:
        with pytest.raises(errors.InvalidName, match="temporary name"):
            call()


def test_residue_of_a_cut_write_is_invisible(place: Place) -> None:
    place.store._put_object(place.root / "__recovery" / "01.json#77", b'{"half')
    assert place.store.list_dir(place.root / "__recovery") == []


def test_an_address_outside_the_store_is_refused(place: Place, tmp_path: Path) -> None:
    elsewhere = Location.parse("s3://another-bucket/x")
    with pytest.raises(errors.InvalidName):
        place.store.read_text(elsewhere)


def test_an_observer_hears_each_call_once_and_before_it_happens(place: Place) -> None:
    recorder = Recorder()
    place.store.observe = recorder
    at = place.root / "x.json"
    place.store.write_text_if_absent(at, "1")
    place.store.read_text_if_exists(at)
    place.store.list_dir(place.root)
    assert recorder.calls == (
        Call("write_text_if_absent", at.uri),
        Call("read_text_if_exists", at.uri),
        Call("list_dir", place.root.uri),
    )
    assert recorder.counts()["read_text_if_exists"] == 1

    def refuse(op: str, uri: str) -> None:
        raise errors.InternalError(f"{op} {uri}")

    place.store.observe = refuse
    with pytest.raises(errors.InternalError, match=r"delete .*x\.json"):
        place.store.delete(at)
    place.store.observe = None
    assert place.store.read_text(at) == "1"


def test_a_reader_never_sees_a_part_of_a_replacement(place: Place) -> None:
    at = place.root / "x.json"
    texts = {letter * 40_000 for letter in "ab"}
    place.store.write_text(at, "a" * 40_000)
    done = threading.Event()
    seen: list[str] = []

    def read() -> None:
        while not done.is_set():
            seen.append(place.store.read_text(at))

    reader = threading.Thread(target=read)
    reader.start()
    for n in range(20):
        place.store.write_text(at, "ab"[n % 2] * 40_000)
    done.set()
    reader.join()
    assert seen
    assert set(seen) <= texts


def test_the_abstract_store_makes_the_right_kind(tmp_path: Path) -> None:
    from omnigraph.storage.folder import FolderStore

    assert isinstance(open_store(Location.parse(tmp_path)), FolderStore)
