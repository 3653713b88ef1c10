"""What only a folder can get wrong: residue, durability, folders in the way, a full disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from omnigraph import errors
from omnigraph.storage import folder
from omnigraph.storage.failures import FailureKind, classify_store_error
from omnigraph.storage.location import Location
from omnigraph.storage.objects import ObjectStore
from omnigraph.storage.stores import open_store
from tests.python_process import PIPE, Python


@pytest.fixture
def root(tmp_path: Path) -> Location:
    return Location.parse(tmp_path / "g")


@pytest.fixture
def store(root: Location) -> ObjectStore:
    return open_store(root)


def _files(root: Location) -> list[str]:
    return sorted(str(path.relative_to(root.path)) for path in root.path.rglob("*"))


def test_an_empty_folder_does_not_exist(store: ObjectStore, root: Location) -> None:
    (root.path / "a" / "b").mkdir(parents=True)
    assert not store.exists(root)
    (root.path / "a" / "b" / "x.json#123").write_text("residue")
    assert not store.exists(root)
    (root.path / "a" / "b" / "x.json").write_text("")
    assert store.exists(root)


def test_a_folder_that_may_not_be_read_is_an_error_not_absence(
    store: ObjectStore, root: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write_text(root / "x" / "y", "")

    def scandir(path: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "scandir", scandir)
    for call in (store.exists, store.list_dir, store.delete_prefix):
        with pytest.raises(errors.StorageFailure, match="Permission denied") as failure:
            call(root / "x")
        assert failure.value.kind == FailureKind.CONFIGURATION
        assert "permissions" in (failure.value.remedy or "")


def test_a_write_is_on_disk_before_it_is_visible(
    store: ObjectStore, root: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    real_fsync, real_replace, real_link = os.fsync, os.replace, os.link

    def fsync(descriptor: int) -> None:
        order.append("folder" if Path(f"/proc/self/fd/{descriptor}").resolve().is_dir() else "file")
        real_fsync(descriptor)

    def replace(old: str, new: str) -> None:
        order.append("move")
        real_replace(old, new)

    def link(old: str, new: str) -> None:
        order.append("link")
        real_link(old, new)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(os, "link", link)
    root.path.mkdir()
    store.write_text(root / "x", "1")
    store.write_text_if_absent(root / "y", "1")
    assert order == ["file", "move", "folder", "file", "link", "folder"]


@pytest.mark.parametrize("write", ["write_text", "write_text_if_absent"])
def test_a_full_disk_leaves_the_old_text_and_no_residue(
    store: ObjectStore, root: Location, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    store.write_text(root / "x", "old")

    def fsync(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(errors.StorageFailure, match="No space left") as failure:
        getattr(store, write)(root / "x", "new")
    assert failure.value.kind == FailureKind.TRANSIENT
    assert "space" in (failure.value.remedy or "")
    monkeypatch.undo()
    assert store.read_text(root / "x") == "old"
    assert _files(root) == ["x"]


def test_a_folder_in_the_place_of_an_object_is_named(store: ObjectStore, root: Location) -> None:
    store.write_text(root / "x" / "y", "")
    calls: list[Callable[[], object]] = [
        lambda: store.write_text(root / "x", ""),
        lambda: store.write_text_if_absent(root / "x", ""),
        lambda: store.write_text(root / "x" / "y" / "z", ""),
    ]
    for call in calls:
        with pytest.raises(errors.StorageFailure) as failure:
            call()
        assert failure.value.kind == FailureKind.PERMANENT
    assert _files(root) == ["x", "x/y"]


def test_a_name_that_is_too_long_is_typed(store: ObjectStore, root: Location) -> None:
    with pytest.raises(errors.StorageFailure) as failure:
        store.write_text(root / ("x" * 300), "")
    assert failure.value.kind == FailureKind.PERMANENT
    assert "shorter" in (failure.value.remedy or "")


def test_a_lock_file_is_not_an_object(store: ObjectStore, root: Location) -> None:
    (root.path / "__locks").mkdir(parents=True)
    (root.path / "__locks" / "main.lock").write_text("")
    with pytest.raises(errors.InvalidName, match="is a lock"):
        store.read_text(root / "__locks" / "main.lock")
    assert [at.name for at in store.list_dir(root / "__locks")] == ["main.lock"]


def test_names_that_cannot_be_addressed_are_not_listed(store: ObjectStore, root: Location) -> None:
    root.path.mkdir()
    (root.path / "with\nnewline").write_text("")
    (root.path / "fine").write_text("")
    Path(os.fsdecode(os.fsencode(root.path) + b"/\xff\xfe")).write_text("")
    assert [at.name for at in store.list_dir(root)] == ["fine"]


def test_a_link_below_a_prefix_is_removed_but_not_followed(
    store: ObjectStore, root: Location, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").write_text("")
    store.write_text(root / "tree" / "x", "")
    (root.path / "tree" / "link").symlink_to(tmp_path / "elsewhere")
    store.delete_prefix(root / "tree")
    assert not store.exists(root / "tree")
    assert (tmp_path / "elsewhere" / "kept").exists()


_RACER = """
import sys
from omnigraph.storage.location import Location
from omnigraph.storage.stores import open_store
root = Location.parse(sys.argv[1])
store = open_store(root)
print("ready", flush=True)
sys.stdin.readline()
for n in range(20):
    print(int(store.write_text_if_absent(root / f"{n}.json", sys.argv[2])), end=" ")
