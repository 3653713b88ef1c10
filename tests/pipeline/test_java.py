"""Spark runs on the machine's Java when that is new enough, and on the bundled one otherwise."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from omnigraph.errors import JavaNotFound
from omnigraph.pipeline.java import BUNDLED, Java, find_java, launcher_home


def make_java(home: Path, version: str, *, release: bool = True) -> Path:
    """A Java that can do nothing but tell its version, in its files or when asked."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    home, other = make_java(tmp_path / "home", "21.0.1"), make_java(tmp_path / "other", "17")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.executable, found.major, found.origin) == (home / "bin" / "java", 21, "JAVA_HOME")


def test_a_java_on_the_path_is_found_behind_its_links(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jvm", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}) == Java(home / "bin" / "java", "17.0.15", "PATH")


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jvm", "25.0.2", release=False)
    assert find_java({"JAVA_HOME": str(home), "PATH": ""}).version == "25.0.2"


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("11.0.2", 11), ("17", 17), ("26-ea", 26)])
def test_the_number_that_counts(version: str, major: int) -> None:
    assert Java(Path("java"), version, "PATH").major == major


@pytest.mark.parametrize("old", ["1.8.0_392", "11.0.2"])
def test_an_old_java_gives_way_to_the_bundled_one(tmp_path: Path, old: str) -> None:
    found = find_java({"JAVA_HOME": str(make_java(tmp_path / "old", old)), "PATH": ""})
    assert found.origin == BUNDLED
    assert found.major >= 17
    assert found.executable.is_file()


def test_the_bundled_java_can_be_asked_for(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "21.0.1")
    assert find_java({"OMNIGRAPH_JAVA": "bundled", "JAVA_HOME": str(home)}).origin == BUNDLED


def test_a_java_that_was_asked_for_and_is_too_old_is_an_error(tmp_path: Path) -> None:
    home = make_java(tmp_path / "eleven", "11.0.2")
    with pytest.raises(JavaNotFound) as caught:
        find_java({"OMNIGRAPH_JAVA": str(home), "PATH": ""})
    assert str(caught.value) == (
        f"Spark needs Java 17 or newer; found 11.0.2 at {home}/bin/java (OMNIGRAPH_JAVA)"
    )
    assert caught.value.remedy == (
        "install Java 17 or newer, or take the bundled one: pip install 'omnigraph[spark]'"
    )


def test_a_java_that_was_asked_for_and_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFound, match=r"there is none where OMNIGRAPH_JAVA says \('.*nowhere'\)"):
        find_java({"OMNIGRAPH_JAVA": str(tmp_path / "nowhere")})


def test_the_launcher_drops_what_small_javas_do_not_know(tmp_path: Path) -> None:
    home = tmp_path / "a java"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor given; do echo "$given"; done\n')
    program.chmod(0o755)
    launcher = launcher_home(Java(program, "17", "PATH"), tmp_path / "cache") / "bin" / "java"
    options = [
        "-cp",
        "a b:*",
        "--add-modules=jdk.incubator.vector",
        "--add-opens=java.base/java.io=ALL-UNNAMED",
    ]
    options += ["--add-opens=java.base/sun.security.action=ALL-UNNAMED", "", 'say "$HOME"']
    done = subprocess.run([launcher, *options], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == [
        "-cp",
        "a b:*",
        "--add-opens=java.base/java.io=ALL-UNNAMED",
        "",
        'say "$HOME"',
    ]
