"""A store that cannot be written to safely is refused, by name, before anything is written."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from omnigraph import errors
from omnigraph.storage.failures import FailureKind, storage_failure
from omnigraph.storage.location import Location
from omnigraph.storage.objects import Recorder
from omnigraph.storage.stores import open_store, require_safe_writes
from tests.storage.conftest import Place


def _refusal(root: Location) -> errors.StorageFailure:
    with pytest.raises(errors.StorageFailure) as failure:
        require_safe_writes(open_store(root), root)
    assert failure.value.kind == "Configuration"
    assert failure.value.uri is not None
    assert failure.value.uri.startswith(root.uri)
    return failure.value


def test_a_good_store_passes_once_and_nothing_is_left(place: Place) -> None:
    recorder = Recorder()
    place.store.observe = recorder
    require_safe_writes(place.store, place.root)
    assert sum(recorder.counts().values()) == 6
    require_safe_writes(place.store, place.root)
    assert sum(recorder.counts().values()) == 6
    assert not place.store.exists(place.root)


def test_a_folder_is_left_exactly_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    for root in (tmp_path / "kept", tmp_path / "new" / "graph"):
        require_safe_writes(open_store(Location.parse(root)), Location.parse(root))
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["kept"]


def test_two_names_of_one_folder_are_one_root(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    recorder = Recorder()
    for name in ("real", "link"):
        require_safe_writes(
            open_store(Location.parse(tmp_path / name), recorder), Location.parse(tmp_path / name)
        )
    assert recorder.counts()["delete"] == 1


@pytest.mark.s3
@pytest.mark.parametrize(
    ("faulty_s3_root", "found"),
    [
        (["If-None-Match", "If-Match"], "`If-None-Match: *` replaced an existing object"),
        (["If-Match"], "`If-Match` and an old ETag replaced the object"),
    ],
    indirect=["faulty_s3_root"],
)
def test_a_server_that_ignores_conditions_is_refused(faulty_s3_root: Location, found: str) -> None:
    refusal = _refusal(faulty_s3_root)
    assert found in refusal.message
    assert "conditional puts" in (refusal.remedy or "")
    assert not open_store(faulty_s3_root).exists(faulty_s3_root)
    _refusal(faulty_s3_root)


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*arguments: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    refusal = _refusal(Location.parse(tmp_path / "g"))
    assert "hard link" in refusal.message
    assert "hard links" in (refusal.remedy or "")
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_record_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lockf(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", lockf)
    refusal = _refusal(Location.parse(tmp_path / "g"))
    assert "record locks" in refusal.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.s3
def test_a_missing_bucket_is_named(s3_root: Location) -> None:
    refusal = _refusal(Location.parse("s3://no-such-bucket/g"))
    assert "NoSuchBucket" in refusal.message
    assert "bucket" in (refusal.remedy or "")


@pytest.mark.parametrize(
    ("said", "reason", "remedy"),
    [
        (
            (
                "Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1.8ms - "
                "Server returned non-2xx status code: 403 Forbidden"
            ),
            "there are no AWS credentials",
            "AWS_ACCESS_KEY_ID",
        ),
        (
            (
                "Generic S3 error: Received redirect without LOCATION, this normally indicates an incorrectly"
                " configured region"
            ),
            "the bucket is in another region",
            "AWS_REGION",
        ),
    ],
)
def test_a_bucket_that_is_not_set_up_is_reported_in_one_sentence(said: str, reason: str, remedy: str) -> None:
    found = storage_failure(RuntimeError(said), "read", "s3://b/g")
    assert found.kind is FailureKind.CONFIGURATION
    assert found.message.startswith(f"cannot read 's3://b/g': {reason}")
    assert "169.254" not in found.message
    assert found.remedy is not None
    assert remedy in found.remedy
