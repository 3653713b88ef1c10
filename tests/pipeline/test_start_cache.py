"""The start-up cache is used when it is there, made once, and never in the way."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from omnigraph.pipeline import start_cache
from omnigraph.pipeline.java import Java, find_java
from omnigraph.pipeline.start_cache import (
    StartCache,
    is_being_made,
    make_cache,
    make_in_background,
    remove_unused,
)


@pytest.fixture
def place(tmp_path: Path) -> StartCache:
    return StartCache(tmp_path / "start-4-java25-x.aot", ahead_of_time=True)


def test_a_cache_that_is_not_there_is_not_used(place: StartCache) -> None:
    assert place.use_options() == []
    place.file.write_bytes(b"cache")
    assert place.use_options() == [f"-XX:AOTCache={place.file}"]


def test_older_javas_use_archives_of_classes(tmp_path: Path) -> None:
    home = tmp_path / "jvm"
    (home / "lib" / "server").mkdir(parents=True)
    java = Java(home / "bin" / "java", "17.0.1", "PATH")
    assert start_cache.start_cache(java, tmp_path) is None
    (home / "lib" / "server" / "classes.jsa").touch()
    found = start_cache.start_cache(java, tmp_path)
    assert found is not None
    assert found.make_options(tmp_path / "new") == [f"-XX:ArchiveClassesAtExit={tmp_path / 'new'}"]
    found.file.touch()
    assert found.use_options() == [f"-XX:SharedArchiveFile={found.file}"]


def test_each_java_has_a_cache_of_its_own(tmp_path: Path) -> None:
    bundled = find_java({"OMNIGRAPH_JAVA": "bundled"})
    moved = Java(tmp_path / "java", bundled.version, bundled.origin)
    first, second = (start_cache.start_cache(java, tmp_path) for java in (bundled, moved))
    assert first is not None
    assert second is not None
    assert first.file != second.file


def test_a_cache_is_made_by_one_process_at_a_time(place: StartCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(start_cache.SETTING, raising=False)
    assert not is_being_made(place)
    with place.gate.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert is_being_made(place)
        assert not make_cache(place)
        assert not make_in_background(place)


def test_a_cache_that_failed_lately_is_not_tried_again(
    place: StartCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(start_cache.SETTING, raising=False)
    place.failure.write_text("no room\n")
    assert not make_in_background(place)
    assert not place.gate.exists()


def test_unused_caches_are_removed(place: StartCache) -> None:
    old = place.file.with_name("start-3-java17-y.jsa")
    for file in (place.file, old):
        file.write_bytes(b"cache")
    os.utime(old, (0, 0))
    remove_unused(place.file.parent)
    assert (place.file.exists(), old.exists()) == (True, False)