print(flush=True)
"""


def test_a_folder_that_others_find_empty_and_remove_is_made_again(
    store: ObjectStore, root: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, make = [], folder._make_folders

    def made_and_removed(wanted: Path) -> None:
        make(wanted)
        made.append(wanted)
        if len(made) < 4:
            wanted.rmdir()  # as another process does that ends its probe at this moment

    monkeypatch.setattr(folder, "_make_folders", made_and_removed)
    assert store.write_text_if_absent(root / "__probe/a.json", "{}")
    assert (root.path / "__probe" / "a.json").read_text() == "{}"
    assert len(made) == 4


def test_exactly_one_process_creates_each_object(shared_root: Location) -> None:
    racers = [Python("-c", _RACER, shared_root.uri, str(n), stdin=PIPE, stdout=PIPE) for n in range(4)]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    wins = [racer.communicate()[0].split() for racer in racers]
    store = open_store(shared_root)
    for n in range(20):
        winners = [racer for racer in range(4) if wins[racer][n] == "1"]
        assert len(winners) == 1, wins
        assert store.read_text(shared_root / f"{n}.json") == str(winners[0])


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, FailureKind.NOT_FOUND),
        (errno.EACCES, FailureKind.CONFIGURATION),
        (errno.EROFS, FailureKind.CONFIGURATION),
        (errno.ENOLCK, FailureKind.CONFIGURATION),
        (errno.EDQUOT, FailureKind.TRANSIENT),
        (errno.EMFILE, FailureKind.TRANSIENT),
        (errno.EIO, FailureKind.PERMANENT),
        (errno.ECHILD, FailureKind.UNKNOWN),
    ],
)
def test_each_error_of_the_system_has_its_class(number: int, kind: FailureKind) -> None:
    assert classify_store_error(OSError(number, os.strerror(number)))[0] is kind


@pytest.mark.s3
def test_a_store_that_does_not_answer_is_transient(
    s3_root: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(errors.StorageFailure) as failure:
        open_store(s3_root).read_text_if_exists(s3_root / "x")
    assert failure.value.kind == FailureKind.TRANSIENT
    assert failure.value.message.endswith("does not answer")
    assert "AWS_ENDPOINT_URL" in (failure.value.remedy or "")


@pytest.mark.s3
@pytest.mark.parametrize(
    "call",
    [
        lambda store, at: store.read_text_if_exists(at),
        lambda store, at: store.exists(at),
        lambda store, at: store.list_dir(at),
        lambda store, at: store.write_text_if_match(at, "x", '"token"'),
        lambda store, at: store.write_text_if_absent(at, "x"),
        lambda store, at: store.delete(at),
        lambda store, at: store.delete_prefix(at),
        lambda store, at: store.rename_text(at, at / "y"),
    ],
)
def test_a_missing_bucket_is_not_an_absent_object(
    s3_root: Location, call: Callable[[ObjectStore, Location], object]
) -> None:
    at = Location.parse("s3://no-such-bucket/x")
    with pytest.raises(errors.StorageFailure, match="NoSuchBucket") as failure:
        call(open_store(at), at)
    assert failure.value.kind == FailureKind.CONFIGURATION
