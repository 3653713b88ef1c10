"""The project's own files: one list of commands, a closed lock, nothing of one machine."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ["requirements/dev.txt", "requirements/runtime.txt"]
PIN = re.compile(r"^[a-z0-9][a-z0-9._-]*==\S+( ; [^\\]+)?( \\)?$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")

# Each pattern is spelled so that it does not match its own text.
FOREIGN = {
    "a package registry": re.compile(r"pypi\.org|pythonhosted\.org|registry\.npmjs\.org", re.I),
    "an index option": re.compile(r"--(?:extra-)?(?:index-url|find-links)[ =]\S*:/[/]"),
    "a home folder": re.compile(r"(?<![\w.])/(?:home|Users)/[a-z]|(?<![\w.])/r[o]ot/", re.I),
    "a temporary folder": re.compile(r"(?<![\w.])/t[m]p/|(?<![\w.])/var/f[o]lders/"),
}


def project_files() -> list[Path]:
    """What a commit would hold: tracked files, and new ones that are not ignored."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout to know the project's files")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = listing.stdout.decode("utf-8").split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def test_no_file_names_a_registry_or_a_place_on_one_machine() -> None:
    found = []
    for path in project_files():
        text = path.read_bytes().decode("utf-8", errors="replace")
        found += [
            f"{path.relative_to(ROOT)}:{number}: {what}"
            for number, line in enumerate(text.splitlines(), start=1)
            for what, pattern in FOREIGN.items()
            if pattern.search(line)
        ]
    assert found == []


@pytest.mark.parametrize("name", LOCKS)
def test_lock_pins_every_package_with_hashes_and_names_no_address(name: str) -> None:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pins = [number for number, line in enumerate(lines) if PIN.match(line)]
    assert pins
    for number, line in enumerate(lines):
        assert PIN.match(line) or HASH.match(line) or line.startswith("#"), line
        if number in pins:
            assert HASH.match(lines[number + 1]), f"{line} has no hash"
    assert "://" not in "\n".join(lines)


@pytest.mark.parametrize(("name", "groups"), [("dev.txt", ["dev"]), ("runtime.txt", [])])
def test_lock_has_every_declared_dependency(name: str, groups: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = list(project["dependencies"])
    for group in groups:
        declared += project["optional-dependencies"][group]
    names = (re.split(r"[<>=!~;\[ ]", text)[0] for text in declared)
    wanted = {re.sub(r"[-_.]+", "-", name).lower() for name in names}
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    pinned = set(re.findall(r"^([a-z0-9][a-z0-9._-]*)==", text, re.M))
    assert wanted - pinned == set(), "run `make lock`"


def test_both_locks_agree_on_versions() -> None:
    pins = [
        dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", (ROOT / name).read_text(encoding="utf-8"), re.M))
        for name in LOCKS
    ]
    development, runtime = pins
    assert {name: development.get(name) for name in runtime} == runtime


def test_make_help_is_the_default_and_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.M)
    assert phony is not None
    shown = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    listed = re.findall(r"^  make (\S+) +\S", shown.stdout, re.M)
    assert sorted(listed) == sorted(phony.group(1).split())
    assert {"install", "demo", "test", "check", "bench", "docs", "release", "fuzz", "lock", "clean"} <= set(
        listed
    )


def test_the_languages_use_arrow_types_but_no_arrow_files_or_datasets() -> None:
    # Import contracts see only whole packages, so parts of one are checked here.
    allowed = re.compile(r"^\s*(import pyarrow as pa|import pyarrow|import pyarrow.compute as pc)$")
    strays = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / "src" / "omnigraph" / "lang").rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.match(r"\s*(import|from) pyarrow\b", line) and not allowed.match(line)
    ]
    assert strays == []
